"""The Python toolchain with the configured interpreter, $SOK_PYTHON."""

_BUILD = """
load("@bazel_tools//tools/python:toolchain.bzl", "py_runtime_pair")

package(default_visibility = ["//visibility:public"])

py_runtime(
    name = "runtime",
    interpreter_path = "{python}",
    python_version = "PY3",
    stub_shebang = "#!{python}",
)

py_runtime_pair(
    name = "runtime_pair",
    py3_runtime = ":runtime",
)

toolchain(
    name = "toolchain",
    toolchain = ":runtime_pair",
    toolchain_type = "@bazel_tools//tools/python:toolchain_type",
)
"""

def find_python(ctx):
    """The configured interpreter's absolute path. Fails if there is no such program.

    Args:
      ctx: the context of a repository rule that has SOK_PYTHON in its `environ`.

    Returns:
      The path.
    """
    name = ctx.os.environ.get("SOK_PYTHON", "")
    if not name:
        fail("\nNo Python is configured. Run tools/setup.sh, which makes an environment and writes .bazelrc.env, " +
             "or give the path of a Python that has TensorFlow: --repo_env=SOK_PYTHON=PATH.\n")
    path = ctx.path(name) if "/" in name else ctx.which(name)
    if path == None or not path.exists:
        fail("\nThe configured Python, %s, does not exist. Run tools/setup.sh again.\n" % name)
    return str(path)

def _python_configure_impl(ctx):
    ctx.file("BUILD", _BUILD.format(python = find_python(ctx)))

python_configure = repository_rule(
    implementation = _python_configure_impl,
    environ = ["SOK_PYTHON"],
    configure = True,
)
