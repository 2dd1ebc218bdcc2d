"""Samples of tools/failing_calls.sh and tools/attack.sh, and that they find mistakes and losses."""

import os
import pathlib
import re
import signal
import sys
from collections import Counter

import pytest

import forked
from attack import runner, scenario
from failing_calls.runner import Run
from failing_calls.scenario import Scenario

_SAMPLES = {
    "what the removal of old checkpoints asks": "--only hook --kind question --kind lock --sample 20",
    "what a restore asks": "--only restore --kind question --sample 30",
    "what an export removes": "--only saved_model_sok --kind unlink --without-kills",
    "renames that are made and reported as failed": "--only raw_dump --kind rename --sample 20",
    "others": "--only save --only restore --only raw_dump --only npy --only memory_save --sample 2",
}


@pytest.mark.parametrize("arguments", _SAMPLES.values(), ids=_SAMPLES)
def test_some_failing_calls(arguments):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    code = "import sys; from failing_calls.__main__ import main; sys.exit(main(sys.argv[1:]))"
    result = forked.run_code(code, *arguments.split(), "--without-kills", env=environment, timeout=600)
    assert result.returncode == 0, result.stdout + result.stderr[-3000:]
    assert result.stdout.endswith(" passed, 0 failed\n")
    # Cases in which nothing failed prove nothing.
    outcomes = {what: int(n) for n, what in re.findall(r"(\d+) (error|succeeded|not reached)", result.stdout)}
    assert outcomes.get("error", 0) + outcomes.get("succeeded", 0) > 0, result.stdout


class _Replaces(Scenario):
    """A file is replaced."""

    name = "replaces"
    kills = False

    def act(self):
        new, kept = self.folder / "new.tmp", self.folder / "kept"
        try:
            new.write_text("second")
            os.rename(new, kept)
        except OSError as error:
            if new.exists():
                new.unlink()
            raise OSError(f"{new}: {error}") from None

    def prepare(self):
        (self.folder / "kept").write_text("first")

    def check(self, error):
        if error is not None:
            self.check_error(error)
        assert (self.folder / "kept").read_text() in ["second", *(["first"] if error else [])]
        self.check_nothing_left()


class _Leaks(_Replaces):
    def act(self):
        self.file = os.open(self.folder / "kept", os.O_RDONLY)
        super().act()
        os.close(self.file)


class _Leaves(_Replaces):
    def act(self):
        (self.folder / "new.tmp").write_text("second")
        os.rename(self.folder / "new.tmp", self.folder / "kept")


class _TakesFailureForSuccess(_Replaces):
    def act(self):
        try:
            super().act()
        except OSError:
            pass


class _TellsNoFile(_Replaces):
    def act(self):
        try:
            super().act()
        except OSError:
            raise OSError("cannot be written") from None


class _Ends(_Replaces):
    def act(self):
        try:
            super().act()
        except OSError:
            os.kill(os.getpid(), signal.SIGKILL)


def _wrong(scenario):
    told = []
    run = Run(scenario, told.append)
    run.run(lambda cases: [case for case in cases if case.kinds in ("create", "rename", "write")])
    assert len(told) == run.wrong()
    return run.wrong()


def test_what_is_right_is_not_wrong():
    assert _wrong(_Replaces) == 0


@pytest.mark.parametrize("scenario", [_Leaks, _Leaves, _TakesFailureForSuccess, _TellsNoFile, _Ends])
def test_mistakes_are_found(scenario, tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    assert _wrong(scenario) > 0


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
        scenario.Scenario("bad", "fails", attempt, seconds=0.5),
        scenario.Scenario("good", "does nothing", lambda draw, folder: Counter(done=1)),
    ]
    lines = []
    found = runner.run(scenarios, 0, 7, lines.append)
    assert found == {"bad": Counter(tries=1, lost=1), "good": Counter(tries=1, lost=0, done=1)}
    (line,) = lines
    assert line.startswith("LOST in bad, --seed 7: see ") and pathlib.Path(line.rsplit(" ", 1)[-1]).exists()
    assert runner.summary(scenarios, found)[-1] == "2 tries; lost: 1"
