"""tools/gpu/run_programs.sh runs the programs for GPUs, here on the host, and counts what failed."""

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
        shutil.copy(ROOT / "tools" / "gpu" / "run_programs.sh", self.folder / "run.sh")
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
