"""Runs scenarios under all failures, in processes of their own, and counts the outcomes."""

from __future__ import annotations

import gc
import json
import os
import select
import shutil
import signal
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from failing_calls.failures import failures
from failing_calls.scenario import Scenario
from failing_calls.shim import Failure, Shim

# A case that takes longer hangs.
_SECONDS = 120.0


class Run:
    """A scenario under failures. This process must have imported TensorFlow, but not used it."""

    def __init__(self, scenario: type[Scenario], tell: Callable[[str], None]) -> None:
        """Makes the folder, which is kept if a case ended wrong."""
        self._scenario, self._tell = scenario, tell
        self._root = Path(tempfile.mkdtemp(prefix=f"failing-{scenario.name}-")).resolve()
        self._folder = self._root / "files"
        self._log = self._root / "log"
        # By kind of call, the outcomes.
        self.outcomes: dict[str, Counter] = {}
        # The number of all failures that there can be.
        self.possible = 0

    def run(self, choose: Callable[[list[Failure]], list[Failure]]) -> None:
        """Counts the calls, and lets those fail that `choose` returns, in two processes the same."""

        def begin() -> Iterator[Any]:
            shim, scenario = Shim(str(self._folder)), self._scenario(self._folder)
            counts = _count(shim, scenario)
            yield counts
            yield from _go_on(shim, scenario, going_on(chosen(counts)))

        def chosen(counts: dict[str, int]) -> list[Failure]:
            return choose(list(failures(counts, self._scenario.kills)))

        def going_on(cases: list[Failure]) -> list[Failure]:
            return [one for one in cases if not one.how.startswith("kill")]

        self._start_anew()
        counts, *results = self._in_fork(begin) or [None]
        assert counts is not None, f"{self._scenario.name} does not work without failures: {self._log}"
        self.possible = len(list(failures(counts, self._scenario.kills)))
        cases = chosen(counts)
        left = self._note_all(going_on(cases), results)
        while left:
            self._start_anew()
            left = self._note_all(left, self._in_fork(lambda cases=left: self._go_on_anew(cases)))
        for failure in cases:
            if failure.how.startswith("kill"):
                self._note(failure, self._kill(failure))
        if not self.wrong():
            shutil.rmtree(self._root, ignore_errors=True)

    def wrong(self) -> int:
        """Returns the number of cases that ended wrong."""
        return sum(counts["wrong"] for counts in self.outcomes.values())

    def _note_all(self, cases: Sequence[Failure], results: Sequence[str]) -> list[Failure]:
        """Notes the results of the first cases, up to a wrong one; returns the cases that are left."""
        for failure, result in zip(cases, results):
            self._note(failure, result)
        begun = len(results)
        ended_wrong = bool(results) and results[-1].startswith("wrong")
        if begun < len(cases) and not ended_wrong:
            self._note(cases[begun], f"wrong: the process ended, or hung: {self._log}")
            begun += 1
        return list(cases[begun:])

    def _note(self, failure: Failure, result: str) -> None:
        outcome = result.split(":")[0]
        self.outcomes.setdefault(failure.kinds, Counter())[outcome] += 1
        if outcome == "wrong":
            self._tell(f"WRONG {self._scenario.name}: {failure}: {result[len('wrong:') :].strip()}")

    def _start_anew(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir()

    def _go_on_anew(self, cases: Sequence[Failure]) -> Iterator[str]:
        yield from _go_on(Shim(str(self._folder)), self._scenario(self._folder), cases)

    def _kill(self, failure: Failure) -> str:
        self._start_anew()

        def act() -> Iterator[str]:
            shim, scenario = Shim(str(self._folder)), self._scenario(self._folder)
            scenario.prepare()
            yield "ready"
            with shim.failing(failure, []):
                scenario.act()
            yield "acted"

        def recover() -> Iterator[str]:
            self._scenario(self._folder).recover()
            yield "recovered"

        acted = self._in_fork(act)
        if acted != ["ready"]:
            return "not reached" if acted else f"wrong: it did not start: {self._log}"
        return "recovered" if self._in_fork(recover) else f"wrong: it did not recover: {self._log}"

    def _in_fork(self, work: Callable[[], Iterator]) -> list:
        """Returns what `work` yields in a process of its own, up to its end, or until it hangs."""
        receiver, sender = os.pipe()
        sys.stdout.flush()
        pid = os.fork()
        if pid == 0:
            os.close(receiver)
            _become(work, sender, self._log)
        os.close(sender)
        results = []
        with os.fdopen(receiver, "rb", buffering=0) as pipe:
            text = b""
            while select.select([pipe], [], [], _SECONDS)[0]:
                part = pipe.read(1 << 16)
                if not part:
                    break
                text += part
                *lines, text = text.split(b"\n")
                results += [json.loads(line) for line in lines]
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        return results


def _become(work: Callable[[], Iterator], sender: int, log: Path) -> None:
    """Runs work in this process, and exits."""
    status = 1
    try:
        file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(file, 1)
        os.dup2(file, 2)
        os.close(file)
        for result in work():
            os.write(sender, json.dumps(result).encode() + b"\n")
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _count(shim: Shim, scenario: Scenario) -> dict[str, int]:
    """Returns the number of calls of each kind."""
    for _ in range(2):
        scenario.prepare()
        scenario.failure = None
        with shim.failing(None, [], scenario.of_memory):
            scenario.act()
        counts = shim.count(scenario.of_memory)
        scenario.check(None)
    return counts


def _go_on(shim: Shim, scenario: Scenario, cases: Sequence[Failure]) -> Iterator[str]:
    """Yields the outcome of each case, until one is wrong."""
    for failure in cases:
        result = _outcome(shim, scenario, failure)
        yield result
        if result.startswith("wrong"):
            return


def _outcome(shim: Shim, scenario: Scenario, failure: Failure) -> str:
    hits: list[str] = []
    error, stage = None, "before"
    try:
        scenario.prepare()
        with shim.failing(failure, hits, scenario.of_memory):
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
        scenario.failure = failure if hits else None
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
