"""Helpers for tests of benchmarks: every workload at a tiny size."""

from __future__ import annotations

import os
import pathlib
import subprocess

import forked
from bench import report

# The folder of builds: in a test's runfiles, they are beside the sources.
BAZEL_BIN = pathlib.Path(os.environ.get("SOK_BAZEL_BIN", pathlib.Path(__file__).absolute().parents[1]))
MEASURE = pathlib.Path(__file__).absolute().parents[1] / "benchmarks" / "measure.py"
_IN_FORK = pathlib.Path(__file__).with_name("benchmark_in_fork.py")

_TABLES = "--features 3 --batch 12 --rows 90 --dim 3 --rounds 1"
_SERVERS = "--features 2 --batch 16 --rows 60 --dim 4 --batches 2 --rounds 1 --turn_ms 50"
# The flags that make each workload tiny, but for those that read files of others.
TINY = {
    "checkpoints": "--gib 0.001,0.1 --dim 8",
    "feature_columns": "--features 3 --batch 8 --rows 30 --dim 4 --rounds 1 --batches 2",
    "gpu_host_work": "--features 2 --batch 8 --hotness 1,2 --dim 4 --rounds 1",
    "growth": "--rows 90,300 --dim 4 --batch 64 --rounds 1",
    "instructions": "--features 2 --rows 60 --dim 4 --batch 8",
    "lookup_and_step": f"{_TABLES} --batches 2",
    "key_lookups": "--keys 50,300 --batch 20 --rounds 1",
    "lookup_prefetch": f"{_TABLES} --calls 2 --hidden 4",
    "lookups_over_ranks": f"{_TABLES} --calls 1 --transport mpi --cycle_time 1",
    "many_tables": "--tables 3 --rows_each 7 --dim 2 --rounds 1",
    "open_tables": "--mb 2 --dim 4 --batch 50 --rounds 1",
    "parameter_servers": f"{_SERVERS} --workers 1",
    "parts": "--ids 64 --distinct 99 --keys 50 --dim 4 --table_mb 0.01 --rounds 1 --id_zipf 1 --hand_overs 9",
    "peers": f"{_TABLES} --batches 2",
    "row_types": f"{_TABLES} --batches 2",
    "row_quality": "--dataset synthetic --seeds 1,2 --kind float32,bfloat16 --dim 4 --samples 300 "
    "--held_out_samples 50 --batch_size 32 --hidden 8",
    "restores": "--rows 3000 --dim 4 --rounds 1 --servers 2",
    "rows_or_sums": "--features 2 --batch 1024 --rows 100000 --dim 16 --rounds 1 --calls 1",
    "server_costs": f"{_SERVERS} --servers 1 --workers 1",
    "serving": "--features 3 --batch 1,12 --rows 90 --dim 3 --hotness 1,3 --batches 2 --rounds 1 --turn_ms 9",
    "synthetic_models": "--scale 100000 --batch 12 --batches 2 --rounds 1 --calls 1 --models dlrm",
    "tables_on_disk": f"{_TABLES} --batches 2 --share 0.5,0.1",
    "trainer": "--rounds 1 --turn_ms 50 --samples 300 --batch_size 32 --dim 4 --hidden 8 --tensorflow_rows 9",
}


def run_program(program: pathlib.Path, *flags: str) -> subprocess.CompletedProcess:
    """Runs a program in a process that can import the test's modules and find the test's built programs."""
    return forked.run(_IN_FORK, str(program), *flags, env=forked.environment(SOK_BAZEL_BIN=str(BAZEL_BIN)))


def run_workload(
    folder: pathlib.Path, workload: str, *flags: str
) -> tuple[subprocess.CompletedProcess, list[report.Result]]:
    """Runs a workload at a tiny size; returns its process and its results. It also draws a picture."""
    path, plot = folder / "results.json", folder / "plot.png"
    output = ["--json", str(path), "--plot", str(plot)]
    done = run_program(MEASURE, workload, *TINY[workload].split(), *flags, *output)
    assert done.returncode == 0, done.stderr
    assert plot.read_bytes().startswith(b"\x89PNG")
    results = report.read(path)
    for result in results:
        for timing in result.timings.values():
            assert 0 < timing.minimum <= timing.median
    return done, results
