"""A program that measures on demand, so that several programs can take turns.

The program prints "ready" when its tables are filled. Then it answers each line on its standard input with a
line on its standard output.
"""

from __future__ import annotations

import pathlib
import subprocess
from collections.abc import Mapping, Sequence

from bench.timing import Contender, Sample


class MeasuringProcess:
    """The running program. A context manager: leaving it ends the program.

    Args:
      name: The name in error messages.
      command: Program and arguments.
      environment: Environment variables of the program; None for those of this process.
      log: File for the program's standard error; None to leave it on this process's standard error.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        environment: Mapping[str, str] | None = None,
        log: pathlib.Path | None = None,
    ) -> None:
        self.name = name
        self._log = log
        stderr = None if log is None else open(log, "wb")  # noqa: SIM115
        self._process = subprocess.Popen(
            list(command),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            env=environment,
        )
        if stderr is not None:
            stderr.close()

    def __enter__(self) -> MeasuringProcess:
        return self

    def __exit__(self, *exc_info: object) -> None:
        try:
            self._process.stdin.close()
        except BrokenPipeError:
            pass  # the program has ended already, which `wait_until_ready` or `ask` reported
        self._process.stdout.close()
        self._process.wait()

    def wait_until_ready(self) -> None:
        """Waits until the program's tables are filled.

        Raises:
          RuntimeError: The program has ended; the message has the end of its log.
        """
        self._expect_line()

    def sample(self, ids: int, what: str, calls: int) -> Sample:
        """Measures a call of `what` (such as "forward" or "step") with the ids of file number `ids`."""
        wall, cpu = self.ask(f"{ids} {what} {calls}").split()
        return Sample(float(wall), float(cpu))

    def ask(self, line: str) -> str:
        """Sends a line and returns the program's answer.

        Raises:
          RuntimeError: The program has ended; the message has the end of its log.
        """
        try:
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # reading fails too, with a better message
        return self._expect_line()

    def _expect_line(self) -> str:
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.name} ended with status {self._process.wait()}{self._end_of_log()}")
        return line.rstrip("\n")

    def _end_of_log(self) -> str:
        if self._log is None:
            return ""
        lines = self._log.read_text(encoding="utf-8", errors="replace").splitlines()
        return "".join(f"\n    {line}" for line in lines[-5:])


class ProcessContender(Contender):
    """A contender that a MeasuringProcess measures."""

    def __init__(self, name: str, process: MeasuringProcess, ids: int, what: str) -> None:
        super().__init__(name)
        self._process = process
        self._ids = ids
        self._what = what

    def sample(self, calls: int) -> Sample:
        """See Contender."""
        return self._process.sample(self._ids, self._what, calls)
