"""cuda_library: .cu files compiled by nvcc, for the `deps` of cc_library, cc_binary and cc_test.

A .cu file defines launchers that take raw pointers and a stream. It includes no TensorFlow header: with these, a
file takes most of a minute to compile, and some versions of nvcc cannot compile those of some TensorFlow versions.
nvcc reads a file once for the host and once for each architecture. So what holds no kernel is a .cc file, which g++
reads once.

cuda_check: the same of sources that are not linked; see there.

The output group `ptxas` has a text for each .cu file, those of other cuda_libraries among the `deps` included: what
kernels take, as ptxas prints it.
"""

load("@bazel_tools//tools/cpp:toolchain_utils.bzl", "find_cpp_toolchain")
load("@cuda_toolkit//:cuda.bzl", "CUDA_ARCHS", "CUDA_HOME")
load(":copts.bzl", "SOK_COPTS", "TEST_COPTS")
load(":precompiled_header.bzl", "compiler_command", "compiler_features")

_OPTIONS = [
    "-O3",
    "-std=c++17",
    # No fused multiply-add, as in C++ code (copts.bzl), so that CPU and GPU compute the same bits.
    "--fmad=false",
    "--expt-relaxed-constexpr",
    "--expt-extended-lambda",
    "-Werror=all-warnings",
    "--resource-usage",
    "-Xcompiler=-fPIC,-fvisibility=hidden,-Wall,-ffp-contract=off",
]

def _architectures():
    """Machine code for every architecture, and PTX of the last one for newer devices."""
    codes = [("compute_" + arch, "sm_" + arch) for arch in CUDA_ARCHS]
    codes += [("compute_" + arch, "compute_" + arch) for arch in CUDA_ARCHS[-1:]]
    return ["-gencode=arch=%s,code=%s" % pair for pair in codes]

# Saves nvcc's output to a file, and prints it after an error.
_NVCC = """
report=$1
shift
"$@" > "$report" 2>&1 || { status=$?; cat "$report" >&2; exit "$status"; }
"""

def _nvcc(ctx, toolchain, context, source, suffix, mode, codes):
    """Compiles to a file of this suffix, as the options `mode` and `codes` say. Returns it and the report."""
    name = "_cuda/%s/%s" % (ctx.label.name, source.basename)
    result = ctx.actions.declare_file(name + suffix)
    report = ctx.actions.declare_file(name + ".ptxas.txt")
    args = ctx.actions.args()
    args.add_all([mode] + _OPTIONS + codes)
    args.add("-ccbin", toolchain.compiler_executable)
    args.add_all(context.defines, format_each = "-D%s")
    args.add_all(context.quote_includes, before_each = "-I")
    args.add_all(context.includes, before_each = "-I")
    args.add_all(context.system_includes, before_each = "-isystem")
    args.add("-x", "cu")
    args.add(source)
    args.add("-o", result)
    ctx.actions.run_shell(
        command = _NVCC,
        arguments = [report.path, CUDA_HOME + "/bin/nvcc", args],
        inputs = depset([source], transitive = [context.headers, toolchain.all_files]),
        outputs = [result, report],
        mnemonic = "CudaCompile",
        progress_message = "Compiling %s with nvcc" % source.short_path,
        use_default_shell_env = True,
    )
    return result, report

def _compile(ctx, toolchain, context, source):
    """Returns the object and the report."""
    return _nvcc(ctx, toolchain, context, source, ".o", "-c", _architectures())

def _compile_host_code(ctx, toolchain, features, context, sources):
    """Returns the objects."""
    if not sources:
        return []
    _, outputs = cc_common.compile(
        name = ctx.label.name,
        actions = ctx.actions,
        feature_configuration = features,
        cc_toolchain = toolchain,
        srcs = sources,
        compilation_contexts = [
            context,
            cc_common.create_compilation_context(headers = depset(ctx.files.included)),
        ],
        user_compile_flags = SOK_COPTS,
    )
    return outputs.pic_objects or outputs.objects

def _compilation_context(ctx):
    own = CcInfo(compilation_context = cc_common.create_compilation_context(
        headers = depset(ctx.files.hdrs),
        quote_includes = depset([".", ctx.bin_dir.path]),
    ))
    deps = [dep[CcInfo] for dep in ctx.attr.deps]
    return cc_common.merge_cc_infos(direct_cc_infos = [own], cc_infos = deps).compilation_context

def _cuda_library_impl(ctx):
    toolchain = find_cpp_toolchain(ctx)
    features = compiler_features(ctx, toolchain)
    deps = [dep[CcInfo] for dep in ctx.attr.deps]
    context = _compilation_context(ctx)

    compiled = [_compile(ctx, toolchain, context, source) for source in ctx.files.srcs if source.extension == "cu"]
    objects = [result for result, _ in compiled] + _compile_host_code(
        ctx,
        toolchain,
        features,
        context,
        [source for source in ctx.files.srcs if source.extension != "cu"],
    )
    linking, _ = cc_common.create_linking_context_from_compilation_outputs(
        actions = ctx.actions,
        name = ctx.label.name,
        feature_configuration = features,
        cc_toolchain = toolchain,
        compilation_outputs = cc_common.create_compilation_outputs(
            objects = depset(objects),
            pic_objects = depset(objects),
        ),
        linking_contexts = [dep.linking_context for dep in deps],
        disallow_dynamic_library = True,
        alwayslink = True,
    )
    return [
        DefaultInfo(files = depset(objects)),
        CcInfo(compilation_context = context, linking_context = linking),
        OutputGroupInfo(ptxas = depset(
            [report for _, report in compiled],
            transitive = [
                dep[OutputGroupInfo].ptxas
                for dep in ctx.attr.deps
                if OutputGroupInfo in dep and hasattr(dep[OutputGroupInfo], "ptxas")
            ],
        )),
    ]

cuda_library = rule(
    implementation = _cuda_library_impl,
    attrs = {
        "srcs": attr.label_list(allow_files = [".cc", ".cu"]),
        "hdrs": attr.label_list(allow_files = [".h", ".cuh", ".cu"]),
        # Dependencies of the .cc files among `srcs` only.
        "included": attr.label_list(allow_files = [".cc"]),
        "deps": attr.label_list(providers = [CcInfo]),
        "_cc_toolchain": attr.label(default = Label("@bazel_tools//tools/cpp:current_cc_toolchain")),
    },
    fragments = ["cpp"],
    incompatible_use_toolchain_transition = True,
    toolchains = ["@bazel_tools//tools/cpp:toolchain_type"],
)

def _compile_to_ptx(ctx, toolchain, context, source):
    ptx, _ = _nvcc(ctx, toolchain, context, source, ".ptx", "-ptx", ["-arch=compute_" + CUDA_ARCHS[-1]])
    return ptx

def _parse(ctx, toolchain, context, source):
    """Reads a C++ file of tests. Returns an empty file."""
    result = ctx.actions.declare_file("_cuda/%s/%s.parsed" % (ctx.label.name, source.basename))
    compiler, options = compiler_command(ctx, toolchain, context, SOK_COPTS + TEST_COPTS)
    ctx.actions.run_shell(
        command = '"$@" && touch ' + result.path,
        arguments = [compiler] + options + ["-fsyntax-only", source.path],
        inputs = depset([source], transitive = [context.headers, toolchain.all_files]),
        outputs = [result],
        mnemonic = "CudaParse",
        progress_message = "Parsing %s for devices" % source.short_path,
        use_default_shell_env = True,
    )
    return result

def _cuda_check_impl(ctx):
    toolchain = find_cpp_toolchain(ctx)
    context = _compilation_context(ctx)
    results = []
    for source in ctx.files.srcs:
        check = _compile_to_ptx if source.extension == "cu" else _parse
        results.append(check(ctx, toolchain, context, source))
    return [DefaultInfo(files = depset(results))]

# Tests for devices on a machine without one: g++ parses .cc files, with the prelude of tests, and nvcc compiles kernels to
# PTX of the last architecture. That takes a third of the time to compile and link them.
cuda_check = rule(
    implementation = _cuda_check_impl,
    attrs = {
        "srcs": attr.label_list(allow_files = [".cc", ".cu"]),
        "hdrs": attr.label_list(allow_files = [".h", ".cuh", ".cc", ".cu"]),
        "deps": attr.label_list(providers = [CcInfo]),
        "_cc_toolchain": attr.label(default = Label("@bazel_tools//tools/cpp:current_cc_toolchain")),
    },
    fragments = ["cpp"],
    incompatible_use_toolchain_transition = True,
    toolchains = ["@bazel_tools//tools/cpp:toolchain_type"],
)
