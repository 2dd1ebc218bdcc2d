"""On several ranks, the example trains like one process, however the data is split."""

import pytest

import ranks
from example_support import SMALL_FLAGS, data_flags, results_of, run_all
from same_length import zip_equal

# Without dropout, whose random numbers differ between ranks, and with SGD, which shows the scale of
# gradients.
EXACT = ["--optimizer", "sgd", "--learning_rate", "0.05", "--dropout", "0", "--epochs", "2"]
# No data set's size is a multiple of it.
EXACT += ["--batch_size", "96"]
RUNS = {
    ("movielens", "sok"): ["--model", "wide_and_deep", "--embedding_l2", "0.01"],
    ("census", "sok"): ["--model", "dlrm"],
    ("criteo", "sok"): ["--model", "dcn_v2"],
    ("movielens", "tensorflow"): ["--model", "dlrm"],
}


def flags_of_runs(folder):
    """{name: flags} of the runs."""
    runs = {}
    for (dataset, tables), flags in RUNS.items():
        data = data_flags(dataset, folder / dataset)
        runs[f"{dataset}-{tables}"] = [*SMALL_FLAGS, *EXACT, *data, *flags, "--tables", tables]
    return runs


def train_all(runs):
    """Runs on a rank; returns the exit status for each list of flags."""
    from ctr.app import main

    return [main(run) for run in runs]


@pytest.fixture(scope="module")
def one_process(tmp_path_factory):
    """(flags of the runs, the folder of their results)."""
    folder = tmp_path_factory.mktemp("one")
    runs = flags_of_runs(folder)
    run_all([[*flags, "--output_dir", str(folder / name)] for name, flags in runs.items()])
    return runs, folder


# With MPI, a run for each kind of tables; with Gloo, where ranks start quickly, all runs.
@pytest.mark.parametrize("size, transport, dataset", [(2, "mpi", "movielens"), (3, "gloo", "")])
def test_ranks_train_as_one_process(one_process, tmp_path, size, transport, dataset):
    runs, folder = one_process
    runs = {name: flags for name, flags in runs.items() if name.startswith(dataset)}
    commands = [[*flags, "--output_dir", str(tmp_path / name)] for name, flags in runs.items()]
    statuses = ranks.run(train_all, commands, ranks=size, transport=transport)
    assert statuses == [[0] * len(runs)] * size
    for name in runs:
        results, expected = results_of(tmp_path / name), results_of(folder / name)
        assert results["ranks"] == size
        assert (results["steps"], results["samples"]) == (expected["steps"], expected["samples"])
        assert results["last_training_loss"] == pytest.approx(expected["last_training_loss"], rel=1e-4), name
        for evaluation, other in zip_equal(results["evaluations"], expected["evaluations"]):
            assert evaluation["log_loss"] == pytest.approx(other["log_loss"], rel=1e-4), name
            assert evaluation["auc"] == pytest.approx(other["auc"], abs=0.002), name
