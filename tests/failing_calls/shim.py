"""The library `failing_calls.cc` for Python: calls below a folder are counted, and one of them fails."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import pathlib
import resource
from collections.abc import Iterator
from dataclasses import dataclass

_PATH = "tests/failing_calls/libfailing_calls.so"
_MOST_PATH_BYTES = 4096
# Smaller allocations do not fail: a process that lacks them cannot go on.
_LEAST_BYTES = 1024


@dataclass(frozen=True)
class Failure:
    """A way in which one call fails.

    Attributes:
      kinds: The kinds of calls, joined by "+". Also "descriptors": only `number` of them are free;
        "allocation" and "thread": those of the op library.
      how: "fail": the call is not made. "after": it is made, and an error returned. "short": half of the
        bytes are read or written. "kill before", "kill after": the process ends there.
      number: Which of the calls, from 1.
      error: The number of the error.
      lasting: Whether all later ones fail too.
    """

    kinds: str
    how: str
    number: int
    error: int = 0
    lasting: bool = False

    def __str__(self) -> str:
        """For people."""
        reason = f" {errno.errorcode[self.error]}" if self.error else ""
        return f"{self.kinds} {self.number}{' and later' * self.lasting}: {self.how}{reason}"


_HOW = ("none", "fail", "after", "short", "kill before", "kill after")


class Shim:
    """The library, loaded and installed in this process and those that it forks."""

    def __init__(self, folder: str) -> None:
        """Calls about paths below `folder` count, which has no links on its way."""
        path = pathlib.Path(os.environ.get("SOK_BAZEL_BIN", ".")) / _PATH
        self._library = ctypes.CDLL(str(path.absolute()))
        self._library.failing_calls_kinds.restype = ctypes.c_char_p
        self._library.failing_calls_refuse.argtypes = [
            ctypes.c_size_t,
            ctypes.c_int,
            ctypes.c_int,
            ctypes.c_bool,
        ]
        self.kinds: list[str] = self._library.failing_calls_kinds().decode().split()
        self._replaced = 0
        if not self._library.failing_calls_install(os.fsencode(folder)):
            raise OSError(f"{path}: the system allows no seccomp filter")

    def count(self, of_memory: bool) -> dict[str, int]:
        """Returns the number of calls of each kind in the last `failing`."""
        if of_memory:
            threads = self._library.failing_calls_threads()
            return {"allocation": self._library.failing_calls_allocations(), "thread": threads}
        return {kind: self._library.failing_calls_count(i) for i, kind in enumerate(self.kinds)}

    @contextlib.contextmanager
    def failing(self, failure: Failure | None, hits: list[str], of_memory: bool = False) -> Iterator[None]:
        """Within the context calls are counted, and what `failure` names fails.

        Args:
          failure: What fails; None for nothing.
          hits: At the end, the path of the last call that failed is added, if one did; empty if it has none.
          of_memory: Whether to count allocations and threads of the op library, which must be loaded.
        """
        if failure is not None and failure.kinds == "descriptors":
            hits.append("")
            with _few_descriptors(failure.number):
                yield
        elif of_memory:
            with self._refusing(failure, hits):
                yield
        else:
            with self._failing(failure, hits):
                yield

    @contextlib.contextmanager
    def _failing(self, failure: Failure | None, hits: list[str]) -> Iterator[None]:
        failure = failure or Failure("", "none", 0)
        kinds = [kind for kind in failure.kinds.split("+") if kind]
        mask = sum(1 << self.kinds.index(kind) for kind in kinds)
        how = _HOW.index(failure.how)
        self._library.failing_calls_begin(how, mask, failure.number, failure.error, failure.lasting)
        path = ctypes.create_string_buffer(_MOST_PATH_BYTES)
        try:
            yield
        finally:
            if self._library.failing_calls_end(path, len(path)):
                hits.append(os.fsdecode(path.value))

    @contextlib.contextmanager
    def _refusing(self, failure: Failure | None, hits: list[str]) -> Iterator[None]:
        failure = failure or Failure("", "none", 0)
        if not self._replaced:
            self._replaced = self._library.failing_calls_replace_imports()
        number = {failure.kinds: failure.number}
        numbers = number.get("allocation", 0), number.get("thread", 0)
        self._library.failing_calls_refuse(_LEAST_BYTES, *numbers, failure.lasting)
        try:
            yield
        finally:
            if self._library.failing_calls_refused():
                hits.append("")
            self._library.failing_calls_stop_refusing()


@contextlib.contextmanager
def _few_descriptors(free: int) -> Iterator[None]:
    """Leaves the process this many descriptors, so that all further files cannot be opened."""
    used = {int(name) for name in os.listdir("/proc/self/fd")}
    limit = next(number for number in range(1 << 20) if len(set(range(number)) - used) == free)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
