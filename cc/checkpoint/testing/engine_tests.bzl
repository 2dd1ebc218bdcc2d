"""The tests of checkpoints that go through an engine, for each engine."""

load("//tools:copts.bzl", "SOK_COPTS")

# Files of //cc/checkpoint.
ENGINE_TESTS = [
    "faults_test.cc",
    "files_test.cc",
    "links_test.cc",
    "memory_test.cc",
    "placed_tables_test.cc",
    "raw_rows_test.cc",
    "round_trip_test.cc",
    "table_replacement_test.cc",
    "threads_test.cc",
]

def checkpoint_engine_tests(
        engine_of_tests,
        prefix = "",
        main = "@gtest//:gtest_main",
        exclude = [],
        size = "medium",
        tags = []):
    """One test of each file for one engine.

    Args:
      engine_of_tests: a library that defines EngineOfTests() of cc/engine/contract/engine_of_tests.h.
      prefix: of the tests' names.
      main: the library with the main function.
      exclude: files of ENGINE_TESTS that are no tests of this engine.
      size: of the tests.
      tags: of the tests.
    """
    for test in ENGINE_TESTS:
        if test in exclude:
            continue
        native.cc_test(
            name = prefix + test[:-len(".cc")],
            size = size,
            srcs = ["//cc/checkpoint:" + test],
            copts = SOK_COPTS,
            # What TSan runs.
            tags = tags + (["parallel"] if test == "threads_test.cc" else []),
            deps = [
                engine_of_tests,
                main,
                "//cc/base",
                "//cc/base:test_ids",
                "//cc/checkpoint",
                "//cc/checkpoint:saved_ranks",
                "//cc/checkpoint:test_files",
                "//cc/optimizers",
                "//cc/optimizers:optimizers_reference",
                "@gtest//:gtest",
            ],
        )
