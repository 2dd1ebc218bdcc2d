"""Test targets whose files are pytest's."""

def pytest_test(name, src, deps = [], data = [], **kwargs):
    """One test target of one pytest file, with the project's pytest configuration.

    Args:
      name: the target's name.
      src: the test file.
      deps: Python libraries.
      data: files that the test opens.
      **kwargs: passed to py_test (size, tags, args, shard_count).
    """
    native.py_test(
        name = name,
        srcs = ["//tools:run_pytest.py", src],
        main = "//tools:run_pytest.py",
        args = ["$(rootpath //:pyproject.toml)", "$(rootpath %s)" % src] + kwargs.pop("args", []),
        data = data + ["//:pyproject.toml"],
        python_version = "PY3",
        deps = deps,
        **kwargs
    )

def pytest_tests(srcs, sizes = {}, tags = {}, **kwargs):
    """A pytest_test of each file, named as the file without its suffix; a new file needs no edit.

    Args:
      srcs: test files, usually a glob.
      sizes: Bazel's size of a test that is not "medium", by name.
      tags: tags of a test, by name.
      **kwargs: passed to every pytest_test.
    """
    names = [src[:-len(".py")] for src in srcs]
    for name in list(sizes) + list(tags):
        if name not in names:
            fail("no test file is named %s" % name)
    for name, src in zip(names, srcs):
        pytest_test(
            name = name,
            src = src,
            size = sizes.get(name, "medium"),
            tags = tags.get(name, []),
            **kwargs
        )
