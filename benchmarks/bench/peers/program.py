"""The process of one library: `python -m bench.peers.program NAME JOB_FILE`.

Prints "ready" once the tables are filled. A line "<bags> <what> <calls>" is answered as by group_benchmark,
with the milliseconds of one of `calls` calls and those of its processor time; "<bags> check <file>" trains
one step on each batch and writes the first one's outputs before and after that.
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

# Of each feature: enough to meet frequent ids and rare ones.
CHECKED_BAGS = 256


def main(arguments: Sequence[str]) -> int:
    """Answers lines until the input ends; returns the exit status."""
    name, job_file = arguments
    # Libraries print to the standard output what they like: answers go out on a copy of it.
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
