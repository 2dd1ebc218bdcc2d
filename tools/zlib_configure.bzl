"""zlib, as installed by the system's package manager. It computes the checksums of checkpoints.

Its CRC-32 is widely available to other programs (in Python, zlib.crc32), which the documented checkpoint format needs.
It is linked statically, so that the op library depends only on what TensorFlow's wheel has.
"""

_PREFIXES = ["/usr", "/usr/local"]

_LIB_FOLDERS = ["lib/x86_64-linux-gnu", "lib/aarch64-linux-gnu", "lib64", "lib"]

_BUILD = """
package(default_visibility = ["//visibility:public"])

cc_library(
    name = "zlib",
    srcs = ["lib/libz.a"],
    hdrs = ["include/zlib.h", "include/zconf.h"],
    includes = ["include"],
    # Not exported: the process may have another zlib, such as Python's.
    linkopts = ["-Wl,--exclude-libs,libz.a"],
)
"""

def _zconf(ctx, prefix):
    # Debian keeps it in the folder of the architecture.
    for folder in ["include", "include/x86_64-linux-gnu", "include/aarch64-linux-gnu"]:
        path = ctx.path("%s/%s/zconf.h" % (prefix, folder))
        if path.exists:
            return path
    return None

def _zlib_configure_impl(ctx):
    for prefix in _PREFIXES:
        header = ctx.path(prefix + "/include/zlib.h")
        zconf = _zconf(ctx, prefix)
        if not header.exists or zconf == None:
            continue
        for folder in _LIB_FOLDERS:
            archive = ctx.path("%s/%s/libz.a" % (prefix, folder))
            if archive.exists:
                ctx.symlink(header, "include/zlib.h")
                ctx.symlink(zconf, "include/zconf.h")
                ctx.symlink(archive, "lib/libz.a")
                ctx.file("BUILD", _BUILD)
                return
    fail("\nCheckpoints need zlib (headers and static library), which is not installed. On Debian or Ubuntu: " +
         "apt-get install zlib1g-dev\n")

zlib_configure = repository_rule(
    implementation = _zlib_configure_impl,
    configure = True,
)
