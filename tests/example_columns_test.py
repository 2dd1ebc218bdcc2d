"""The example with --api feature_column: every model learns, as well as with layers, and on several ranks."""

import pytest

import forked
import ranks
from example_runs_program import train
from example_support import (
    EXAMPLES,
    SMALL_FLAGS,
    check_that_both_learn,
    data_flags,
    example_environment,
    results_of,
    run_all,
)
from same_length import zip_equal

COLUMNS = [*SMALL_FLAGS, "--api", "feature_column"]


def test_columns_learn_what_layers_learn(tmp_path):
    check_that_both_learn(tmp_path, "--api", ("layer", "feature_column"))


def test_ranks_train_as_one_process(tmp_path):
    flags = [*COLUMNS, *data_flags("movielens", tmp_path), "--model", "wide_and_deep", "--batch_size", "96"]
    # Without dropout, whose random numbers differ between ranks, and with SGD, which shows the scale of
    # gradients.
    flags += ["--optimizer", "sgd", "--learning_rate", "0.05", "--dropout", "0", "--epochs", "2"]
    run_all([[*flags, "--output_dir", str(tmp_path / "one")]])
    assert ranks.run(train, [*flags, "--output_dir", str(tmp_path / "two")], ranks=2) == [0, 0]
    one, two = results_of(tmp_path / "one"), results_of(tmp_path / "two")
    assert (two["ranks"], two["steps"], two["samples"]) == (2, one["steps"], one["samples"])
    assert two["last_training_loss"] == pytest.approx(one["last_training_loss"], rel=1e-4)
    for evaluation, other in zip_equal(two["evaluations"], one["evaluations"]):
        assert evaluation["log_loss"] == pytest.approx(other["log_loss"], rel=1e-4)


def test_columns_are_for_sok_tables():
    flags = ["--api", "feature_column", "--tables", "tensorflow"]
    done = forked.run(EXAMPLES / "train_ctr.py", *flags, env=example_environment())
    assert done.returncode == 2 and "--api feature_column needs --tables sok" in done.stderr
