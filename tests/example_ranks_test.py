# Tags: slow
# Not on GPUs: a program; the tests gpu_* have one
"""The example on several ranks: it trains like one process, and ends as it should.

However the data is split; with data for some ranks only, bad data, Ctrl-C or a failed rank.
"""

import os
import re
import signal

import pytest
import tensorflow as tf

import example_runs_program
import ranks
import saved_files
from ctr.datasets import MovieLens
from example_runs_program import train
from example_support import (
    SMALL_FLAGS,
    data_flags,
    results_of,
    run_all,
    run_program,
    write_census,
    write_criteo,
    write_movielens,
)
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


SMALL = [*SMALL_FLAGS, "--batch_size", "32", "--hidden", "4"]


def own_rank():
    return int(os.environ["HOROVOD_RANK"])


def status_of(*flags):
    """Trains; returns the exit status, also if flags are invalid."""
    try:
        return example_runs_program.train([*SMALL, *flags])
    except SystemExit as refused:
        return refused.code


def train_some(runs, folder_of_one_rank):
    """Runs on a rank; returns the exit statuses of the runs. In the last run, rank 1 has no data."""
    last = ["--dataset", "movielens", "--data_dir", folder_of_one_rank[own_rank() == 1]]
    return [status_of(*run) for run in [*runs, last]]


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    """Several runs on two ranks: (the folder of results, statuses by run and rank, outputs by rank)."""
    folder = tmp_path_factory.mktemp("runs")
    census = write_census(folder / "census")
    with open(census / "adult.data", "a", encoding="utf-8") as stream:
        stream.write("broken\n" * 5)
    with open(census / "adult.test", "a", encoding="utf-8") as stream:
        stream.write("damaged\n" * 4)
    bad = ["--dataset", "census", "--data_dir", str(census), "--epochs", "2"]
    movielens = data_flags("movielens", folder / "movielens")
    runs = {
        # One block of samples, so that rank 1 has none.
        "one_block": ["--samples", "500", "--held_out_samples", "200"],
        "nothing_held_out": [*movielens, "--held_out", "0", "--epochs", "2", "--max_steps", "12"],
        "bad_lines": [*bad, "--max_bad_lines", "9"],
        "too_many_bad_lines": [*bad, "--max_bad_lines", "4"],
        "too_many_held_out": [*bad, "--max_bad_lines", "8"],
        "bad_batch_size": ["--batch_size", "33"],
    }
    commands = [[*flags, "--output_dir", str(folder / name)] for name, flags in runs.items()]
    folders = [str(folder / "movielens" / "data"), str(folder / "empty")]
    result = ranks.launch(train_some, commands, folders, ranks=2)
    assert result.returncode == 0, result.report()
    names = [*runs, "no_data_on_rank_1"]
    statuses = {name: [results[i] for results in result.results] for i, name in enumerate(names)}
    return folder, statuses, result.outputs


def test_ranks_without_data_step_along(job):
    folder, statuses, _ = job
    assert statuses["one_block"] == [0, 0]
    results = results_of(folder / "one_block")
    assert results["samples"] == 500 and results["steps"] == -(-500 // 16)
    assert 0 < results["evaluations"][-1]["auc"] < 1


def test_nothing_held_out_is_no_auc(job):
    folder, statuses, _ = job
    assert statuses["nothing_held_out"] == [0, 0]
    results = results_of(folder / "nothing_held_out")
    assert results["steps"] == 12 and results["evaluations"][-1]["auc"] is None


def test_bad_lines_of_all_ranks_are_reported(job):
    folder, statuses, outputs = job
    assert statuses["bad_lines"] == [0, 0]
    lines = [entry["line"] for entry in results_of(folder / "bad_lines")["malformed_lines"]]
    # After 300 lines and an empty one; after a header, 100 lines and an empty one.
    assert lines == [302, 303, 304, 305, 306, 103, 104, 105, 106]
    assert "malformed lines left out: 9 (5 in adult.data, 4 in adult.test)" in outputs[0]


@pytest.mark.parametrize("name, limit", [("too_many_bad_lines", 4), ("too_many_held_out", 8)])
def test_too_many_bad_lines_of_all_ranks_together_end_the_run(job, name, limit):
    _, statuses, outputs = job
    assert statuses[name] == [1, 1]
    assert f"error: more than {limit} malformed lines" in outputs[0]


def test_a_batch_size_must_be_a_multiple_of_the_ranks(job):
    _, statuses, outputs = job
    assert statuses["bad_batch_size"] == [2, 2]
    assert "--batch_size 33 is not a multiple of the number of ranks, 2" in outputs[0]


def test_data_that_one_rank_lacks_is_an_error_on_all(job):
    _, statuses, outputs = job
    assert statuses["no_data_on_rank_1"] == [1, 1]
    assert f"error: rank 1: --dataset {MovieLens.name} needs u.data" in outputs[0]


def test_only_the_first_rank_prints(job):
    outputs = job[2]
    assert "AUC" in outputs[0]
    # TensorFlow prints some messages before its log level takes effect.
    lines = [line for line in outputs[1].splitlines() if "port.cc" not in line]
    assert not [line for line in lines if "AUC" in line or "error" in line or "samples" in line]


def train_until(what, folder):
    """Runs on a rank: trains for a very long time, but after some steps `what` happens on rank 1."""
    from ctr.report import Progress

    advance = Progress.advance
    calls = []

    def advance_or_end(self, *arguments):
        advance(self, *arguments)
        calls.append(1)
        if own_rank() == 1 and len(calls) == 5:
            if what == "raise":
                raise ValueError("a reason")
            os.kill(os.getpid(), {"kill": signal.SIGKILL, "interrupt": signal.SIGINT}[what])

    Progress.advance = advance_or_end
    return status_of("--samples", "10000000", "--held_out_samples", "5000", "--output_dir", folder)


def test_ctrl_c_on_any_rank_ends_all_and_leaves_an_evaluated_run(tmp_path):
    job = ranks.launch(train_until, "interrupt", str(tmp_path), ranks=2)
    assert job.results == [130, 130], job.report()
    assert "interrupted: evaluating the model trained so far" in job.outputs[0]
    results = results_of(tmp_path)
    assert results["interrupted"] and results["steps"] == 6
    assert results["evaluations"][-1]["step"] == 6


@pytest.mark.parametrize("what", ["raise", "kill"])
def test_a_rank_that_fails_ends_the_others(tmp_path, what):
    job = ranks.launch(train_until, what, str(tmp_path), ranks=2)
    # The launcher waits 35 s for the other ranks before it kills them.
    assert not job.timed_out, job.report()
    assert job.results == [1, None] and job.returncodes[1] != 0, job.report()
    assert what == "kill" or "ValueError: a reason" in job.outputs[1]
    assert "error: the ranks cannot continue: " in job.outputs[0], job.report()
    assert "Traceback" not in job.outputs[0]


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
