"""What callgrind counts in a program: instructions, and misses of simulated caches."""

from __future__ import annotations

import dataclasses
import pathlib
import re
import subprocess
from collections.abc import Sequence

TOTAL = "PROGRAM TOTALS"
# The same everywhere, whatever machine counts: 48 KiB of L1, and a last level of 1 MiB, a core's L2.
# Prefetches are not simulated: a line that was asked for in time counts as a miss all the same.
_CACHES = ("--I1=32768,8,64", "--D1=49152,12,64", "--LL=1048576,16,64")
_EVENTS = ("Ir", "D1mr", "D1mw", "DLmr", "DLmw")
_COLUMN = re.compile(r"\s*([\d,]+|\.)\s+(?:\(\s*[\d.]+%\)\s+)?")


@dataclasses.dataclass(frozen=True)
class Counts:
    """Of data; instructions' own misses are left out."""

    instructions: float = 0
    l1_misses: float = 0
    l2_misses: float = 0

    def __add__(self, other: Counts) -> Counts:
        return Counts(*map(sum, zip(dataclasses.astuple(self), dataclasses.astuple(other), strict=True)))

    def __sub__(self, other: Counts) -> Counts:
        return self + other * -1

    def __mul__(self, factor: float) -> Counts:
        return Counts(*(value * factor for value in dataclasses.astuple(self)))


def run(command: Sequence[str], inputs: str, out: pathlib.Path) -> dict[str, Counts]:
    """Runs a program on these inputs; returns what each function took, with all that it called, and TOTAL.

    Args:
      command: Program and arguments. It should have one thread.
      inputs: For its standard input.
      out: File for callgrind's own record.

    Raises:
      RuntimeError: The program has failed; the message has the end of what it said.
      FileNotFoundError: There is no valgrind.
    """
    tool = ["valgrind", "--tool=callgrind", "--cache-sim=yes", *_CACHES, f"--callgrind-out-file={out}"]
    done = subprocess.run([*tool, *command], input=inputs, text=True, capture_output=True)
    if done.returncode:
        raise RuntimeError(
            f"{command[0]} under callgrind ended with {done.returncode}: {done.stderr[-2000:]}"
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
        # "file:function [object]"; the file is unknown ("???") where there is no debugging information.
        name = line[at:].strip().rsplit(" [", 1)[0]
        name = name if name == TOTAL else name.split(":", 1)[-1]
        instructions, *misses = values
        counts = Counts(instructions, misses[0] + misses[1], misses[2] + misses[3])
        costs[name] = max(costs.get(name, counts), counts, key=lambda cost: cost.instructions)
    return costs
