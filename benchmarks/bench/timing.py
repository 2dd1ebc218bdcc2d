"""Times contenders in interleaved rounds."""

from __future__ import annotations

import dataclasses
import statistics
import time
from collections.abc import Mapping, Sequence
from typing import Callable, NamedTuple

# Length of a contender's turn in a round: long enough that clock resolution and the first call do not matter.
_TURN_MS = 40.0
_MAX_CALLS = 25


class Sample(NamedTuple):
    """Milliseconds per call: wall time, and processor time over all threads."""

    wall: float
    cpu: float


@dataclasses.dataclass(frozen=True)
class Timing:
    """Milliseconds per call over all rounds."""

    median: float
    minimum: float
    median_cpu: float

    @classmethod
    def of(cls, samples: Sequence[Sample]) -> Timing:
        """Summarizes the samples of all rounds."""
        walls = [sample.wall for sample in samples]
        return cls(statistics.median(walls), min(walls), statistics.median(sample.cpu for sample in samples))

    def times(self, factor: float) -> Timing:
        """All times multiplied by `factor`."""
        return Timing(self.median * factor, self.minimum * factor, self.median_cpu * factor)


# Makes so many calls, and returns the average time of one.
Contender = Callable[[int], Sample]


def sample(
    call: Callable[[], object], calls: int, cpu_seconds: Callable[[], float] = time.process_time
) -> Sample:
    """Times calls; `cpu_seconds` returns the processor time so far."""
    wall, cpu = time.perf_counter(), cpu_seconds()
    for _ in range(calls):
        call()
    wall, cpu = time.perf_counter() - wall, cpu_seconds() - cpu
    return Sample(wall * 1e3 / calls, cpu * 1e3 / calls)


def sample_after(before: Callable[[], object], call: Callable[[], object], calls: int) -> Sample:
    """Times calls, each right after a call of `before`, whose time does not count."""
    samples = []
    for _ in range(calls):
        before()
        samples.append(sample(call, 1))
    return Sample(*(statistics.mean(times) for times in zip(*samples)))


def contender(call: Callable[[], object], cpu_seconds: Callable[[], float] = time.process_time) -> Contender:
    """A contender that calls a Python function."""
    return lambda calls: sample(call, calls, cpu_seconds)


def measure(
    contenders: Mapping[str, Contender],
    rounds: int,
    turn_ms: float = _TURN_MS,
    max_calls: int = _MAX_CALLS,
    calls: int | None = None,
) -> dict[str, Timing]:
    """Measures contenders in interleaved rounds, so that a slow phase of the machine affects all of them.

    Each contender has one turn per round, of about `turn_ms` and at most `max_calls` calls, or of `calls`,
    which ranks need because all of them must make the same calls. A turn of several calls begins with one
    that is not timed. Before the rounds, each contender is called three times.
    """
    counts = {}
    for name, run in contenders.items():
        run(1)
        wall = run(2).wall
        counts[name] = calls or max(1, min(max_calls, round(turn_ms / wall)))
    samples: dict[str, list[Sample]] = {name: [] for name in contenders}
    for _ in range(rounds):
        for name, run in contenders.items():
            if counts[name] > 1:
                run(1)
            samples[name].append(run(counts[name]))
    return {name: Timing.of(taken) for name, taken in samples.items()}
