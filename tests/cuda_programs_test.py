# Not on GPUs: a program; the tests gpu_* have one
"""tools/gpu/run.sh: what runs on a machine with a GPU, and what counts as failed."""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).absolute().parents[1]
TOOLS = ["memcheck", "racecheck", "initcheck", "synccheck"]


class Programs:
    """The folder that is carried to a machine, and a stand-in for compute-sanitizer."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder / "gpu_programs"
        self.output = folder / "output"
        self.bin = folder / "bin"
        self.folder.mkdir()
        self.bin.mkdir()
        shutil.copy(ROOT / "tools" / "gpu" / "run.sh", self.folder / "run.sh")
        for name in ("engine_test", "engine_benchmark"):
            (self.folder / name).symlink_to(ROOT / "cuda" / "programs" / f"{name}_on_host")

    def write(self, path: pathlib.Path, script: str) -> None:
        if path.is_symlink():
            path.unlink()  # and not written through to the program
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    def run(self) -> subprocess.CompletedProcess:
        tests = "KeyIndexTest.EveryKeyIsLegal"
        environment = {
            "PATH": f"{self.bin}:{os.environ['PATH']}",
            "CUDA_HOME": str(self.bin / "no_toolkit"),
            "ENGINE_TEST_FLAGS": f"--small --gtest_filter={tests}",
            "SANITIZED_TESTS": tests,
            "ENGINE_BENCHMARK_FLAGS": "--small --parts=index",
        }
        command = [self.folder / "run.sh", self.output]
        return subprocess.run(command, capture_output=True, text=True, env=environment)

    def summary(self) -> list[str]:
        return (self.output / "summary.txt").read_text().splitlines()


@pytest.fixture
def programs(tmp_path):
    return Programs(tmp_path)


def test_each_program_and_each_sanitizer_counts(programs):
    # Skips the options up to the program, and runs that.
    programs.write(
        programs.bin / "compute-sanitizer", 'echo "$2"; while [ "${1#/}" = "$1" ]; do shift; done; exec "$@"'
    )
    run = programs.run()
    assert run.returncode == 0, run.stdout + run.stderr
    assert run.stdout.splitlines()[-1] == "6 passed, 0 failed"
    names = [line.split()[0] for line in programs.summary()[:-1]]
    assert names == ["engine_test", *TOOLS, "engine_benchmark"]
    for tool in TOOLS:
        log = (programs.output / f"{tool}.log").read_text().splitlines()
        assert log[0] == tool
        assert log[-1] == "1 passed, 0 failed"
    assert (programs.output / "engine_test.xml").exists()
    assert json.loads((programs.output / "benchmark.json").read_text())["device"] == "host"


def test_a_report_of_a_sanitizer_fails(programs):
    programs.write(programs.bin / "compute-sanitizer", '[ "$2" != racecheck ] || exit 9')
    run = programs.run()
    assert run.returncode == 1
    assert run.stdout.splitlines()[-1] == "5 passed, 1 failed"
    assert "FAILED: exit status 9" in next(
        line for line in programs.summary() if line.startswith("racecheck")
    )


def test_without_compute_sanitizer_its_part_is_left_out(programs):
    run = programs.run()
    assert run.returncode == 0, run.stdout + run.stderr
    assert any("left out" in line for line in programs.summary())
    assert run.stdout.splitlines()[-1] == "2 passed, 0 failed"


def test_without_a_device_nothing_is_run(programs):
    programs.write(programs.folder / "engine_test", "echo 'no CUDA device: the reason'; exit 1")
    run = programs.run()
    assert run.returncode == 3
    assert "no CUDA device: the reason" in run.stdout
    assert "There is no CUDA device" in run.stderr
    assert not programs.output.exists()


def test_a_program_that_fails_is_counted(programs):
    programs.write(programs.folder / "engine_benchmark", "echo broken; exit 7")
    run = programs.run()
    assert run.returncode == 1
    assert "FAILED: exit status 7; broken" in programs.summary()[-2]


# Stands in for Python: answers run.sh's two queries about TensorFlow, reads its input to the end, and
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
        shutil.copy(ROOT / "tools" / "gpu" / "run.sh", self._folder / "run.sh")
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
    assert run.stdout.splitlines()[-1] == "6 passed, 0 failed"
    calls = pack.calls()
    assert "pip install" in calls[0]
    # Tests load the plugin themselves; programs have it from the environment.
    check, tests, programs = calls[1], calls[2:4], calls[4:]
    assert [call.split()[-3:] for call in tests] == [
        ["tests/a_test.py", "device=gpu", "plugin="],
        ["tests/b_test.py", "device=gpu", "plugin="],
    ]
    assert "tools/gpu/check.py" in check
    assert all(call.endswith("device= plugin=libsok_cuda_plugin.so") for call in [check, *programs])
    assert (pack.output / "summary.txt").read_text().splitlines()[-1] == "6 passed, 0 failed"


def test_a_failure_counts_and_the_rest_runs(pack):
    run = pack.run(fails="a_test.py")
    assert run.returncode == 1
    assert run.stdout.splitlines()[-1] == "5 passed, 1 failed"
    assert "FAILED: exit status 1" in run.stdout


def test_a_tensorflow_with_cuda_gets_no_plugin(pack):
    assert pack.run(built_with_cuda="True").returncode == 0
    assert all(call.endswith("plugin=") for call in pack.calls())


def test_a_pack_without_a_device_runs_nothing(pack):
    run = pack.run(without_gpu="1")
    assert run.returncode == 3
    assert "TensorFlow finds no GPU" in run.stderr
    assert len(pack.calls()) == 1  # the installation


def test_packages_are_installed_once(pack):
    assert pack.run().returncode == 0
    assert pack.run().returncode == 0
    assert sum("pip install" in call for call in pack.calls()) == 1
