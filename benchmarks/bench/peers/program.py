"""The process of one library: `python -m bench.peers.program NAME JOB_FILE`.

Prints "ready" when the tables are filled. As group_benchmark, it answers a line "<bags> <what> <calls>" with
the mean wall time and processor time of a call, in milliseconds. "<bags> check <file>" trains one step on
each batch, and writes the outputs of the first batch before and after that to the file.
"""

from __future__ import annotations

import dataclasses
import importlib
import os
import pathlib
import sys
from collections.abc import Sequence

import numpy as np

from bench.peers.catalog import LIBRARIES
from bench.peers.held_tables import HeldTables
from bench.peers.job import Job
from bench.timing import CallContender

# Per feature; enough to include frequent and rare ids.
CHECKED_BAGS = 256


def main(arguments: Sequence[str]) -> int:
    """Answers lines until the input ends; returns the exit status."""
    name, job_file = arguments
    # Libraries may print to standard output. It is redirected to standard error; answers go to a copy of it.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    library, job = LIBRARIES[name], Job.read(pathlib.Path(job_file))
    if library.trains_with is not None:
        job = dataclasses.replace(job, tables=dataclasses.replace(job.tables, optimizer=library.trains_with))
    tables = importlib.import_module(f"bench.peers.{library.module}").Tables(job)
    print("ready", file=answers, flush=True)
    for line in sys.stdin:
        print(_answer(tables, line), file=answers, flush=True)
    return 0


def _answer(tables: HeldTables, line: str) -> str:
    bags, what, argument = line.rstrip("\n").split(" ", 2)
    if what == "check":
        before = _checked(tables.outputs(int(bags)))
        tables.train(int(bags))
        np.save(argument, np.stack([before, _checked(tables.outputs(int(bags)))]))
        return argument
    sample = CallContender(what, tables.call(int(bags), what)).sample(int(argument))
    return f"{sample.wall} {sample.cpu}"


def _checked(outputs: Sequence[np.ndarray]) -> np.ndarray:
    return np.stack([feature[:CHECKED_BAGS] for feature in outputs])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
