"""examples/deeprec/feature_columns.py trains on records that it generates and on given records."""

import runpy

from example_support import EXAMPLES, run_deeprec


def test_it_learns():
    ranks, first, last = run_deeprec("feature_columns.py", "--steps", "150")
    assert ranks == 1
    assert first > 0.5 and last < 0.5


def test_ranks_read_given_records(tmp_path):
    program = runpy.run_path(str(EXAMPLES / "deeprec" / "feature_columns.py"))
    program["write_records"](str(tmp_path / "samples.tfrecord"), samples=600)
    ranks, first, last = run_deeprec(
        "feature_columns.py", "--data_dir", str(tmp_path), "--steps", "100", size=2
    )
    assert ranks == 2
    assert last < first - 0.1
