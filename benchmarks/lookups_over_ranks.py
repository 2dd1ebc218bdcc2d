"""A group of features over ranks, beside the same model with a plain alltoall for each feature.

Starts the ranks itself, on this machine. `--help` lists the flags, README.md says how to read the table.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence

from bench import ranks_report

_FOR_THE_RANKS = (
    "features",
    "batch",
    "dim",
    "rows",
    "zipf",
    "optimizer",
    "batches",
    "rounds",
    "calls",
    "seed",
)


def main(arguments: Sequence[str]) -> int:
    """Runs the program; returns its exit status."""
    flags = _parser().parse_args(arguments)
    machine, rows = {}, []
    for transport in flags.transport.split(","):
        for cycle_time in flags.cycle_time.split(","):
            for ranks in flags.ranks.split(","):
                print(f"{transport}, cycle time {cycle_time} ms, {ranks} ranks", file=sys.stderr, flush=True)
                result = _launch(flags, transport, float(cycle_time), int(ranks))
                machine = result["machine"]
                rows.append(ranks_report.Row.of(result["row"]))
    if flags.json is not None:
        content = {"machine": machine, "rows": [result_fields(row) for row in rows]}
        flags.json.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    print(ranks_report.table(rows))
    return 0


def result_fields(row: ranks_report.Row) -> dict:
    """The row as plain values."""
    return {**vars(row), "timings": {name: vars(timing) for name, timing in row.timings.items()}}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--ranks", default="1,2,4", help="numbers of ranks")
    add("--transport", default="mpi,gloo", help="mpi (mpirun), gloo (horovodrun)")
    add("--cycle_time", default="1,0.1", help="HOROVOD_CYCLE_TIME, ms")
    add("--features", type=int, default=26, help="features, each with a table of its own")
    add("--batch", type=int, default=4096, help="samples of a step over all ranks")
    add("--dim", type=int, default=16, help="floats of a row")
    add("--rows", type=int, default=2_600_000, help="rows of all tables together")
    add("--zipf", type=float, default=1.05, help="how skewed ids are: the exponent of Zipf's law")
    add("--optimizer", default="adagrad", help="lazy_adam, adagrad or sgd")
    add("--batches", type=int, default=4, help="batches of ids that the steps of a rank rotate over")
    add("--rounds", type=int, default=7, help="interleaved rounds that count")
    add("--calls", type=int, default=10, help="steps of each contender in a round")
    add("--seed", type=int, default=1, help="of ids and rows")
    add("--json", type=pathlib.Path, default=None, help="file to write all numbers to")
    return parser


def _launch(flags: argparse.Namespace, transport: str, cycle_time: float, ranks: int) -> dict:
    own = {name: getattr(flags, name) for name in _FOR_THE_RANKS}
    own.update(cycle_time=cycle_time, transport=transport)
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "row.json")
        command = [*_launcher(transport, ranks), sys.executable, "-m", "bench.rank_program"]
        for name, value in own.items():
            command += [f"--{name}", str(value)]
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(pathlib.Path(__file__).absolute().parent), *sys.path]),
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
            raise SystemExit("There is no mpirun here; --transport gloo goes without.")
        as_root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
        return ["mpirun", *as_root, "--oversubscribe", "--bind-to", "none", "-np", str(ranks)]
    horovodrun = "from horovod.runner.launch import run_commandline; run_commandline()"
    return [sys.executable, "-c", horovodrun, "-np", str(ranks), "--gloo", "--network-interface", "lo"]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
