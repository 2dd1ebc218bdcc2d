"""The Python toolchain with the configured interpreter, and the C++ headers and library of its TensorFlow."""

_TOOLCHAIN = """
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

def _find_python(ctx):
    """The configured interpreter's absolute path, $SOK_PYTHON. Fails if there is no such program."""
    name = ctx.os.environ.get("SOK_PYTHON", "")
    if not name:
        fail("\nNo Python is configured. Run tools/setup.sh, which makes an environment and writes .bazelrc.env, " +
             "or give the path of a Python that has TensorFlow: --repo_env=SOK_PYTHON=PATH.\n")
    path = ctx.path(name) if "/" in name else ctx.which(name)
    if path == None or not path.exists:
        fail("\nThe configured Python, %s, does not exist. Run tools/setup.sh again.\n" % name)
    return str(path)

def _python_configure_impl(ctx):
    ctx.file("BUILD", _TOOLCHAIN.format(python = _find_python(ctx)))

python_configure = repository_rule(
    implementation = _python_configure_impl,
    environ = ["SOK_PYTHON"],
    configure = True,
)

# The rule reads only the last line of the output, because importing TensorFlow may print other lines.
_ASK = """
import json, os
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
import tensorflow as tf
print(json.dumps({
    "version": tf.__version__,
    "include": tf.sysconfig.get_include(),
    "lib": tf.sysconfig.get_lib(),
    "compile": tf.sysconfig.get_compile_flags(),
    "link": tf.sysconfig.get_link_flags(),
}))
"""

# The folders of the headers that op_kernel.h includes, directly or not. The package has about ten thousand headers.
_HEADER_ROOTS = [
    "Eigen",
    "absl",
    "external/ml_dtypes",
    "google",
    "ml_dtypes",
    "tensorflow/c",
    "tensorflow/core",
    "tensorflow/tsl",
    "third_party",
    "tsl",
    "unsupported",
    "xla/stream_executor",
    "xla/tsl",
]

_BUILD = """
package(default_visibility = ["//visibility:public"])

# System headers, so that warnings in them are off.
cc_library(
    name = "headers",
    hdrs = glob({headers}, exclude = ["**/*.so", "**/*.py", "**/*.txt"]),
    defines = {defines},
    includes = ["include"],
)

cc_library(
    name = "framework",
    srcs = ["{framework}"],
)
"""

_CONSTANTS = """\"\"\"The configured TensorFlow.\"\"\"

TF_VERSION = "{version}"

# Whether it supports plugin devices, with which GPUs are tested. Without them, as in 1.15, there are only CPUs.
TF_HAS_GPU_PLUGINS = {has_gpu}
"""

def _strip(flags, prefix):
    return [flag[len(prefix):] for flag in flags if flag.startswith(prefix)]

def _tf_configure_impl(ctx):
    python = _find_python(ctx)
    answer = ctx.execute([python, "-c", _ASK], quiet = True)
    if answer.return_code != 0:
        fail("\n%s cannot import TensorFlow. Run tools/setup.sh again. It said:\n%s" % (python, answer.stderr))
    found = json.decode(answer.stdout.strip().splitlines()[-1])

    framework = _strip(found["link"], "-l:")[0]
    ctx.symlink(found["include"], "include")
    ctx.symlink(found["lib"] + "/" + framework, framework)
    ctx.file("BUILD", _BUILD.format(
        headers = ["include/%s/**" % root for root in _HEADER_ROOTS],
        defines = _strip(found["compile"], "-D"),
        framework = framework,
    ))

    # Of the TensorFlow features that the library's GPU support needs, plugin devices are the newest.
    has_gpu = ctx.path("include/tensorflow/c/experimental/stream_executor/stream_executor.h").exists
    ctx.file("tf.bzl", _CONSTANTS.format(version = found["version"], has_gpu = has_gpu))

tf_configure = repository_rule(
    implementation = _tf_configure_impl,
    # SOK_ENV_STAMP changes when tools/setup.sh rebuilds an environment in place.
    environ = ["SOK_PYTHON", "SOK_ENV_STAMP"],
    configure = True,
)
