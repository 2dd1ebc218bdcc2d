"""C++ libraries that are not TensorFlow's: GoogleTest, nlohmann's JSON library, and Horovod's headers."""

# GoogleTest, as installed by the system's package manager.
_PREFIXES = ["/usr", "/usr/local"]

_LIB_FOLDERS = ["lib/x86_64-linux-gnu", "lib/aarch64-linux-gnu", "lib64", "lib"]

_GTEST = """
package(default_visibility = ["//visibility:public"])

cc_library(
    name = "headers",
    hdrs = glob(["include/gtest/**"]),
    includes = ["include"],
)

cc_library(
    name = "gtest",
    srcs = ["lib/libgtest.a"],
    linkopts = ["-lpthread"],
    deps = [
        ":headers",
        "@sok//tools:test_prelude",
    ],
)

cc_library(
    name = "gtest_main",
    srcs = ["lib/libgtest_main.a"],
    deps = [":gtest"],
)
"""

def _gtest_configure_impl(ctx):
    for prefix in _PREFIXES:
        headers = ctx.path(prefix + "/include/gtest")
        if not headers.exists:
            continue
        for folder in _LIB_FOLDERS:
            archives = [ctx.path("%s/%s/%s" % (prefix, folder, name)) for name in ["libgtest.a", "libgtest_main.a"]]
            if all([archive.exists for archive in archives]):
                ctx.symlink(headers, "include/gtest")
                for archive in archives:
                    ctx.symlink(archive, "lib/" + archive.basename)
                ctx.file("BUILD", _GTEST)
                return
    fail("\nThe C++ tests need GoogleTest (headers and static libraries), which is not installed. On Debian " +
         "or Ubuntu: apt-get install libgtest-dev. The library itself builds without it: " +
         "bazel build //sok_ops:sok_ops.so\n")

gtest_configure = repository_rule(
    implementation = _gtest_configure_impl,
    configure = True,
)

# nlohmann's JSON library, as installed by the system's package manager, reads and writes checkpoint manifests. It has
# headers only, so that its ABI cannot conflict with TensorFlow's. It parses hostile text without exceptions, and its
# authors fuzz it. TensorFlow's jsoncpp cannot be used, because TensorFlow's wheel does not export it.
_JSON = """
package(default_visibility = ["//visibility:public"])

cc_library(
    name = "json",
    hdrs = glob(["include/nlohmann/**"]),
    includes = ["include"],
)
"""

def _json_configure_impl(ctx):
    for prefix in _PREFIXES:
        headers = ctx.path(prefix + "/include/nlohmann")
        if headers.exists:
            ctx.symlink(headers, "include/nlohmann")
            ctx.file("BUILD", _JSON)
            return
    fail("\nCheckpoints need nlohmann's JSON library (headers), which is not installed. On Debian or Ubuntu: " +
         "apt-get install nlohmann-json3-dev\n")

json_configure = repository_rule(
    implementation = _json_configure_impl,
    configure = True,
)

# Horovod's headers are in its unpacked source package, in $SOK_HOROVOD; Horovod's wheel has no headers. Without such a
# folder, HAS_HOROVOD in horovod.bzl is False, and the library is built for one rank.
_HOROVOD = """
package(default_visibility = ["//visibility:public"])

# The headers of a build for CPUs. System headers, so that warnings in them are off.
cc_library(
    name = "headers",
    hdrs = glob(["horovod/common/*.h"]),
    includes = ["."],
)
"""

_CONSTANTS = '"""The configured Horovod."""\n\nHAS_HOROVOD = %r\n'

def _horovod_configure_impl(ctx):
    source = ctx.os.environ.get("SOK_HOROVOD", "")
    has_horovod = bool(source) and ctx.path(source + "/horovod/common/operations.h").exists
    if has_horovod:
        ctx.symlink(source + "/horovod/common", "horovod/common")
    ctx.file("BUILD", _HOROVOD if has_horovod else "")
    ctx.file("horovod.bzl", _CONSTANTS % has_horovod)

horovod_configure = repository_rule(
    implementation = _horovod_configure_impl,
    environ = ["SOK_HOROVOD"],
    configure = True,
)
