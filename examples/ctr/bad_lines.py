"""The ledger of malformed lines: counted, named by file and number, fatal only beyond a limit."""

from __future__ import annotations

import collections
import itertools
import os
import threading
from collections.abc import Callable, Iterable


class TooManyBadLines(Exception):
    """More malformed lines than `--max_bad_lines` allows."""


class BadLines:
    """Malformed lines met so far. A line that every epoch meets again counts once.

    Over ranks each has a ledger. A line may fall to another rank in the next epoch, so ledgers are merged in
    between to count it once; what was merged is common to all, what came since is a rank's own.

    Thread-safe: the threads of `tf.data` report into it while the training loop reads it.
    """

    def __init__(self, limit: int, say: Callable[[str], None], announced: int = 10) -> None:
        """`limit` lines are borne; the first `announced` go to `say` as they are met, all into the report."""
        self._limit = limit
        self._say = say
        self._announced = announced
        self._lock = threading.Lock()
        self._reasons: dict[tuple[str, int], str] = {}
        self._common: set[tuple[str, int]] = set()

    def add(self, path: str, number: int, reason: str) -> None:
        """Notes line `number` (counted from 1) of `path`.

        Raises TooManyBadLines beyond the limit; the message shows the last line.
        """
        if len(self) <= self._limit:
            self._note(path, number, reason)
        self.check(self.own_count())

    def merge(self, ledgers: Iterable[list[tuple[str, int, str]]]) -> None:
        """Makes the own entries of all ranks, however many they are, common."""
        for path, number, reason in itertools.chain.from_iterable(ledgers):
            self._note(path, number, reason)
            self._common.add((path, number))

    def own_count(self) -> int:
        """How many entries are of this ledger alone."""
        return len(self) - len(self._common)

    def own_entries(self) -> list[tuple[str, int, str]]:
        """The entries of this ledger alone."""
        return [entry for entry in self.entries() if entry[:2] not in self._common]

    def _note(self, path: str, number: int, reason: str) -> None:
        with self._lock:
            new = (path, number) not in self._reasons
            self._reasons.setdefault((path, number), reason)
            count = len(self._reasons)
        if new and count <= self._announced:
            self._say(f"malformed line {path}:{number}: {reason}")

    def check(self, own: int) -> None:
        """Raises TooManyBadLines beyond the limit; `own` counts the own entries of all ranks."""
        if len(self._common) + own <= self._limit:
            return
        with self._lock:
            last = list(self._reasons.items())[-1:]
        shown = "".join(f"; the last: {path}:{number}: {reason}" for (path, number), reason in last)
        raise TooManyBadLines(f"more than {self._limit} malformed lines (--max_bad_lines){shown}")

    def __len__(self) -> int:
        with self._lock:
            return len(self._reasons)

    def entries(self) -> list[tuple[str, int, str]]:
        """(path, line number, reason), sorted by path and number."""
        with self._lock:
            return sorted((path, number, reason) for (path, number), reason in self._reasons.items())

    def summary(self) -> str:
        """One line for people: how many, and in which files; empty if there were none."""
        counts = collections.Counter(os.path.basename(path) for path, _, _ in self.entries())
        if not counts:
            return ""
        files = ", ".join(f"{count} in {name}" for name, count in sorted(counts.items()))
        return f"malformed lines left out: {len(self)} ({files})"
