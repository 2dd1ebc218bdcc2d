"""Test targets of pytest files."""

def pytest_test(name, srcs, deps = [], data = [], tags = [], **kwargs):
    """A test target that runs pytest files in one process, with the project's pytest configuration.

    Args:
      name: the target's name.
      srcs: the test files.
      deps: Python libraries, besides those that every test has.
      data: files that the tests open.
      tags: tags of the target.
      **kwargs: passed to py_test.
    """
    native.py_test(
        name = name,
        srcs = ["//tools:run_pytest.py", "//tools:fork_server.py"] + srcs,
        main = "//tools:run_pytest.py",
        args = ["$(rootpath //:pyproject.toml)"] + ["$(rootpath %s)" % src for src in srcs],
        data = data + ["//:pyproject.toml"],
        python_version = "PY3",
        tags = tags,
        timeout = "long",
        deps = deps + ["//tests:running"],
        **kwargs
    )
