"""examples/deeprec/zoo on two ranks, by the collective strategy."""

import saved_files
from example_support import run_program

FLAGS = ["--samples", "600", "--steps", "20", "--batch_size", "32", "--embedding_dim", "8"]


def test_two_ranks_train_together(tmp_path):
    printed = run_program("deeprec/zoo/dlrm.py", *FLAGS, "--checkpoint", str(tmp_path), size=2)
    assert "ranks 2, step 20, loss " in printed
    assert saved_files.data_files(tmp_path / "model.ckpt-20")
