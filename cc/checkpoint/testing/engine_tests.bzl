"""The tests of checkpoints that go through an engine, for each engine.

The files are compiled once for all engines. A program that has their tests also links a library that defines
EngineOfTests() of cc/engine/contract/engine_case.h.
"""

load("//tools:compile_together.bzl", "compile_together")
load("//tools:copts.bzl", "SOK_COPTS")

# Files of //cc/checkpoint by program, whose name ends in "_test".
_PROGRAMS = {
    "state": [
        "checkpoint_places_test.cc",
        "deltas_test.cc",
        "record_types_test.cc",
        "round_trip_test.cc",
        "table_replacement_test.cc",
    ],
    "files": [
        "bloom_blocks_test.cc",
        "faults_test.cc",
        "files_test.cc",
        "mapped_tables_test.cc",
        "raw_files_test.cc",
    ],
    # Counts all memory of its program, which can therefore contain no other test, and creates a table that is too
    # large for kernels on the host.
    "memory": ["memory_test.cc"],
    # ThreadSanitizer runs it.
    "threads": ["threads_test.cc"],
}

MEMORY_TEST = "memory"

ENGINE_TESTS = [test for tests in _PROGRAMS.values() for test in tests]

def checkpoint_test_libraries():
    """Compiles the tests: for //cc/checkpoint alone."""
    for name, tests in _PROGRAMS.items():
        native.cc_library(
            name = name + "_of_engines",
            testonly = True,
            # The files' names end as those that .bazelrc compiles with the options of tests.
            srcs = compile_together(name + "_of_engines", tests, suffix = "_test"),
            copts = SOK_COPTS,
            textual_hdrs = tests,
            # Tests register themselves when they are loaded.
            alwayslink = True,
            deps = [
                ":checkpoint",
                ":memory_saves",
                ":saved_ranks",
                ":test_files",
                "//cc/base",
                "//cc/base:test_ids",
                "//cc/cpu/optimizers",
                "//cc/cpu/optimizers:optimizers_reference",
                "//cc/cpu/table:bloom_counters",
                "@gtest//:gtest",
            ],
        )

def _library(name):
    return "//cc/checkpoint:%s_of_engines" % name

# For one program with all tests but MEMORY_TEST.
CHECKPOINT_TEST_LIBRARIES = [_library(name) for name in _PROGRAMS if name != MEMORY_TEST]

def checkpoint_engine_tests(
        engine_of_tests,
        prefix = "",
        main = "@gtest//:gtest_main",
        exclude = [],
        size = "medium",
        tags = []):
    """The tests for one engine, as a few programs.

    Args:
      engine_of_tests: a library that defines EngineOfTests().
      prefix: of the programs' names.
      main: the library with the main function.
      exclude: names of programs that this engine does not have: MEMORY_TEST.
      size: of the tests.
      tags: of the tests.
    """
    for name in _PROGRAMS:
        if name in exclude:
            continue
        native.cc_test(
            name = "%s%s_test" % (prefix, name),
            size = size,
            # Runs under ThreadSanitizer.
            tags = tags + (["parallel"] if name == "threads" else []),
            # In linking order: the engine comes after the tests that need it.
            deps = [_library(name), engine_of_tests, main],
        )
