"""GoogleTest, as installed by the system's package manager."""

_PREFIXES = ["/usr", "/usr/local"]

_LIB_FOLDERS = ["lib/x86_64-linux-gnu", "lib/aarch64-linux-gnu", "lib64", "lib"]

_BUILD = """
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
                ctx.file("BUILD", _BUILD)
                return
    fail("\nThe C++ tests need GoogleTest (headers and static libraries), which is not installed. On Debian " +
         "or Ubuntu: apt-get install libgtest-dev. The library itself builds without it: " +
         "bazel build //sok_ops:sok_ops.so\n")

gtest_configure = repository_rule(
    implementation = _gtest_configure_impl,
    configure = True,
)
