"""A list of malformed lines with file, number and reason; too many are an error."""

from __future__ import annotations

import collections
import itertools
import os
import threading
from collections.abc import Callable, Iterable


class TooManyBadLines(Exception):
    """More malformed lines than `--max_bad_lines` allows."""


class BadLines:
    """Malformed lines met so far. A line that is met again in the next epoch counts once.

    Each rank has its own list. In the next epoch, another rank may read a line, so lists are merged after
    each epoch. Merged entries are common to all ranks; later entries are a rank's own until the next merge.

    Thread-safe: the threads of `tf.data` add entries while the training loop reads them.
    """

    def __init__(self, limit: int, say: Callable[[str], None], announced: int = 10) -> None:
        """More than `limit` lines are an error. The first `announced` are passed to `say` when added."""
        self._limit = limit
        self._say = say
        self._announced = announced
        self._lock = threading.Lock()
        self._reasons: dict[tuple[str, int], str] = {}
        self._common: set[tuple[str, int]] = set()

    def add(self, path: str, number: int, reason: str) -> None:
        """Adds line `number` (from 1) of `path`.

        Raises:
          TooManyBadLines: There are more than the limit; the message shows the last line.
        """
        if len(self) <= self._limit:
            self._note(path, number, reason)
        self.check(self.own_count())

    def merge(self, entries_of_ranks: Iterable[list[tuple[str, int, str]]]) -> None:
        """Makes the own entries of all ranks common. Does not check the limit."""
        for path, number, reason in itertools.chain.from_iterable(entries_of_ranks):
            self._note(path, number, reason)
            self._common.add((path, number))

    def own_count(self) -> int:
        """The number of entries that are not common."""
        return len(self) - len(self._common)

    def own_entries(self) -> list[tuple[str, int, str]]:
        """The entries that are not common."""
        return [entry for entry in self.entries() if entry[:2] not in self._common]

    def _note(self, path: str, number: int, reason: str) -> None:
        with self._lock:
            new = (path, number) not in self._reasons
            self._reasons.setdefault((path, number), reason)
            count = len(self._reasons)
        if new and count <= self._announced:
            self._say(f"malformed line {path}:{number}: {reason}")

    def check(self, own: int) -> None:
        """Raises TooManyBadLines above the limit; `own` is the number of own entries of all ranks."""
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
        """One line of text: how many, and in which files. Empty if there were none."""
        counts = collections.Counter(os.path.basename(path) for path, _, _ in self.entries())
        if not counts:
            return ""
        files = ", ".join(f"{count} in {name}" for name, count in sorted(counts.items()))
        return f"malformed lines left out: {len(self)} ({files})"
