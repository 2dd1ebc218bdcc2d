# Tags: slow
# Not on GPUs: a program; the tests gpu_* have one
"""The example's command line, end to end on small files: with TensorFlow's tables, and on SOK's with every
data set, model and optimizer, with layers and with columns."""

import re
import signal
import subprocess
import sys
import time

import pytest

import forked
import ranks
from ctr.app import main
from ctr.flags import DEFAULTS
from ctr.models import MODELS
from ctr.tables import OPTIMIZERS
from device_of_tests import cpu_only
from example_runs_program import train
from example_support import (
    EXAMPLES,
    SMALL_FLAGS,
    check_that_both_learn,
    data_flags,
    results_of,
    run_all,
    write_census,
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
    flags = ["--samples", "2000", "--held_out_samples", "500", "--output_dir", str(tmp_path)]
    result = forked.run_interpreter(str(EXAMPLES / "train_ctr.py"), *flags)
    names, values = forked.succeeded(result).splitlines()[:2]
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


@cpu_only("tables on disks are on CPUs")
def test_tables_on_disk_learn_the_same(tmp_path):
    flags = [*SMALL_FLAGS, "--samples", "3000", "--held_out_samples", "300", "--epochs", "1"]
    disk = ["--disk", str(tmp_path / "rows"), "--memory_mb", "0.01"]
    for name, more in [("memory", []), ("disk", disk)]:
        done = forked.run(EXAMPLES / "train_ctr.py", *flags, *more, "--output_dir", str(tmp_path / name))
        forked.succeeded(done)
        assert (re.search(r"loss \d\.\d+, \d+\.\d% in memory", done.stderr) is not None) == (name == "disk")
    memory, disk = results_of(tmp_path / "memory"), results_of(tmp_path / "disk")
    assert disk["last_training_loss"] == memory["last_training_loss"]


@pytest.mark.parametrize(
    "flag, value",
    [
        ("--api", "feature_column"),
        ("--row_dtype", "float16"),
        ("--second_moment", "row"),
        ("--disk", "rows"),
    ],
)
def test_some_flags_are_for_sok_tables(flag, value):
    flags = [flag, value, "--tables", "tensorflow"]
    done = forked.run(EXAMPLES / "train_ctr.py", *flags)
    assert done.returncode == 2 and re.search(f"{flag}.* needs --tables sok", done.stderr)


SMALL = [*SMALL_FLAGS, "--tables", "tensorflow", "--epochs", "2", "--learning_rate", "0.01"]


@pytest.mark.parametrize(
    "dataset, model",
    [("movielens", "dlrm"), ("census", "wide_and_deep"), ("criteo", "dcn_v2"), ("synthetic", "dlrm")],
)
def test_a_run_leaves_a_table_results_events_and_a_picture(tmp_path, capsys, dataset, model):
    flags = [*SMALL, *data_flags(dataset, tmp_path), "--model", model, "--output_dir", str(tmp_path / "out")]
    assert main(flags) == 0
    names, values = capsys.readouterr().out.splitlines()[:2]
    expected = ["dataset", "model", "tables", "optimizer", "ranks", "epochs", "samples/s", "AUC"]
    assert names.split()[:8] == expected
    assert values.split()[:6] == [dataset, model, "tensorflow", "lazy_adam", "1", "2"]
    results = results_of(tmp_path / "out")
    assert [evaluation["epoch"] for evaluation in results["evaluations"]] == [1, 2]
    assert values.split()[7] == f"{results['evaluations'][-1]['auc']:.4f}"
    assert (results["best_reachable"] is not None) == (dataset == "synthetic") == ("best AUC" in names)
    assert (tmp_path / "out" / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert any(path.name.startswith("events.out.tfevents") for path in (tmp_path / "out").iterdir())


def test_evaluations_within_epochs(tmp_path):
    # 10 steps per epoch. The end of an epoch is evaluated once, though the last evaluation may be due there.
    flags = [*SMALL, *data_flags("census", tmp_path), "--output_dir", str(tmp_path / "out")]
    assert train([*flags, "--evaluate_every", "5", "--max_steps", "18"]) == 0
    evaluations = results_of(tmp_path / "out")["evaluations"]
    assert [(entry["epoch"], entry["step"]) for entry in evaluations] == [(1, 5), (1, 10), (2, 15), (2, 18)]


def with_bad_lines(folder, count):
    write_census(folder)
    with open(folder / "adult.data", "a", encoding="utf-8") as stream:
        stream.write("broken\n" * count)
    return ["--dataset", "census", "--data_dir", str(folder)]


def test_bad_lines_up_to_the_limit_are_reported(tmp_path, capsys):
    flags = with_bad_lines(tmp_path / "data", 5)
    assert train([*SMALL, *flags, "--max_bad_lines", "5", "--output_dir", str(tmp_path / "out")]) == 0
    error = capsys.readouterr().err
    # 300 lines, an empty one, then the malformed ones. Both epochs read them, but they count once.
    assert "adult.data:302: 1 columns instead of 15" in error
    assert "malformed lines left out: 5 (5 in adult.data)" in error
    lines = [line["line"] for line in results_of(tmp_path / "out")["malformed_lines"]]
    assert lines == [302, 303, 304, 305, 306]


def test_bad_lines_beyond_the_limit_end_the_run_with_a_message(tmp_path, capsys):
    flags = with_bad_lines(tmp_path / "data", 101)
    assert train([*SMALL, *flags, "--output_dir", str(tmp_path / "out")]) == 1
    assert "error: more than 100 malformed lines (--max_bad_lines)" in capsys.readouterr().err


@pytest.mark.parametrize(
    "flags, message",
    [
        (["--dataset", "census"], "--dataset census needs --data_dir"),
        (["--data_dir", "x"], "--data_dir needs --dataset movielens, census or criteo"),
        (["--dataset", "synthetic", "--data_dir", "x"], "takes no --data_dir"),
        (["--model", "gpt"], "invalid choice: 'gpt'"),
        (["--epochs", "0"], "0 is below 1"),
        (["--dropout", "1"], "1.0 is not in [0, 1)"),
        (["--held_out", "-0.1"], "-0.1 is not in [0, 1)"),
        (["--epochs", "2.5"], "'2.5' is not a whole number"),
        (["--hidden", "64,"], "'' is not a whole number"),
        (["--dropout", "half"], "'half' is not a number"),
        (["--learning_rate", "nan"], "nan is not in [0, inf)"),
    ],
)
def test_bad_flags_are_refused_with_a_message(capsys, flags, message):
    with pytest.raises(SystemExit) as exit_status:
        main(flags)
    assert exit_status.value.code == 2
    assert message in capsys.readouterr().err


def test_a_folder_without_the_files_is_refused_with_their_names(tmp_path, capsys):
    assert main([*SMALL, "--dataset", "movielens", "--data_dir", str(tmp_path)]) == 1
    assert "u.data, u.user, u.item" in capsys.readouterr().err


def test_ctrl_c_leaves_an_evaluated_run(tmp_path):
    command = [sys.executable, str(EXAMPLES / "train_ctr.py"), *SMALL, "--epochs", "1000"]
    command += [*data_flags("census", tmp_path), "--output_dir", str(tmp_path / "out")]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=forked.environment()
    )
    # Events are written after the first steps.
    forked.wait_for(lambda: list((tmp_path / "out").glob("events*")))
    time.sleep(3)
    process.send_signal(signal.SIGINT)
    output, error = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "interrupted: evaluating the model trained so far" in error
    assert output.startswith("dataset")
    results = results_of(tmp_path / "out")
    assert results["interrupted"] and results["evaluations"][-1]["step"] == results["steps"] > 0
