"""examples/deeprec/feature_columns.py trains on records that it generates and on given records."""

import runpy

import pytest

from example_support import EXAMPLES, run_deeprec


def test_it_learns():
    ranks, first, last = run_deeprec("feature_columns.py", "--steps", "150")
    assert ranks == 1
    assert first > 0.5 and last < 0.5


@pytest.mark.parametrize("size", [1, 2])
def test_records_can_be_given(tmp_path, size):
    program = runpy.run_path(str(EXAMPLES / "deeprec" / "feature_columns.py"))
    program["write_records"](str(tmp_path / "samples.tfrecord"), samples=600)
    ranks, first, last = run_deeprec(
        "feature_columns.py", "--data_dir", str(tmp_path), "--steps", "100", size=size
    )
    assert ranks == size
    assert last < first - 0.1
