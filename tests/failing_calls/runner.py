"""Runs scenarios under all failures, in processes of their own, and counts the outcomes."""

from __future__ import annotations

import errno
import gc
import multiprocessing
import os
import shutil
import signal
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from failing_calls.scenario import Scenario
from failing_calls.shim import Failure, Shim

_ERRORS = {
    "open": (errno.EIO, errno.EACCES, errno.EMFILE, errno.ESTALE),
    "create": (errno.ENOSPC, errno.EACCES, errno.EMFILE),
    "read": (errno.EIO, errno.ESTALE),
    "write": (errno.EIO, errno.ENOSPC),
    "sync": (errno.EIO, errno.ENOSPC),
    "rename": (errno.EIO, errno.ENOSPC),
    "link": (errno.EIO, errno.EACCES),
    "unlink": (errno.EIO, errno.EACCES),
    "make_folder": (errno.ENOSPC, errno.EACCES),
    "resize": (errno.ENOSPC,),
    "lock": (errno.EIO, errno.ENOLCK),
    "close": (errno.EIO,),
    "question": (errno.EIO, errno.ESTALE, errno.EACCES),
    "list": (errno.EIO, errno.ESTALE),
    "map": (errno.ENOMEM,),
    "seek": (errno.EIO,),
    "advise": (errno.EIO,),
    "control": (errno.EIO,),
    "allocation": (0,),
    "thread": (0,),
}
# Calls that a network file system may have made although it returns an error.
_MADE = ("rename", "link", "unlink", "make_folder", "create")
_CHANGES = ("create", "write", "sync", "rename", "link", "unlink", "make_folder", "resize")
# What fails on a full disk, and where a process has no descriptors.
_FULL, _FEW = "create+write+make_folder+link+resize", "open+create"
_DESCRIPTORS = 12


def failures(counts: Mapping[str, int], kills: bool) -> Iterator[Failure]:
    """Yields all ways in which one of so many calls of each kind fails.

    Args:
      counts: The number of calls of each kind.
      kills: Whether also to end the process before and after each call that changes files.
    """
    for kind, count in counts.items():
        for number in range(1, count + 1):
            for error in _ERRORS[kind]:
                yield Failure(kind, "fail", number, error)
            if kind == "allocation":
                yield Failure(kind, "fail", number, lasting=True)
            if kind in _MADE:
                yield Failure(kind, "after", number, errno.EIO)
            if kind in ("read", "write"):
                yield Failure(kind, "short", number)
            if kills and kind in _CHANGES:
                yield Failure(kind, "kill before", number)
                yield Failure(kind, "kill after", number)
    if "open" not in counts:
        return
    for kinds, error in ((_FULL, errno.ENOSPC), (_FEW, errno.EMFILE)):
        for number in range(1, sum(counts.get(kind, 0) for kind in kinds.split("+")) + 1):
            yield Failure(kinds, "fail", number, error, lasting=True)
    for free in range(_DESCRIPTORS):
        yield Failure("descriptors", "fail", free, lasting=True)


# A case that takes longer hangs.
_SECONDS = 120.0
# A process that was killed and the one after it take fewer steps.
_STEPS_AFTER_KILLS = 16


class Run:
    """A scenario under failures. This process must have imported TensorFlow, but not used it.

    It forks a process that builds the scenario's graphs. That one forks all that run them: one for as many
    cases as end right, one after another, and two for each case that ends a process.
    """

    def __init__(self, scenario: type[Scenario], tell: Callable[[str], None]) -> None:
        """Makes the folder, which is kept if a case ended wrong."""
        self._kind_of_scenario, self._tell = scenario, tell
        self._root = Path(tempfile.mkdtemp(prefix=f"failing-{scenario.name}-")).resolve()
        self._folder = self._root / "files"
        self._log = self._root / "log"
        # By kind of call, the outcomes.
        self.outcomes: dict[str, Counter] = {}
        # The number of all failures that there can be.
        self.possible = 0

    def run(self, choose: Callable[[list[Failure]], list[Failure]]) -> None:
        """Counts the calls, and lets those fail that `choose` returns."""
        results = self._fork(lambda: self._cases(choose), 4 * _SECONDS)
        self.possible = next(results, 0)
        assert self.possible, f"{self._kind_of_scenario.name} does not work without failures: {self._log}"
        for failure, result in results:
            outcome = result.split(":")[0]
            self.outcomes.setdefault(failure.kinds, Counter())[outcome] += 1
            if outcome == "wrong":
                self._tell(f"WRONG {self._kind_of_scenario.name}: {failure}: {result[len('wrong: ') :]}")
        if not self.wrong():
            shutil.rmtree(self._root, ignore_errors=True)

    def wrong(self) -> int:
        """Returns the number of cases that ended wrong."""
        return sum(counts["wrong"] for counts in self.outcomes.values())

    def _cases(self, choose: Callable[[list[Failure]], list[Failure]]) -> Iterator[Any]:
        """Yields the number of all failures; then the chosen ones, each with its result."""
        self._shim, self._scenario = Shim(str(self._folder)), self._kind_of_scenario(self._folder)
        # Forked processes need not look for garbage among the objects they share: a third of a second each.
        gc.freeze()
        counts = self._first(self._count)
        everything = list(failures(counts, self._scenario.kills))
        yield len(everything)
        kills: list[Failure] = []
        going_on: list[Failure] = []
        for failure in choose(everything):
            (kills if failure.how.startswith("kill") else going_on).append(failure)
        while going_on:
            self._empty()
            result = ""
            for result in self._fork(lambda: self._go_on(going_on)):
                yield going_on.pop(0), result
            if going_on and not result.startswith("wrong"):
                yield going_on.pop(0), f"wrong: the process ended, or hung: {self._log}"
        if kills:
            reference = self._scenario.reference
            reference.states = self._first(lambda: [[reference.state(i) for i in range(_STEPS_AFTER_KILLS)]])
            self._empty()
        for failure in kills:
            result = self._kill(failure)
            yield failure, result
            if result.startswith("wrong"):
                self._empty()

    def _empty(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir()

    def _count(self) -> Iterator[dict[str, int]]:
        """Yields the number of calls of each kind."""
        shim, scenario = self._shim, self._scenario
        scenario.start()
        for _ in range(2):
            scenario.prepare()
            with shim.failing(None, [], scenario.of_memory):
                scenario.act()
            counts = shim.count(scenario.of_memory)
            scenario.check(None)
        yield counts

    def _go_on(self, cases: Sequence[Failure]) -> Iterator[str]:
        """Yields the outcome of each case, until one is wrong."""
        self._scenario.start()
        # What has been read, and is not referenced any more, may hold descriptors.
        gc.collect()
        gc.freeze()
        for failure in list(cases):
            result = self._outcome(failure)
            yield result
            if result.startswith("wrong"):
                return

    def _outcome(self, failure: Failure) -> str:
        scenario = self._scenario
        hits: list[str] = []
        error, stage = None, "before"
        try:
            scenario.prepare()
            with self._shim.failing(failure, hits, scenario.of_memory):
                try:
                    scenario.act()
                except Exception as raised:
                    # What its frames hold is not left open.
                    error = raised.with_traceback(None)
                    error.__context__ = error.__cause__ = None
            gc.collect()
            stage = "after " + ("success" if error is None else type(error).__name__)
            opened = scenario.open_files()
            assert not opened, f"open: {opened}"
            scenario.failure, scenario.failed_path = (failure, hits[-1]) if hits else (None, "")
            scenario.check(error)
        except Exception as wrong:
            traceback.print_exc()
            print(f"--- {failure}, hit {hits}", flush=True)
            if error is not None:
                traceback.print_exception(type(error), error, error.__traceback__)
            return f"wrong: {hits} {stage}: {type(wrong).__name__}: {str(wrong)[:600]}"
        if not hits:
            return "not reached"
        return "succeeded" if error is None else "error"

    def _kill(self, failure: Failure) -> str:
        def act() -> Iterator[str]:
            self._scenario.start()
            self._scenario.prepare()
            yield "ready"
            with self._shim.failing(failure, []):
                self._scenario.act()
            yield "acted"

        def recover() -> Iterator[str]:
            self._scenario.start()
            self._scenario.recover()
            yield "recovered"

        acted = list(self._fork(act))
        if acted != ["ready"]:
            return "not reached" if acted else f"wrong: it did not start: {self._log}"
        return "".join(self._fork(recover)) or f"wrong: it did not recover: {self._log}"

    def _first(self, work: Callable[[], Iterable]) -> Any:
        """Returns what `work` yields first, in a process of its own that begins with an empty folder."""
        self._empty()
        results = list(self._fork(work))
        assert results, f"it ended, or hung: {self._log}"
        return results[0]

    def _fork(self, work: Callable[[], Iterable], seconds: float = _SECONDS) -> Iterator:
        """Yields what `work` yields in a process of its own, up to its end, or until it hangs."""
        receiver, sender = multiprocessing.Pipe(duplex=False)
        sys.stdout.flush()
        pid = os.fork()
        if pid == 0:
            receiver.close()
            self._become(work, sender)
        sender.close()
        try:
            while receiver.poll(seconds):
                yield receiver.recv()
        except EOFError:
            pass
        finally:
            receiver.close()
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)

    def _become(self, work: Callable[[], Iterable], sender: Any) -> None:
        """Runs work in this process, and exits."""
        status = 1
        try:
            file = os.open(self._log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            os.dup2(file, 1)
            os.dup2(file, 2)
            os.close(file)
            for result in work():
                sender.send(result)
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)
