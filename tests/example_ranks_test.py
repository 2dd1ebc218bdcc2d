"""On several ranks, the example trains like one process, however the data is split."""

import pytest

import ranks
from example_runs_program import train
from example_support import SMALL_FLAGS, data_flags, results_of, run_all
from same_length import zip_equal

# Without dropout, whose random numbers differ between ranks, and with SGD, which shows the scale of
# gradients.
EXACT = ["--optimizer", "sgd", "--learning_rate", "0.05", "--dropout", "0", "--epochs", "2"]
# No data set's size is a multiple of it.
EXACT += ["--batch_size", "96"]
# By number of ranks: data set, tables and model of each run. Between them, every data set whose samples ranks
# share in its own way, both kinds of tables and every model.
RUNS = {
    2: {
        ("movielens", "sok"): ["--model", "wide_and_deep", "--embedding_l2", "0.01"],
        ("criteo", "tensorflow"): ["--model", "dcn_v2", "--evaluate_every", "2"],
    },
    3: {("census", "sok"): ["--model", "dlrm"], ("movielens", "tensorflow"): ["--model", "dlrm"]},
}


def flags_of_runs(size, folder):
    """{name: flags} of the runs on `size` ranks."""
    runs = {}
    for (dataset, tables), flags in RUNS[size].items():
        data = data_flags(dataset, folder / dataset)
        runs[f"{dataset}-{tables}"] = [*SMALL_FLAGS, *EXACT, *data, *flags, "--tables", tables]
    return runs


def train_all(runs):
    """Runs on a rank; returns the exit status for each list of flags."""
    return [train(run) for run in runs]


@pytest.mark.parametrize("size", RUNS)
def test_ranks_train_as_one_process(tmp_path, size):
    runs = flags_of_runs(size, tmp_path / "data")
    one, several = (
        [[*flags, "--output_dir", str(tmp_path / folder / name)] for name, flags in runs.items()]
        for folder in ("one", "several")
    )
    run_all(one)
    assert ranks.run(train_all, several, ranks=size) == [[0] * len(runs)] * size
    for name in runs:
        results, expected = results_of(tmp_path / "several" / name), results_of(tmp_path / "one" / name)
        assert results["ranks"] == size
        assert (results["steps"], results["samples"]) == (expected["steps"], expected["samples"])
        assert results["last_training_loss"] == pytest.approx(expected["last_training_loss"], rel=1e-4), name
        for evaluation, other in zip_equal(results["evaluations"], expected["evaluations"]):
            assert evaluation["log_loss"] == pytest.approx(other["log_loss"], rel=1e-4), name
            assert evaluation["auc"] == pytest.approx(other["auc"], abs=0.002), name
