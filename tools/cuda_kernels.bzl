"""cuda_kernels, cuda_test and cuda_program: one list of sources, for GPUs by nvcc and for the host by g++.

See cuda/README.md. What is built for the host needs no CUDA toolkit, so it exists everywhere.
"""

load("@cuda_toolkit//:cuda.bzl", "CUDA_DEVICE", "CUDA_HOME")
load("//tools:compile_together.bzl", "compile_together", "including")
load("//tools:copts.bzl", "SOK_COPTS")
load("//tools:cuda_library.bzl", "cuda_check", "cuda_library")

# Kernels report every memory access to the engine (cuda/on_host/engine/access_hooks.cc). Builds with a
# sanitizer use its own options for that.
_ACCESS_COPTS = [
    "-fsanitize=thread",
    "--param=tsan-distinguish-volatile=1",
    "--param=tsan-instrument-func-entry-exit=0",
]
_BOUNDS_COPTS = ["-fsanitize=bounds-strict,alignment"]

# -fstack-clash-protection: large frames must not skip the page below a thread's stack. -O1: at a higher
# level, the largest file takes twice as long to compile, and tests are no faster.
_ON_HOST_COPTS = SOK_COPTS + ["-O1", "-Wno-tsan", "-fstack-clash-protection"] + select({
    "//cuda/on_host:asan": ["-fsanitize=bounds-strict"],
    "//cuda/on_host:tsan": _BOUNDS_COPTS,
    "//conditions:default": _ACCESS_COPTS + _BOUNDS_COPTS,
})

# Tags of programs for devices, and of targets that only these link: without a device, they are built only if
# they are named, as by tools/gpu/programs.sh.
_DEVICE_TAGS = [] if CUDA_DEVICE else ["manual"]
_DEVICE_DEPS = ["@cuda_toolkit//:headers", "@cuda_toolkit//:runtime"]

def _compiled_files(name, sources, alone):
    """Which .cu files to compile at once: a list of (name of the unit, sources)."""
    together = [source for source in sources if source not in alone]
    units = [(source[:-len(".cu")].replace("/", "_"), [source]) for source in sources if source in alone]
    if len(together) == 1:
        units.append((together[0][:-len(".cu")].replace("/", "_"), together))
    elif together:
        units.append((name, together))
    return units

def cuda_kernels(name, srcs, hdrs = [], deps = [], kernels = [], alone = [], testonly = False, visibility = None):
    """Kernels and their launchers: `name` by nvcc, if there is a toolkit; `name`_on_host by g++, always.

    The .cu files are compiled as one, and the .cc files some at a time, because most of the time that a file takes goes
    into headers, four times each with nvcc. So their names in anonymous namespaces must differ.

    Args:
      name: of the target for devices.
      srcs: .cu files of this package, which launch kernels by cudaLaunchKernelEx, and .cc files with what needs
        neither kernels nor nvcc.
      hdrs: headers, for both.
      deps: C++ libraries, for both. Not the toolkit: it is added.
      kernels: other cuda_kernels.
      alone: those of the .cu files that take long, each compiled by itself.
      testonly: as of any rule.
      visibility: as of any rule.
    """
    cu_srcs = [source for source in srcs if source.endswith(".cu")]
    cc_srcs = [source for source in srcs if not source.endswith(".cu")]
    units = _compiled_files(name, cu_srcs, alone)
    host_code = compile_together(name + "_host", cc_srcs)
    if CUDA_HOME:
        cuda_library(
            name = name,
            testonly = testonly,
            srcs = host_code + [
                including("%s_%s_cu" % (name, unit), "_units/%s/%s.cu" % (name, unit), sources)
                for unit, sources in units
            ],
            hdrs = hdrs + cu_srcs,
            included = cc_srcs,
            tags = _DEVICE_TAGS if testonly else [],
            visibility = visibility,
            deps = deps + kernels + _DEVICE_DEPS,
        )
    host_deps = deps + [kernel + "_on_host" for kernel in kernels] + ["//cuda/on_host"]

    # Host-only code needs no instrumentation: it cannot touch device memory.
    if cc_srcs:
        native.cc_library(
            name = name + "_host_code",
            testonly = testonly,
            srcs = host_code,
            hdrs = hdrs,
            copts = SOK_COPTS,
            textual_hdrs = cc_srcs,
            alwayslink = True,
            deps = host_deps,
        )
        host_deps = host_deps + [":%s_host_code" % name]
    native.cc_library(
        name = name + "_on_host",
        testonly = testonly,
        srcs = [
            including("%s_%s_cu_on_host" % (name, unit), "_on_host/%s/%s.cu.cc" % (name, unit), sources)
            for unit, sources in units
        ],
        hdrs = hdrs,
        copts = _ON_HOST_COPTS,
        textual_hdrs = cu_srcs,
        visibility = visibility,
        alwayslink = True,
        deps = host_deps,
    )

def cuda_test(
        name,
        srcs,
        hdrs = [],
        deps = [],
        kernels = [],
        seeds = 20,
        size = "small",
        tags = [],
        data = [],
        in_order = True,
        sanitized_seeds = 5,
        thread_sanitizer = True,
        work = None):
    """Tests of kernels (GoogleTest): on the host in order, and with random schedules.

    `name` runs in order; NAME_seeds_test with `seeds` schedules, fewer under sanitizers. NAME is `name` without
    "_test". The tests without a main function are NAME_test_on_host and, by nvcc if there is a toolkit,
    NAME_test_on_device, for cuda_program: on a device they run in //cuda/programs:engine_test. Where there is a toolkit
    and no device, NAME_test_checked is built in its place.

    Args:
      name: ends in "_test".
      srcs: .cc and .cu files; .cu files may hold kernels. The .cc files are compiled together, so names in their
        anonymous namespaces must differ.
      hdrs: headers of the test.
      deps: C++ libraries of the test, for host and device.
      kernels: the cuda_kernels under test.
      seeds: how many schedules.
      size: of the test with random schedules and the test in order.
      tags: of all tests.
      data: files that the test reads.
      in_order: whether `name` runs with the others. Where it takes long, the schedules may do; `name` is there
        to be run alone.
      sanitized_seeds: at most how many schedules under AddressSanitizer; ThreadSanitizer has 3 at most.
      thread_sanitizer: whether ThreadSanitizer runs the schedules too. It finds nothing if the kernels' threads share
        no memory.
      work: limits long tests, instead of a smaller number of seeds: the most steps of the scheduler that the runs of a
        test take together, by build: "plain", "asan" and "tsan". A test runs with as many of the `seeds` as the limit
        allows, at least one.
    """
    stem = name[:-len("_test")]
    cc_srcs = [source for source in srcs if not source.endswith(".cu")]
    cu_srcs = [source for source in srcs if source.endswith(".cu")]
    if cu_srcs:
        cuda_kernels(
            name = stem + "_kernels",
            testonly = True,
            srcs = cu_srcs,
            hdrs = hdrs,
            kernels = kernels,
            deps = deps + ["@gtest//:gtest"],
        )
        kernels = kernels + [":%s_kernels" % stem]

    # The files' names end as those that .bazelrc compiles with the options of tests.
    host_code = compile_together(name, cc_srcs, suffix = "_test") if len(cc_srcs) > 1 else cc_srcs
    included = cc_srcs if len(cc_srcs) > 1 else []
    native.cc_library(
        name = stem + "_test_on_host",
        testonly = True,
        srcs = host_code + (hdrs if cc_srcs else []),
        copts = SOK_COPTS,
        textual_hdrs = included,
        alwayslink = True,
        deps = deps + [kernel + "_on_host" for kernel in kernels] + ["//cuda/on_host", "@gtest//:gtest"],
    )
    native.cc_test(
        name = name,
        size = size,
        data = data,
        tags = tags + ([] if in_order else ["manual"]),
        deps = [":%s_test_on_host" % stem, "//cuda/on_host:test_main"],
    )
    if work:
        plain, asan, tsan = [["--seeds=%d" % seeds, "--work=%d" % w] for w in [work["plain"], work["asan"], work["tsan"]]]
    else:
        sanitized_seeds = min(seeds, sanitized_seeds)
        plain, asan, tsan = [["--seeds=%d" % n] for n in [seeds, sanitized_seeds, min(sanitized_seeds, 3)]]
    native.cc_test(
        name = stem + "_seeds_test",
        size = size,
        args = select({
            "//cuda/on_host:asan": asan,
            "//cuda/on_host:tsan": tsan,
            "//conditions:default": plain,
        }),
        data = data,
        # Under ThreadSanitizer too.
        tags = tags + (["parallel"] if thread_sanitizer else []),
        deps = [":%s_test_on_host" % stem, "//cuda/on_host:test_main"],
    )
    if CUDA_HOME:
        native.cc_library(
            name = stem + "_test_on_device",
            testonly = True,
            srcs = host_code + (hdrs if cc_srcs else []),
            copts = SOK_COPTS,
            tags = _DEVICE_TAGS,
            textual_hdrs = included,
            alwayslink = True,
            deps = deps + kernels + _DEVICE_DEPS + ["@gtest//:gtest"],
        )
    if CUDA_HOME and not CUDA_DEVICE:
        cuda_check(
            name = stem + "_test_checked",
            testonly = True,
            srcs = cu_srcs + host_code,
            hdrs = hdrs + included,
            deps = deps + kernels + _DEVICE_DEPS + ["@gtest//:gtest"],
        )

def cuda_program(name, srcs, hdrs = [], deps = [], kernels = [], tests = [], is_test = False, on_host = {}, on_device = {}):
    """A program of C++ sources: `name` for devices, if there is a toolkit; `name`_on_host, always.

    Without a device, `name` is tagged "manual".

    The machine that runs `name` needs only a driver: the CUDA runtime and the C++ libraries are in the program.

    Args:
      name: of the program for devices.
      srcs: .cc files, among them the one with main().
      hdrs: headers of the program.
      deps: C++ libraries, for both.
      kernels: cuda_kernels that the program calls.
      tests: labels of cuda_tests whose tests are linked.
      is_test: whether both are tests, of GoogleTest; else they are binaries.
      on_host: further attributes of the program for the host.
      on_device: further attributes of the program for devices.
    """
    rule = native.cc_test if is_test else native.cc_binary
    rule(
        name = name + "_on_host",
        srcs = srcs + hdrs,
        copts = SOK_COPTS,
        deps = deps + [kernel + "_on_host" for kernel in kernels] +
               [test + "_on_host" for test in tests] + ["//cuda/on_host"],
        **on_host
    )
    if CUDA_HOME:
        rule(
            name = name,
            srcs = srcs + hdrs,
            copts = SOK_COPTS,
            linkopts = ["-static-libstdc++", "-static-libgcc"],
            deps = deps + kernels + [test + "_on_device" for test in tests] + _DEVICE_DEPS,
            **dict(on_device, tags = on_device.get("tags", []) + _DEVICE_TAGS)
        )
