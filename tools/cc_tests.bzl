"""cc_tests: the C++ tests of a package in one or two programs, compiled together."""

load("//tools:compile_together.bzl", "compile_together")
load("//tools:copts.bzl", "SOK_COPTS")

def cc_tests(name, srcs, deps, parallel = []):
    """Files of GoogleTest as programs: `name`_test and, of the files that start threads, `name`_parallel_test.

    Most of the time that a small file takes to compile goes into headers, templates and linking. So several files are
    compiled as one, and names in the anonymous namespaces of a program's files must differ. To run one file's tests, name their suites:
    `bazel test //cc/cpu/table:table_test --test_filter='RowDirectoryTest.*'`.

    Args:
      name: begins the names of the programs.
      srcs: .cc files of this package.
      deps: of all files, besides GoogleTest.
      parallel: those of `srcs` that start threads. ThreadSanitizer runs them too.
    """
    _program(name + "_test", [source for source in srcs if source not in parallel], deps, [])
    _program(name + "_parallel_test", [source for source in srcs if source in parallel], deps, ["parallel"])

def _program(name, srcs, deps, tags):
    if not srcs:
        return
    native.cc_library(
        name = name + "_sources",
        testonly = True,
        textual_hdrs = srcs,
    )
    native.cc_test(
        name = name,
        # On a busy machine, a program takes minutes under ThreadSanitizer.
        size = "large",
        # The files' names end as those that .bazelrc compiles with the options of tests.
        srcs = compile_together(name, srcs, most = 16, suffix = "_test"),
        copts = SOK_COPTS,
        tags = tags,
        deps = deps + [
            ":%s_sources" % name,
            "@gtest//:gtest_main",
        ],
    )
