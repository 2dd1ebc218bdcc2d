"""Times calls that all ranks make together."""

from __future__ import annotations

import dataclasses
import statistics
import time
from collections.abc import Callable, Mapping, Sequence

import tensorflow as tf


@dataclasses.dataclass(frozen=True)
class Contender:
    """Milliseconds per call over all rounds but the first, which is a warm-up.

    Attributes:
      median, minimum: wall time.
      cpu: the median of processor time.
    """

    median: float
    minimum: float
    cpu: float


def interleaved(
    session: tf.compat.v1.Session,
    contenders: Mapping[str, Sequence[tf.Operation]],
    rounds: int,
    calls: int,
    cpu_seconds: Callable[[], float] = time.process_time,
) -> dict[str, Contender]:
    """Measures milliseconds per call of each contender. All ranks make the same calls in the same order.

    `cpu_seconds` returns the processor time so far.
    """
    walls: dict[str, list[float]] = {name: [] for name in contenders}
    cpus: dict[str, list[float]] = {name: [] for name in contenders}
    for number in range(rounds + 1):
        for name, targets in contenders.items():
            session.run(targets)
            start, cpu_start = time.perf_counter(), cpu_seconds()
            for _ in range(calls):
                session.run(targets)
            if number > 0:  # the first round warms up
                walls[name].append((time.perf_counter() - start) * 1e3 / calls)
                cpus[name].append((cpu_seconds() - cpu_start) * 1e3 / calls)
    return {
        name: Contender(statistics.median(walls[name]), min(walls[name]), statistics.median(cpus[name]))
        for name in contenders
    }
