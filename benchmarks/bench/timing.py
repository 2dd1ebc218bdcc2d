"""Times contenders in interleaved rounds."""

from __future__ import annotations

import abc
import dataclasses
import statistics
import time
from collections.abc import Callable, Sequence

# A contender's turn in a round lasts about this long, so that the clock and the start of a call do not show.
_TURN_MS = 40.0
_MAX_CALLS = 25


@dataclasses.dataclass(frozen=True)
class Sample:
    """Milliseconds of one call: by the clock, and of processor time over all threads."""

    wall: float
    cpu: float


@dataclasses.dataclass(frozen=True)
class Timing:
    """Milliseconds of a call over the rounds that count."""

    median: float
    minimum: float
    median_cpu: float

    @classmethod
    def of(cls, samples: Sequence[Sample]) -> Timing:
        """What the samples of all rounds come to."""
        walls = [sample.wall for sample in samples]
        cpu = statistics.median(sample.cpu for sample in samples)
        return cls(statistics.median(walls), min(walls), cpu)


class Contender(abc.ABC):
    """Something that is measured beside others."""

    def __init__(self, name: str) -> None:
        self.name = name

    @abc.abstractmethod
    def sample(self, calls: int) -> Sample:
        """Makes `calls` calls and returns what one took on average."""

    def turn(self, calls: int) -> Sample:
        """As `sample`, after a call that brings back the caches where that costs little."""
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
    """A Python function that is called each time after another one, whose time does not count."""

    def __init__(self, name: str, before: Callable[[], object], call: Callable[[], object]) -> None:
        super().__init__(name, call)
        self._before = before

    def sample(self, calls: int) -> Sample:
        """See Contender."""
        samples = []
        for _ in range(calls):
            self._before()
            samples.append(super().sample(1))
        return Sample(
            *(statistics.fmean(times) for times in zip(*map(dataclasses.astuple, samples), strict=True))
        )


def measure(
    contenders: Sequence[Contender], rounds: int, turn_ms: float = _TURN_MS, max_calls: int = _MAX_CALLS
) -> dict[str, Timing]:
    """Lets every contender run once in each round: a machine that slows down for a while slows all of them.

    A turn lasts about `turn_ms`, and has `max_calls` calls at most. One to warm up and one to choose the
    number of calls come first and do not count.
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
