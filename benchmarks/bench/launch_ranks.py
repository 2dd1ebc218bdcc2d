"""Starts the ranks of a benchmark on this machine and returns the results of rank 0."""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping

_PROGRAMS = pathlib.Path(__file__).absolute().parents[1]


def run(
    module: str, arguments: Mapping[str, object], transport: str, cycle_time: float, ranks: int
) -> dict[str, object]:
    """Runs `python -m module --name value … PATH` on every rank; returns the JSON that rank 0 wrote to PATH.

    Args:
      module: The program of each rank.
      arguments: The program's flags.
      transport: "mpi" (mpirun) or "gloo" (horovodrun).
      cycle_time: HOROVOD_CYCLE_TIME, ms.
      ranks: The number of ranks.

    Raises:
      SystemExit: There is no such transport, or a rank failed; the message has what the ranks printed.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "result.json")
        command = [*_launcher(transport, ranks), sys.executable, "-m", module]
        for name, value in arguments.items():
            command += [f"--{name}", str(value)]
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(_PROGRAMS), *sys.path]),
            "HOROVOD_CYCLE_TIME": str(cycle_time),
            "TF_CPP_MIN_LOG_LEVEL": "2",
        }
        done = subprocess.run(
            [*command, str(path)],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        if done.returncode != 0:
            raise SystemExit(f"The ranks failed:\n{done.stdout}")
        return json.loads(path.read_text(encoding="utf-8"))


def _launcher(transport: str, ranks: int) -> list[str]:
    if transport == "mpi":
        if shutil.which("mpirun") is None:
            raise SystemExit("There is no mpirun. Install it, or use --transport gloo.")
        as_root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
        # Waiting ranks yield their core, because there are more threads than cores.
        options = ["--oversubscribe", "--bind-to", "none", "--mca", "mpi_yield_when_idle", "1"]
        return ["mpirun", *as_root, *options, "-np", str(ranks)]
    if transport != "gloo":
        raise SystemExit(f"There is no transport {transport!r}: use --transport mpi or gloo.")
    horovodrun = "from horovod.runner.launch import run_commandline; run_commandline()"
    return [sys.executable, "-c", horovodrun, "-np", str(ranks), "--gloo", "--network-interface", "lo"]
