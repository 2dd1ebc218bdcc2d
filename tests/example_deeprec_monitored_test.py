"""examples/deeprec/monitored_criteo.py trains, and continues from its checkpoints."""

import saved_files
from example_support import run_deeprec, write_criteo


def test_a_run_goes_on_where_the_last_one_ended(tmp_path):
    """Two ranks train, and one goes on."""
    flags = ["--data_dir", str(write_criteo(tmp_path / "data", lines=400)), "--batch_size", "64"]
    flags += ["--checkpoint_dir", str(tmp_path / "checkpoints")]
    ranks, first, last = run_deeprec("monitored_criteo.py", *flags, "--steps", "120", size=2)
    assert ranks == 2
    assert first > 0.5 and last < first - 0.1
    assert saved_files.data_files(tmp_path / "checkpoints" / "model.ckpt-120")
    ranks, at_first, at_end = run_deeprec("monitored_criteo.py", *flags, "--steps", "160")
    assert ranks == 1
    assert at_first < first - 0.1 and at_end < last
    assert saved_files.data_files(tmp_path / "checkpoints" / "model.ckpt-160")


def test_it_generates_data():
    _, first, last = run_deeprec("monitored_criteo.py", "--steps", "150")
    assert first > 0.5 and last < first - 0.1
