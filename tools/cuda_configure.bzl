"""The CUDA toolkit, if there is one: in $CUDA_HOME, or the one of the `nvcc` on the path.

SOK_CUDA=0 builds without it. With SOK_CUDA=1, a missing toolkit is an error; without SOK_CUDA, it is not.
SOK_CUDA_ARCHS lists compute capabilities, "90" by default; PTX is added for the last one.
"""

_BUILD = """
package(default_visibility = ["//visibility:public"])

cc_library(
    name = "headers",
    # TensorFlow's headers include CUDA's by this path.
    hdrs = glob(["third_party/gpus/cuda/include/**"], exclude = ["**/*.txt"]),
    defines = ["GOOGLE_CUDA=1"],
    includes = {includes},
)

cc_library(
    name = "runtime",
    srcs = ["libcudart_static.a"],
    linkopts = ["-ldl", "-lpthread", "-lrt"],
)
"""

_BUILD_WITHOUT = """
package(default_visibility = ["//visibility:public"])

cc_library(name = "headers")

cc_library(name = "runtime")
"""

_CONSTANTS = '''"""The configured CUDA toolkit; CUDA_HOME is empty without one. CUDA_DEVICE tells whether there is a GPU."""

CUDA_HOME = %r
CUDA_ARCHS = %r
CUDA_DEVICE = %r
'''

_LIB_FOLDERS = ["lib64", "lib", "targets/x86_64-linux/lib"]

def _toolkit_of_nvcc(ctx):
    nvcc = ctx.which("nvcc")
    if nvcc == None:
        return ""

    # nvcc may be a link or a wrapper script; the commands of a dry run name the toolkit's folder.
    dry_run = ctx.execute([nvcc, "--dryrun", "-x", "cu", "-E", "/dev/null"])
    for line in (dry_run.stderr + dry_run.stdout).splitlines():
        if line.startswith("#$ TOP="):
            return str(ctx.path(line[len("#$ TOP="):].strip()))
    return ""

def _find_toolkit(ctx):
    wish = ctx.os.environ.get("SOK_CUDA", "")
    if wish == "0":
        return ""
    home = ctx.os.environ.get("CUDA_HOME", "") or _toolkit_of_nvcc(ctx)
    if home and ctx.path(home + "/bin/nvcc").exists:
        return home
    if wish == "1":
        fail("\nSOK_CUDA=1, but there is no CUDA toolkit: set CUDA_HOME, put nvcc on the path, or set SOK_CUDA=0.\n")
    return ""

def _cuda_configure_impl(ctx):
    home = _find_toolkit(ctx)
    device = ctx.path("/dev/nvidiactl").exists
    if not home:
        ctx.file("BUILD", _BUILD_WITHOUT)
        ctx.file("cuda.bzl", _CONSTANTS % ("", [], device))
        return

    archives = [ctx.path("%s/%s/libcudart_static.a" % (home, folder)) for folder in _LIB_FOLDERS]
    archives = [archive for archive in archives if archive.exists]
    if not archives:
        fail("\nThe CUDA toolkit in %s has no libcudart_static.a: install its development files, or build with SOK_CUDA=0.\n" % home)
    ctx.symlink(archives[0], "libcudart_static.a")
    ctx.symlink(home + "/include", "third_party/gpus/cuda/include")

    includes = [".", "third_party/gpus/cuda/include"]
    if ctx.path(home + "/include/cccl").exists:  # where CUDA 13 keeps cub, thrust and libcu++
        includes.append("third_party/gpus/cuda/include/cccl")
    ctx.file("BUILD", _BUILD.format(includes = includes))
    archs = ctx.os.environ.get("SOK_CUDA_ARCHS", "90").split(",")
    ctx.file("cuda.bzl", _CONSTANTS % (home, archs, device))

cuda_configure = repository_rule(
    implementation = _cuda_configure_impl,
    environ = ["SOK_CUDA", "SOK_CUDA_ARCHS", "CUDA_HOME"],
    configure = True,
)
