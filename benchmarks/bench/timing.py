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
class Timing:
    """Milliseconds of a call over the rounds that count."""

    median: float
    minimum: float
    rounds: tuple[float, ...]


class Contender(abc.ABC):
    """Something that is measured beside others."""

    def __init__(self, name: str) -> None:
        self.name = name

    @abc.abstractmethod
    def milliseconds(self, calls: int) -> float:
        """Makes `calls` calls and returns what one took on average."""

    def turn(self, calls: int) -> float:
        """As `milliseconds`, after a call that brings back the caches where that costs little."""
        if calls > 1:
            self.milliseconds(1)
        return self.milliseconds(calls)


class CallContender(Contender):
    """A Python function."""

    def __init__(self, name: str, call: Callable[[], object]) -> None:
        super().__init__(name)
        self._call = call

    def milliseconds(self, calls: int) -> float:
        """See Contender."""
        begin = time.perf_counter()
        for _ in range(calls):
            self._call()
        return (time.perf_counter() - begin) * 1e3 / calls


def measure(contenders: Sequence[Contender], rounds: int) -> dict[str, Timing]:
    """Lets every contender run once in each round: a machine that slows down for a while slows all of them.

    A turn to warm up and one to choose the number of calls come first and do not count.
    """
    calls = {}
    for contender in contenders:
        contender.milliseconds(1)
        calls[contender.name] = max(1, min(_MAX_CALLS, round(_TURN_MS / contender.milliseconds(2))))
    times: dict[str, list[float]] = {contender.name: [] for contender in contenders}
    for _ in range(rounds):
        for contender in contenders:
            times[contender.name].append(contender.turn(calls[contender.name]))
    return {name: Timing(statistics.median(ms), min(ms), tuple(ms)) for name, ms in times.items()}
