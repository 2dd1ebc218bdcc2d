"""The check that engine_test has every cuda_test: what is missing, what is stale, how labels are written."""

import pytest

import check_engine_tests

PROGRAMS = """
load("//tools:cuda_kernels.bzl", "cuda_program", "cuda_test")
_NAMES = {"own": ["//a:kernels"]}
[cuda_test(name = name + "_test", kernels = kernels + COPTS) for name, kernels in _NAMES.items()]
[cc_library(name = "main") for _ in [CUDA_HOME] if CUDA_HOME]
cuda_program(name = "other", tests = ["//a:b_test"])
cuda_program(name = "engine_test", tests = [":%s_test" % name for name in _NAMES] + TESTS)
"""
PACKAGE = """
cc_library(name = "kernels", copts = ["-O2"] + select({}))
cuda_test(name = "a_test")
[cuda_test(name = test[:-len(".cc")]) for test in glob(["*_test.cc"], exclude = ["c_*"])]
"""


@pytest.fixture
def differences(tmp_path):
    """Writes a repository whose engine_test has `tests`, and returns what the check finds there."""

    def check(tests, exceptions=None):
        for folder, build in {"programs": PROGRAMS.replace("TESTS", repr(tests)), "a": PACKAGE}.items():
            (tmp_path / folder).mkdir()
            (tmp_path / folder / "BUILD").write_text(build)
        for name in ("b_test.cc", "c_test.cc"):
            (tmp_path / "a" / name).write_text("")
        (tmp_path / "bazel-out").mkdir()
        (tmp_path / "bazel-out" / "BUILD").write_text('cuda_test(name = "copy_test")')
        return list(check_engine_tests.find_differences(tmp_path, exceptions or {}))

    return check


def test_all_tests_pass(differences):
    assert differences(["//a:b_test", "//a:a_test"]) == []


def test_the_name_of_a_package_is_a_label(differences):
    (message,) = differences(["//a", "//a:b_test"])
    assert "//a:a_test is not among" in message


@pytest.mark.parametrize("missing", ["a_test", "b_test"])
def test_a_missing_test_is_found(differences, missing):
    (message,) = differences([f"//a:{name}" for name in ("a_test", "b_test") if name != missing])
    assert message.startswith(f"//a:{missing} is not among the tests of engine_test")


def test_an_exception_may_be_missing(differences):
    assert differences(["//a:a_test"], {"//a:b_test": "reason"}) == []


def test_stale_exceptions_are_found(differences):
    messages = differences(["//a:a_test", "//a:b_test"], {"//a:b_test": "linked", "//a:gone_test": "gone"})
    assert [message.rpartition(": ")[2] for message in messages] == ["//a:b_test", "//a:gone_test"]


def test_a_repository_without_the_program_is_an_error(tmp_path):
    assert "engine_test" in next(check_engine_tests.find_differences(tmp_path))
