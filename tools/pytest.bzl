"""Test targets whose files are pytest's."""

def pytest_test(name, srcs, deps = [], data = [], **kwargs):
    """One test target of pytest files, each run in a process of its own, with the project's pytest configuration.

    Args:
      name: the target's name.
      srcs: the test files.
      deps: Python libraries, among them //tests:support.
      data: files that the tests open.
      **kwargs: passed to py_test (size, tags, args, shard_count).
    """
    native.py_test(
        name = name,
        srcs = ["//tools:run_pytest.py"] + srcs,
        main = "//tools:run_pytest.py",
        args = ["$(rootpath //:pyproject.toml)"] + ["$(rootpath %s)" % src for src in srcs] + kwargs.pop("args", []),
        data = data + ["//:pyproject.toml"],
        python_version = "PY3",
        deps = deps,
        **kwargs
    )

def pytest_tests(name, srcs, files_per_shard = 8, tags = [], **kwargs):
    """One target of all files, in shards; and one of each file, to be run by name alone.

    A new file needs no edit.

    Args:
      name: the name of the target of all files. The others are named as the file without its suffix.
      srcs: test files, usually a glob.
      files_per_shard: how many files, at most, share what starting a test target costs.
      tags: tags of all targets.
      **kwargs: passed to every pytest_test.
    """
    pytest_test(
        name = name,
        srcs = srcs,
        # Each file has a limit of its own, in run_pytest.py.
        timeout = "eternal",
        shard_count = (len(srcs) + files_per_shard - 1) // files_per_shard,
        tags = tags,
        **kwargs
    )
    for src in srcs:
        pytest_test(
            name = src[:-len(".py")],
            srcs = [src],
            tags = tags + ["manual"],
            **kwargs
        )
