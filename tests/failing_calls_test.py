# Not on GPUs: files, which are the same: see gpu_checkpoints_test
"""Samples of tools/failing_calls.sh, and that it finds mistakes."""

import os
import re
import signal

import pytest

import forked
from failing_calls.runner import Run
from failing_calls.scenario import Scenario

_SAMPLES = {
    "what the removal of old checkpoints asks": "--only hook --kind question --kind lock --sample 20",
    "what a restore asks": "--only restore --kind question --sample 30",
    "what cannot be mapped": "--only restore_mapped --kind map",
    "what an export removes": "--only saved_model_sok --kind unlink --without-kills",
    "renames that are made and reported as failed": "--only raw_dump --kind rename --sample 20",
    "what files of rows take": "--only disk --sample 25",
    "others": "--only save --only restore --only raw_dump --only npy --only memory_save --sample 2",
}


@pytest.mark.parametrize("arguments", _SAMPLES.values(), ids=_SAMPLES)
def test_some_failing_calls(arguments):
    code = "import sys; from failing_calls.__main__ import main; sys.exit(main(sys.argv[1:]))"
    output = forked.succeeded(forked.run_code(code, *arguments.split(), "--without-kills", timeout=600))
    assert output.endswith(" passed, 0 failed\n")
    # Cases in which nothing failed prove nothing.
    outcomes = {what: int(n) for n, what in re.findall(r"(\d+) (error|succeeded|not reached)", output)}
    assert outcomes.get("error", 0) + outcomes.get("succeeded", 0) > 0, output


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
