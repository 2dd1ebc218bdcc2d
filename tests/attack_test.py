"""The attacks of tools/attack.sh, once each, and the report of a loss."""

import os
import pathlib
import signal
import sys
from collections import Counter

import pytest

import forked
from attack import runner
from attack.scenario import Scenario


def _in_a_process_of_its_own(code):
    """Runs code in a process that has not used TensorFlow."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    result = forked.run_code(code, env=environment, timeout=300)
    return result.returncode, result.stdout + result.stderr[-3000:]


def test_nothing_is_lost():
    code = "import sys; from attack.__main__ import main; sys.argv = ['', '--seconds', '1']; sys.exit(main())"
    status, output = _in_a_process_of_its_own(code)
    assert status == 0 and output.count("lost: nothing") == len(runner.SCENARIOS) + 1, output


def _fails(draw, folder):
    raise AssertionError("rows are gone")


def _dies(draw, folder):
    os.kill(os.getpid(), signal.SIGKILL)


def _hangs(draw, folder):
    os.read(os.pipe()[0], 1)


@pytest.mark.parametrize("attempt", [_fails, _dies, _hangs])
def test_a_loss_is_reported(attempt, tmp_path, monkeypatch):
    monkeypatch.setattr(runner.tempfile, "tempdir", str(tmp_path))
    scenarios = [
        Scenario("bad", "fails", attempt, seconds=0.5),
        Scenario("good", "does nothing", lambda draw, folder: Counter(done=1)),
    ]
    lines = []
    found = runner.run(scenarios, 0, 7, lines.append)
    assert found == {"bad": Counter(tries=1, lost=1), "good": Counter(tries=1, lost=0, done=1)}
    (line,) = lines
    assert line.startswith("LOST in bad, --seed 7: see ") and pathlib.Path(line.rsplit(" ", 1)[-1]).exists()
    assert runner.summary(scenarios, found)[-1] == "2 tries; lost: 1"
