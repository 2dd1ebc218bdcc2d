"""Programs of examples/deeprec on ranks, on records that they generate and on given ones.

example_deeprec_zoo_test has what each program of the zoo learns and shows, on one rank.
"""

import re

import pytest
import tensorflow as tf

import saved_files
from example_support import run_program, write_criteo, write_movielens


@pytest.mark.parametrize("size", [1, 2])
def test_group_lookups(size):
    printed = run_program("deeprec/group_lookup.py", "--steps", "250", size=size)
    found = re.search(rf"^ranks {size}, loss (\S+) at first, (\S+) at last$", printed, re.MULTILINE)
    assert float(found[1]) > 0.6 and float(found[2]) < 0.58


def test_a_monitored_run_goes_on_where_the_last_one_ended(tmp_path):
    """Two ranks train, and one goes on.

    With all of Criteo's columns, by the collective strategy, in graphs that TensorFlow optimizes.
    """
    data = write_criteo(tmp_path / "data", lines=400)
    flags = ["--data_location", str(data), "--batch_size", "32", "--embedding_dim", "8"]
    flags += ["--checkpoint", str(tmp_path)]
    printed = run_program("deeprec/zoo/dlrm.py", *flags, "--steps", "20", size=2)
    assert "ranks 2, step 20, loss " in printed
    assert saved_files.data_files(tmp_path / "model.ckpt-20")
    printed = run_program("deeprec/zoo/dlrm.py", *flags, "--steps", "25")
    assert "ranks 1, step 25, loss " in printed
    assert saved_files.data_files(tmp_path / "model.ckpt-25")


@pytest.mark.skipif(not hasattr(tf, "estimator"), reason="this TensorFlow has no Estimator")
def test_an_estimator_on_ranks_learns_the_taste_in_given_files(tmp_path):
    flags = ["--data_location", str(write_movielens(tmp_path / "data", ratings=600)), "--steps", "40"]
    flags += ["--checkpoint", str(tmp_path / "model"), "--batch_size", "32", "--embedding_dim", "8"]
    printed = run_program("deeprec/zoo/esmm.py", *flags, size=2)
    assert "ranks 2, step 40, loss " in printed
    assert float(re.search(r"AUC of liked (\S+)", printed)[1]) > 0.95
    assert saved_files.data_files(tmp_path / "model" / "model.ckpt-40")
