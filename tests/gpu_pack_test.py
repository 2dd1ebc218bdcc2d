"""tools/gpu/run_pack.sh runs what was packed for a machine with a GPU, here with a stand-in for Python."""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).absolute().parents[1]
# Stands in for Python: answers run_pack.sh's two queries about TensorFlow, reads its input to the end, and
# fails if $FAILS occurs in the arguments.
PYTHON = """\
#!/bin/sh
case "$*" in
  *is_built_with_cuda*) echo "$BUILT_WITH_CUDA"; exit 0 ;;
  *list_physical_devices*) exit "$WITHOUT_GPU" ;;
esac
echo "$* device=$SOK_TEST_DEVICE plugin=${TF_PLUGGABLE_DEVICE_LIBRARY_PATH##*/}" >> "$CALLS"
cat > /dev/null
case "$*" in *"$FAILS"*) exit 1 ;; esac
"""


class Pack:
    """A folder like that of tools/gpu/pack.sh, without the programs."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.output = folder / "output"
        self._folder = folder / "pack"
        self._calls = folder / "calls"
        (self._folder / "wheels").mkdir(parents=True)
        (self._folder / "wheels" / "one.whl").touch()
        (self._folder / "gpu_tests").write_text("tests/a_test.py\ntests/b_test.py\n")
        shutil.copy(ROOT / "tools" / "gpu" / "run_pack.sh", self._folder / "run.sh")
        python = folder / "python"
        python.write_text(PYTHON)
        python.chmod(0o755)
        self._environment = {"PATH": os.environ["PATH"], "PYTHON": str(python), "CALLS": str(self._calls)}

    def run(
        self, fails="what no call has", without_gpu="0", built_with_cuda="False"
    ) -> subprocess.CompletedProcess:
        environment = {
            **self._environment,
            "FAILS": fails,
            "WITHOUT_GPU": without_gpu,
            "BUILT_WITH_CUDA": built_with_cuda,
        }
        return subprocess.run(
            [self._folder / "run.sh", self.output],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            env=environment,
        )

    def calls(self) -> list[str]:
        return self._calls.read_text().splitlines()


@pytest.fixture
def pack(tmp_path):
    return Pack(tmp_path)


def test_each_file_of_tests_and_each_program_counts(pack):
    run = pack.run()
    assert run.returncode == 0, run.stdout + run.stderr
    assert run.stdout.splitlines()[-1] == "5 passed, 0 failed"
    calls = pack.calls()
    assert "pip install" in calls[0]
    # Tests load the plugin themselves; programs have it from the environment.
    assert [call.split()[-3:] for call in calls[1:3]] == [
        ["tests/a_test.py", "device=gpu", "plugin="],
        ["tests/b_test.py", "device=gpu", "plugin="],
    ]
    assert all(call.endswith("device= plugin=libsok_cuda_plugin.so") for call in calls[3:])
    assert (pack.output / "summary.txt").read_text().splitlines()[-1] == "5 passed, 0 failed"


def test_a_failure_counts_and_the_rest_runs(pack):
    run = pack.run(fails="a_test.py")
    assert run.returncode == 1
    assert run.stdout.splitlines()[-1] == "4 passed, 1 failed"
    assert "FAILED: exit status 1" in run.stdout


def test_a_tensorflow_with_cuda_gets_no_plugin(pack):
    assert pack.run(built_with_cuda="True").returncode == 0
    assert all(call.endswith("plugin=") for call in pack.calls())


def test_without_a_device_nothing_is_run(pack):
    run = pack.run(without_gpu="1")
    assert run.returncode == 3
    assert "TensorFlow finds no GPU" in run.stderr
    assert len(pack.calls()) == 1  # the installation


def test_packages_are_installed_once(pack):
    assert pack.run().returncode == 0
    assert pack.run().returncode == 0
    assert sum("pip install" in call for call in pack.calls()) == 1
