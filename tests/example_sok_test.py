"""The example on SOK's tables: every data set, model and optimizer, with layers and with columns."""

import re
import subprocess
import sys

import pytest

import forked
import ranks
from ctr.flags import DEFAULTS
from ctr.models import MODELS
from ctr.tables import OPTIMIZERS
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


def test_every_optimizer_trains_sok_tables(tmp_path):
    flags = [*SMALL_FLAGS, *data_flags("movielens", tmp_path), "--max_steps", "3"]
    run_all([[*flags, "--optimizer", name, "--output_dir", str(tmp_path / name)] for name in OPTIMIZERS])
    for name in OPTIMIZERS:
        assert results_of(tmp_path / name)["steps"] == 3


def test_both_kinds_of_tables_learn_the_same(tmp_path):
    check_that_both_learn(tmp_path, "--tables", ("sok", "tensorflow"))


def test_the_script_runs_as_in_its_readme(tmp_path):
    command = [
        sys.executable,
        str(EXAMPLES / "train_ctr.py"),
        "--samples",
        "2000",
        "--held_out_samples",
        "500",
    ]
    result = subprocess.run(
        [*command, "--output_dir", str(tmp_path)],
        env=example_environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr[-3000:]
    names, values = result.stdout.splitlines()[:2]
    assert "best AUC" in names and values.split()[:3] == ["synthetic", results_of(tmp_path)["model"], "sok"]
    # The bar shows loss, speed and time left.
    assert "loss" in result.stderr and "samples/s" in result.stderr and "<" in result.stderr


# MovieLens has all kinds of features. Criteo has no combined ones, of which a wide part is made otherwise.
RUNS = {
    "movielens": tuple(MODELS),
    "census": ("dlrm",),
    "criteo": ("wide_and_deep", "dcn_v2"),
    "synthetic": ("wide_and_deep",),
}


def test_runs_have_every_data_set():
    assert RUNS.keys() == DEFAULTS.keys()


@pytest.mark.parametrize("dataset, model", [(dataset, model) for dataset in RUNS for model in RUNS[dataset]])
def test_models_train_on_sok_tables(tmp_path, dataset, model):
    flags = [*SMALL_FLAGS, *data_flags(dataset, tmp_path), "--epochs", "4", "--learning_rate", "0.01"]
    flags += ["--dropout", "0", "--embedding_l2", "0", "--model", model, "--output_dir", str(tmp_path)]
    assert train(flags, optimize=True) == 0
    results = results_of(tmp_path)
    assert results["tables"] == "sok" and len(results["evaluations"]) == 4
    # Below ln 2, the loss of an untrained model.
    assert results["last_training_loss"] < 0.65


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


@pytest.mark.parametrize("api", ["layer", "feature_column"])
def test_tables_in_16_bits_learn(tmp_path, api):
    flags = ["--slot_dtype", "bfloat16", "--second_moment", "row", "--rounding", "nearest", "--api", api]
    check_that_both_learn(tmp_path, "--row_dtype", ("float32", "bfloat16"), flags)


@pytest.mark.parametrize(
    "flag, value", [("--api", "feature_column"), ("--row_dtype", "float16"), ("--second_moment", "row")]
)
def test_some_flags_are_for_sok_tables(flag, value):
    flags = [flag, value, "--tables", "tensorflow"]
    done = forked.run(EXAMPLES / "train_ctr.py", *flags, env=example_environment())
    assert done.returncode == 2 and re.search(f"{flag}.* needs --tables sok", done.stderr)
