"""Times contenders in interleaved rounds."""

from __future__ import annotations

import abc
import dataclasses
import statistics
import time
from collections.abc import Callable, Sequence

# Length of a contender's turn in a round: long enough that clock resolution and the first call do not matter.
_TURN_MS = 40.0
_MAX_CALLS = 25


@dataclasses.dataclass(frozen=True)
class Sample:
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
        cpu = statistics.median(sample.cpu for sample in samples)
        return cls(statistics.median(walls), min(walls), cpu)


class Contender(abc.ABC):
    """One of several implementations that are measured in the same rounds."""

    def __init__(self, name: str) -> None:
        self.name = name

    @abc.abstractmethod
    def sample(self, calls: int) -> Sample:
        """Makes `calls` calls and returns the average time of one."""

    def turn(self, calls: int) -> Sample:
        """As `sample`; if `calls` is above 1, after a call that warms up the caches."""
        if calls > 1:
            self.sample(1)
        return self.sample(calls)


class CallContender(Contender):
    """A Python function."""

    def __init__(self, name: str, call: Callable[[], object]) -> None:
        super().__init__(name)
        self._call = call

    def sample(self, calls: int) -> Sample:
        """See Contender."""
        wall, cpu = time.perf_counter(), time.process_time()
        for _ in range(calls):
            self._call()
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        return Sample(wall * 1e3 / calls, cpu * 1e3 / calls)


class AfterwardsContender(CallContender):
    """A Python function that is timed right after calls of `before`, whose time does not count."""

    def __init__(self, name: str, before: Callable[[], object], call: Callable[[], object]) -> None:
        super().__init__(name, call)
        self._before = before

    def sample(self, calls: int) -> Sample:
        """See Contender."""
        samples = []
        for _ in range(calls):
            self._before()
            samples.append(super().sample(1))
        return Sample(*(statistics.mean(times) for times in zip(*map(dataclasses.astuple, samples))))


def measure(
    contenders: Sequence[Contender], rounds: int, turn_ms: float = _TURN_MS, max_calls: int = _MAX_CALLS
) -> dict[str, Timing]:
    """Measures contenders in interleaved rounds, so that a slow phase of the machine affects all of them.

    Each contender has one turn per round, of about `turn_ms` and at most `max_calls` calls. Before the
    rounds, each is called three times, to warm up and to choose the number of calls.
    """
    calls = {}
    for contender in contenders:
        contender.sample(1)
        calls[contender.name] = max(1, min(max_calls, round(turn_ms / contender.sample(2).wall)))
    samples: dict[str, list[Sample]] = {contender.name: [] for contender in contenders}
    for _ in range(rounds):
        for contender in contenders:
            samples[contender.name].append(contender.turn(calls[contender.name]))
    return {name: Timing.of(taken) for name, taken in samples.items()}
