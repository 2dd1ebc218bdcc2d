# Not on GPUs: a program; the tests gpu_* have one
"""examples/run_on_servers.py: the example's trainer on parameter servers, and how such a run ends."""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

import forked
import local_cluster
import run_on_servers
from example_support import EXAMPLES, SMALL_FLAGS, data_flags, results_of

DEMO = EXAMPLES.parent / "tools" / "demo.sh"
TRAINER = str(EXAMPLES / "train_ctr.py")
# One worker fails; the other, and the chief, would run for a long time.
PROGRAM = """
import json, os, sys, time

task = json.loads(os.environ["TF_CONFIG"])["task"]
open(f"{sys.argv[1]}/{os.getpid()}", "w").close()
if task == {"type": "worker", "index": 1} and sys.argv[2] == "fail":
    sys.exit(3)
time.sleep(100)
"""


def start(*arguments, servers=2, workers=2):
    command = [sys.executable, str(EXAMPLES / "run_on_servers.py"), f"--parameter_servers={servers}"]
    return subprocess.Popen(
        [*command, f"--workers={workers}", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=forked.environment(),
    )


def children(process):
    return [
        int(pid)
        for pid in pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    ]


def assert_ended(pids):
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_workers_train_one_model_on_all_samples_and_the_chief_reports(tmp_path):
    flags = [*SMALL_FLAGS, *data_flags("census", tmp_path), "--epochs", "4", "--learning_rate", "0.05"]
    tasks = [("ps", 0), ("ps", 1), ("chief", 0), ("worker", 0)]
    out, logs = tmp_path / "out", tmp_path / "logs"
    flags += ["--output_dir", str(out)]
    # The worker starts when the chief trains, so that the chief has to wait for it.
    local_cluster.run_tasks(tasks, logs, out, TRAINER, *flags, awaited="events*")
    results = results_of(out)
    assert (results["servers"], results["workers"]) == (2, 2)
    # The chief made half of the steps; the samples are those of both workers.
    assert results["samples"] == 4 * 300 and results["steps"] == 4 * -(-150 // 16)
    assert [entry["epoch"] for entry in results["evaluations"]] == list(range(1, 5))
    assert results["evaluations"][-1]["auc"] > 0.9
    rows = results["rows_by_server"]
    assert len(rows) == 2 and min(rows) > 5
    output = (logs / "chief_0.log").read_text()
    assert f"rows by server: {rows[0]}, {rows[1]}" in output
    assert "AUC" not in (logs / "worker_0.log").read_text()


def test_ctrl_c_ends_all_processes_and_leaves_an_evaluated_run(tmp_path):
    flags = [*SMALL_FLAGS, *data_flags("census", tmp_path), "--epochs", "100000"]
    process = start(TRAINER, *flags, "--output_dir", str(tmp_path / "out"))
    forked.wait_for(lambda: list((tmp_path / "out").glob("events*")))
    pids = children(process)
    time.sleep(2)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGINT, errors
    assert "interrupted: evaluating the model trained so far" in errors and "error" not in errors
    results = results_of(tmp_path / "out")
    assert results["interrupted"] and results["evaluations"][-1]["step"] == results["steps"]
    assert len(pids) == 4
    assert_ended(pids)


@pytest.mark.parametrize("what", ["fail", "kill", "terminate"])
def test_a_task_that_fails_is_named_and_all_others_end(tmp_path, what):
    program, folder = tmp_path / "program.py", tmp_path / "pids"
    program.write_text(PROGRAM)
    folder.mkdir()
    process = start(str(program), str(folder), what, workers=3)
    forked.wait_for(lambda: what == "fail" or len(list(folder.iterdir())) == 3)
    pids = children(process)
    if what == "kill":
        os.kill(min(pids), signal.SIGKILL)
    elif what == "terminate":
        process.terminate()
    _, errors = process.communicate(timeout=60)
    messages = {
        "fail": (1, "error: worker 1 ended with status 3; the other processes are stopped\n"),
        "kill": (1, "error: parameter server 0 was ended by SIGKILL; the other processes are stopped\n"),
        "terminate": (128 + signal.SIGTERM, ""),
    }
    assert (process.returncode, errors) == messages[what]
    assert_ended([*pids, *(int(path.name) for path in folder.iterdir())])


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--parameter_servers", "0"], "--parameter_servers needs a number of processes, such as 2, not '0'"),
        (
            ["--parameter_servers=2", "--workers", "x"],
            "--workers needs a number of processes, such as 2, not 'x'",
        ),
        (["--workers", "2"], "--workers needs --parameter_servers"),
        (["--ranks", "2", "--parameter_servers", "2"], "--parameter_servers and --ranks exclude each other"),
        (["--parameter_servers"], "--parameter_servers needs a number of processes, such as 2."),
        (["--ranks", "-1"], "--ranks needs a number of processes, such as 2, not '-1'"),
    ],
)
def test_the_demo_refuses_wrong_numbers(arguments, message):
    environment = {**os.environ, "SOK_PYTHON": sys.executable, "SOK_HOME": "not used"}
    done = subprocess.run(["bash", str(DEMO), *arguments], stderr=subprocess.PIPE, text=True, env=environment)
    assert done.returncode == 1 and message in " ".join(done.stderr.split())


@pytest.mark.parametrize("number", ["0", "x", "-1"])
@pytest.mark.parametrize("option", ["--parameter_servers", "--workers"])
def test_wrong_numbers_are_refused(capsys, option, number):
    with pytest.raises(SystemExit) as refused:
        run_on_servers.main(["--parameter_servers", "1", f"{option}={number}", "program.py"])
    assert refused.value.code == 2
    assert f"argument {option}: '{number}' is not a number of processes" in capsys.readouterr().err
