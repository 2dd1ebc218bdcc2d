"""The C++ headers and library in the TensorFlow package of the configured interpreter."""

load("//tools:python_configure.bzl", "find_python")

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
    python = find_python(ctx)
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
