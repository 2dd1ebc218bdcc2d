"""zlib as the system's package manager installed it: the checksums of checkpoints.

Its CRC-32 is the one that every other program has at hand (Python's zlib.crc32 among them), which the documented
checkpoint format needs. Linked statically: the op library then needs nothing that TensorFlow's wheel lacks.
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
    # Not to be seen from outside: the process has a zlib already, Python's.
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
