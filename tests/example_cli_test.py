"""The example's command line, end to end on small files, with TensorFlow's tables."""

import signal
import subprocess
import sys
import time

import pytest

from ctr.app import main
from example_runs_program import train
from example_support import EXAMPLES, SMALL_FLAGS, data_flags, example_environment, results_of, write_census

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
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=example_environment()
    )
    deadline = time.monotonic() + 120
    # Events are written after the first steps.
    while not list((tmp_path / "out").glob("events*")) and time.monotonic() < deadline:
        time.sleep(0.1)
    time.sleep(3)
    process.send_signal(signal.SIGINT)
    output, error = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "interrupted: evaluating the model trained so far" in error
    assert output.startswith("dataset")
    results = results_of(tmp_path / "out")
    assert results["interrupted"] and results["evaluations"][-1]["step"] == results["steps"] > 0
