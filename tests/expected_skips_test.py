"""A skip that is not expected fails: see expected_skips."""

from __future__ import annotations

import os
import pathlib
import xml.etree.ElementTree as ElementTree

import pytest
import tensorflow as tf

import expected_skips


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        ("needs a reason", False),
        ("", False),
        ("root reads everything", os.geteuid() == 0),
        ("not only root reads everything", False),
        ("this TensorFlow has no Estimator", not hasattr(tf, "estimator")),
        (f"TensorFlow {tf.__version__} has no Estimator", not hasattr(tf, "estimator")),
    ],
)
def test_the_reason_decides(reason, expected):
    assert expected_skips.is_expected(reason) == expected


def outcomes(tmp_path: pathlib.Path, code: str) -> tuple[int, int, dict[str, str]]:
    """Runs pytest with the plugin; returns (exit status, number of files skipped completely, outcomes)."""
    file, report = tmp_path / f"{tmp_path.name}_test.py", tmp_path / "report.xml"
    file.write_text(f"import pytest\n{code}")
    plugin = expected_skips.Plugin()
    options = ["-p", "no:cacheprovider", "-q", "--rootdir", str(tmp_path), f"--junitxml={report}"]
    status = pytest.main([*options, str(file)], plugins=[plugin])
    cases = ElementTree.parse(report).getroot().iter("testcase")
    return (
        int(status),
        plugin.modules,
        {case.get("name"): case[0].tag if len(case) else "passed" for case in cases},
    )


def test_skips_of_tests(tmp_path, monkeypatch):
    monkeypatch.setitem(expected_skips._EXPECTED, "as agreed", lambda: True)
    status, _, cases = outcomes(
        tmp_path,
        """
@pytest.fixture
def fixture(): pytest.skip("fixture")
@pytest.mark.skip(reason="mark")
def test_mark(): pass
@pytest.mark.skipif(True, reason="as agreed")
def test_agreed(): pass
def test_body(): pytest.skip("body")
def test_fixture(fixture): pass
def test_import(): pytest.importorskip("no_such_module")
@pytest.mark.xfail
def test_known(): assert False
def test_passes(): pass
""",
    )
    assert status == pytest.ExitCode.TESTS_FAILED
    assert cases == {
        "test_mark": "error",
        "test_agreed": "skipped",
        "test_body": "failure",
        "test_fixture": "error",
        "test_import": "failure",
        "test_known": "skipped",
        "test_passes": "passed",
    }


@pytest.mark.parametrize("expected", [True, False])
def test_a_file_that_skips_itself(tmp_path, monkeypatch, expected):
    monkeypatch.setitem(expected_skips._EXPECTED, "the whole file", lambda: expected)
    status, modules, _ = outcomes(tmp_path, "pytest.skip('the whole file', allow_module_level=True)")
    assert modules == expected
    assert status == (pytest.ExitCode.NO_TESTS_COLLECTED if expected else pytest.ExitCode.INTERRUPTED)
