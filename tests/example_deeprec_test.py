"""The programs of examples/deeprec learn, on records that they generate and on given ones, on any ranks."""

import runpy

import pytest
import tensorflow as tf

import saved_files
from example_support import EXAMPLES, run_deeprec, run_program, write_criteo, write_movielens


def test_group_lookups():
    ranks, first, last = run_deeprec("group_lookup.py", "--steps", "250")
    assert ranks == 1 and first > 0.6 and last < 0.58


def test_feature_columns():
    ranks, first, last = run_deeprec("feature_columns.py", "--steps", "150")
    assert ranks == 1 and first > 0.5 and last < 0.5


def test_feature_columns_on_ranks_that_read_given_records(tmp_path):
    program = runpy.run_path(str(EXAMPLES / "deeprec" / "feature_columns.py"))
    program["write_records"](str(tmp_path / "samples.tfrecord"), samples=600)
    flags = ["--data_dir", str(tmp_path), "--steps", "100"]
    ranks, first, last = run_deeprec("feature_columns.py", *flags, size=2)
    assert ranks == 2 and last < first - 0.1


def test_a_monitored_run_goes_on_where_the_last_one_ended(tmp_path):
    """Two ranks train, and one goes on."""
    flags = ["--data_dir", str(write_criteo(tmp_path / "data", lines=400)), "--batch_size", "64"]
    flags += ["--checkpoint_dir", str(tmp_path / "checkpoints")]
    ranks, first, last = run_deeprec("monitored_criteo.py", *flags, "--steps", "120", size=2)
    assert ranks == 2 and first > 0.5 and last < first - 0.1
    assert saved_files.data_files(tmp_path / "checkpoints" / "model.ckpt-120")
    ranks, at_first, at_end = run_deeprec("monitored_criteo.py", *flags, "--steps", "160")
    assert ranks == 1 and at_first < first - 0.1 and at_end < last
    assert saved_files.data_files(tmp_path / "checkpoints" / "model.ckpt-160")


def test_a_monitored_run_on_generated_data():
    _, first, last = run_deeprec("monitored_criteo.py", "--steps", "150")
    assert first > 0.5 and last < first - 0.1


has_estimator = pytest.mark.skipif(not hasattr(tf, "estimator"), reason="this TensorFlow has no Estimator")


@has_estimator
def test_an_estimator_on_ranks_learns_the_taste_in_given_files(tmp_path):
    flags = ["--data_dir", str(write_movielens(tmp_path / "data", ratings=600)), "--steps", "60"]
    flags += ["--model_dir", str(tmp_path / "model"), "--batch_size", "64"]
    ranks, first, last = run_deeprec("estimator_movielens.py", *flags, size=2)
    assert ranks == 2 and first < 0.8 and last > 0.95
    assert saved_files.data_files(tmp_path / "model" / "model.ckpt-60")


@has_estimator
def test_an_estimator_on_generated_data():
    flags = ["--steps", "200", "--batch_size", "256"]
    ranks, first, last = run_deeprec("estimator_movielens.py", *flags)
    assert ranks == 1 and first < 0.7 and last > 0.9


def test_a_program_of_the_zoo_on_two_ranks(tmp_path):
    """With all of Criteo's columns, by the collective strategy, in graphs that TensorFlow optimizes."""
    flags = ["--samples", "600", "--steps", "20", "--batch_size", "32", "--embedding_dim", "8"]
    printed = run_program("deeprec/zoo/dlrm.py", *flags, "--checkpoint", str(tmp_path), size=2)
    assert "ranks 2, step 20, loss " in printed
    assert saved_files.data_files(tmp_path / "model.ckpt-20")
