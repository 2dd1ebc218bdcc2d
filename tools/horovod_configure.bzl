"""Horovod's headers, from the source package that $SOK_HOROVOD names; the wheel has none.

HAS_HOROVOD of horovod.bzl is False where there is no such folder: the library is then built for one rank.
"""

_BUILD = """
package(default_visibility = ["//visibility:public"])

# Included with -isystem: warnings in Horovod's headers are not ours. They are those of a build for the CPU.
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
