"""cuda_library: .cu files compiled by nvcc, for the `deps` of cc_library, cc_binary and cc_test.

A .cu file defines launchers that take raw pointers and a stream. It includes no TensorFlow header: with these, a
file takes most of a minute to compile, and some versions of nvcc cannot compile those of some TensorFlow versions.
"""

load("@bazel_tools//tools/cpp:toolchain_utils.bzl", "find_cpp_toolchain")
load("@cuda_toolkit//:cuda.bzl", "CUDA_ARCHS", "CUDA_HOME")

_OPTIONS = [
    "-c",
    "-O3",
    "-std=c++17",
    # No fused multiply-add, as in C++ code (copts.bzl), so that CPU and GPU compute the same bits.
    "--fmad=false",
    "--expt-relaxed-constexpr",
    "--expt-extended-lambda",
    "-Werror=all-warnings",
    "-Xcompiler=-fPIC,-fvisibility=hidden,-Wall,-ffp-contract=off",
]

def _architectures():
    """Machine code for every architecture, and PTX of the last one for newer devices."""
    codes = [("compute_" + arch, "sm_" + arch) for arch in CUDA_ARCHS]
    codes += [("compute_" + arch, "compute_" + arch) for arch in CUDA_ARCHS[-1:]]
    return ["-gencode=arch=%s,code=%s" % pair for pair in codes]

def _compile(ctx, toolchain, context, source):
    result = ctx.actions.declare_file("_cuda/%s/%s.o" % (ctx.label.name, source.basename))
    args = ctx.actions.args()
    args.add_all(_OPTIONS + _architectures())
    args.add("-ccbin", toolchain.compiler_executable)
    args.add_all(ctx.attr.copts)
    args.add_all(context.defines, format_each = "-D%s")
    args.add_all(context.quote_includes, before_each = "-I")
    args.add_all(context.includes, before_each = "-I")
    args.add_all(context.system_includes, before_each = "-isystem")
    args.add("-x", "cu")
    args.add(source)
    args.add("-o", result)
    ctx.actions.run(
        executable = CUDA_HOME + "/bin/nvcc",
        arguments = [args],
        inputs = depset([source], transitive = [context.headers, toolchain.all_files]),
        outputs = [result],
        mnemonic = "CudaCompile",
        progress_message = "Compiling %s with nvcc" % source.short_path,
        use_default_shell_env = True,
    )
    return result

def _cuda_library_impl(ctx):
    toolchain = find_cpp_toolchain(ctx)
    features = cc_common.configure_features(
        ctx = ctx,
        cc_toolchain = toolchain,
        requested_features = ctx.features,
        unsupported_features = ctx.disabled_features,
    )
    own = CcInfo(compilation_context = cc_common.create_compilation_context(
        headers = depset(ctx.files.hdrs),
        quote_includes = depset([".", ctx.bin_dir.path]),
    ))
    deps = [dep[CcInfo] for dep in ctx.attr.deps]
    context = cc_common.merge_cc_infos(direct_cc_infos = [own], cc_infos = deps).compilation_context

    objects = [_compile(ctx, toolchain, context, source) for source in ctx.files.srcs]
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
    ]

cuda_library = rule(
    implementation = _cuda_library_impl,
    attrs = {
        "srcs": attr.label_list(allow_files = [".cu"]),
        "hdrs": attr.label_list(allow_files = [".h", ".cuh"]),
        "deps": attr.label_list(providers = [CcInfo]),
        "copts": attr.string_list(),
        "_cc_toolchain": attr.label(default = Label("@bazel_tools//tools/cpp:current_cc_toolchain")),
    },
    fragments = ["cpp"],
    incompatible_use_toolchain_transition = True,
    toolchains = ["@bazel_tools//tools/cpp:toolchain_type"],
)
