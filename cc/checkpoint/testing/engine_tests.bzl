"""The tests of checkpoints that go through an engine, for each engine.

Each file is compiled once. A program that has it also links a library that defines EngineOfTests() of
cc/engine/contract/engine_of_tests.h.
"""

load("//tools:copts.bzl", "SOK_COPTS")

# Files of //cc/checkpoint.
ENGINE_TESTS = [
    "bloom_blocks_test.cc",
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

# Counts all memory of its program, which can therefore contain no other test, and creates a table that is too
# large for kernels on the host.
MEMORY_TEST = "memory_test.cc"

def _library(test):
    return "%s_of_engines" % test[:-len(".cc")]

def checkpoint_test_libraries():
    """Compiles the tests: for //cc/checkpoint alone."""
    for test in ENGINE_TESTS:
        native.cc_library(
            name = _library(test),
            testonly = True,
            srcs = [test],
            copts = SOK_COPTS,
            # Tests register themselves when they are loaded.
            alwayslink = True,
            deps = [
                ":checkpoint",
                ":saved_ranks",
                ":test_files",
                "//cc/base",
                "//cc/base:test_ids",
                "//cc/optimizers",
                "//cc/optimizers:optimizers_reference",
                "//cc/table:bloom_counters",
                "@gtest//:gtest",
            ],
        )

# For one program with the tests of all files but MEMORY_TEST.
CHECKPOINT_TEST_LIBRARIES = ["//cc/checkpoint:" + _library(test) for test in ENGINE_TESTS if test != MEMORY_TEST]

def checkpoint_engine_tests(
        engine_of_tests,
        prefix = "",
        main = "@gtest//:gtest_main",
        exclude = [],
        size = "medium",
        tags = []):
    """One test of each file for one engine.

    Args:
      engine_of_tests: a library that defines EngineOfTests().
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
            # Runs under ThreadSanitizer.
            tags = tags + (["parallel"] if test == "threads_test.cc" else []),
            # In linking order: the engine comes after the tests that need it.
            deps = ["//cc/checkpoint:" + _library(test), engine_of_tests, main],
        )
