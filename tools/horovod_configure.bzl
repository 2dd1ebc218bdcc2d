"""Horovod's headers, from its unpacked source package in $SOK_HOROVOD; Horovod's wheel has no headers.

Without such a folder, HAS_HOROVOD in horovod.bzl is False, and the library is built for one rank.
"""

_BUILD = """
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
    ctx.file("BUILD", _BUILD if has_horovod else "")
    ctx.file("horovod.bzl", _CONSTANTS % has_horovod)

horovod_configure = repository_rule(
    implementation = _horovod_configure_impl,
    environ = ["SOK_HOROVOD"],
    configure = True,
)
