"""Processor time of this process without some of its threads (Linux)."""

from __future__ import annotations

import pathlib
import time
from collections.abc import Callable, Collection

_TASKS = pathlib.Path("/proc/self/task")


def threads() -> frozenset[str]:
    """The threads of this process."""
    return frozenset(task.name for task in _TASKS.iterdir())


def clock_without(others: Collection[str]) -> Callable[[], float]:
    """Returns a function that returns seconds of processor time, without those of the threads `others`."""

    def seconds() -> float:
        # The first number is the time on a processor, in ns.
        of_others = sum(int((_TASKS / name / "schedstat").read_text().split()[0]) for name in others)
        return time.process_time() - of_others * 1e-9

    return seconds
