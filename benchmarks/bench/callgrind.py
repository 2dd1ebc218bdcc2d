"""Runs programs under callgrind, which counts instructions and misses of simulated caches."""

from __future__ import annotations

import dataclasses
import pathlib
import re
import subprocess
from collections.abc import Sequence

TOTAL = "PROGRAM TOTALS"
# The same on every machine: 48 KiB of L1 for data, and a last level of 1 MiB, the size of a core's L2.
# Prefetches are not simulated: a line that was prefetched in time counts as a miss too.
_CACHES = ("--I1=32768,8,64", "--D1=49152,12,64", "--LL=1048576,16,64")
_EVENTS = ("Ir", "D1mr", "D1mw", "DLmr", "DLmw")
_COLUMN = re.compile(r"\s*([\d,]+|\.)\s+(?:\(\s*[\d.]+%\)\s+)?")


@dataclasses.dataclass(frozen=True)
class Counts:
    """Instructions, and cache misses of data; misses of instruction fetches are left out."""

    instructions: float = 0
    l1_misses: float = 0
    l2_misses: float = 0

    def __add__(self, other: Counts) -> Counts:
        return Counts(*map(sum, zip(dataclasses.astuple(self), dataclasses.astuple(other))))

    def __sub__(self, other: Counts) -> Counts:
        return self + other * -1

    def __mul__(self, factor: float) -> Counts:
        return Counts(*(value * factor for value in dataclasses.astuple(self)))


def run(command: Sequence[str], inputs: str, out: pathlib.Path) -> dict[str, Counts]:
    """Runs a program under callgrind.

    Args:
      command: Program and arguments. The program should have one thread.
      inputs: Text for its standard input.
      out: File for callgrind's record.

    Returns:
      The counts of each function, including the functions that it calls, and TOTAL.

    Raises:
      RuntimeError: The program failed; the message has the end of its standard error.
      FileNotFoundError: There is no valgrind.
    """
    tool = ["valgrind", "--tool=callgrind", "--cache-sim=yes", *_CACHES, f"--callgrind-out-file={out}"]
    done = subprocess.run([*tool, *command], input=inputs, text=True, capture_output=True)
    if done.returncode:
        raise RuntimeError(
            f"{command[0]} under callgrind exited with status {done.returncode}: {done.stderr[-2000:]}"
        )
    annotate = ["callgrind_annotate", "--inclusive=yes", "--threshold=100", f"--show={','.join(_EVENTS)}"]
    listed = subprocess.run([*annotate, str(out)], check=True, text=True, capture_output=True)
    return parse(listed.stdout)


def parse(listing: str) -> dict[str, Counts]:
    """Reads callgrind_annotate's listing of the events that `run` asks for."""
    costs: dict[str, Counts] = {}
    for line in listing.splitlines():
        values, at = [], 0
        for _ in _EVENTS:
            column = _COLUMN.match(line, at)
            if column is None:
                break
            values.append(0 if column[1] == "." else int(column[1].replace(",", "")))
            at = column.end()
        if len(values) < len(_EVENTS):
            continue
        # "file:function [object]"; the file is "???" without debugging information.
        name = line[at:].strip().rsplit(" [", 1)[0]
        name = name if name == TOTAL else name.split(":", 1)[-1]
        instructions, *misses = values
        counts = Counts(instructions, misses[0] + misses[1], misses[2] + misses[3])
        costs[name] = max(costs.get(name, counts), counts, key=lambda cost: cost.instructions)
    return costs
