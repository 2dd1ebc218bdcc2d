"""Times calls that all ranks make together."""

from __future__ import annotations

import dataclasses
import statistics
import time
from collections.abc import Mapping, Sequence

import tensorflow as tf


@dataclasses.dataclass(frozen=True)
class Contender:
    """Milliseconds per call over all rounds but the first, which is a warm-up."""

    median: float
    minimum: float


def interleaved(
    session: tf.compat.v1.Session, contenders: Mapping[str, Sequence[tf.Operation]], rounds: int, calls: int
) -> dict[str, Contender]:
    """Measures milliseconds per call of each contender. All ranks make the same calls in the same order."""
    samples: dict[str, list[float]] = {name: [] for name in contenders}
    for number in range(rounds + 1):
        for name, targets in contenders.items():
            session.run(targets)
            start = time.perf_counter()
            for _ in range(calls):
                session.run(targets)
            if number > 0:  # the first round warms up
                samples[name].append((time.perf_counter() - start) * 1e3 / calls)
    return {name: Contender(statistics.median(walls), min(walls)) for name, walls in samples.items()}
