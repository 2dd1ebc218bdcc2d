"""Processes that measure on demand, so that several programs can take turns.

Such a program prints "ready" when its tables are filled. Then it answers each line on its standard input with
a line on its standard output: "0 <what> <calls>" with the mean wall and processor time of a call in
milliseconds.
"""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from bench.jobs import Job
from bench.timing import Contender, Sample

BENCHMARKS = pathlib.Path(__file__).absolute().parents[1]


def environment(**variables: str) -> dict[str, str]:
    """The environment of a Python process that can import what this one can, and `variables`."""
    path = os.pathsep.join([str(BENCHMARKS), *sys.path])
    return {**os.environ, "PYTHONPATH": path, "TF_CPP_MIN_LOG_LEVEL": "2", **variables}


def say(text: str) -> None:
    """Reports progress on standard error."""
    print(text, file=sys.stderr, flush=True)


def output(command: Sequence[str], **variables: str) -> str:
    """The output of a program that ends, with the environment of `environment`.

    Raises:
      SystemExit: It failed; the message has the end of its standard error.
    """
    done = subprocess.run(command, capture_output=True, text=True, env=environment(**variables))
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr[-4000:]}")
    return done.stdout


def output_of_module(module: str, *arguments: object, **variables: str) -> Any:
    """The last line of the `output` of a Python module, which is JSON."""
    command = [sys.executable, "-m", module, *map(str, arguments)]
    return json.loads(output(command, **variables).splitlines()[-1])


def find_program(name: str) -> pathlib.Path | None:
    """A built program of benchmarks/engine, or None, with a message that says what builds it.

    The environment variable SOK_BAZEL_BIN is the folder of builds, by default the checkout's bazel-bin.
    tools/python.sh sets it, because each TensorFlow version has its own builds.
    """
    folder = pathlib.Path(os.environ.get("SOK_BAZEL_BIN", BENCHMARKS.parent / "bazel-bin"))
    program = folder / "benchmarks" / "engine" / name
    if program.is_file():
        return program
    say(f"{name} is left out: build it with `bazel build //benchmarks/engine:{name}`.")
    return None


def engine_command(program: pathlib.Path, job: Job) -> list[str]:
    """The command line of group_benchmark, or of a program that takes the same flags."""
    command = [str(program), "--optimizer", job.optimizer, "--threads", str(job.threads)]
    for name in ("features", "rows", "dim", "batch", "batches"):
        command += [f"--{name}", str(getattr(job, name))]
    if job.row_dtype != "float32":
        command += ["--row_type", job.row_dtype]
    return [*command, "--dense" if job.hotness == 1 else "--mean", job.ids] if job.ids else command


class MeasuringProcess:
    """The running program. A context manager: leaving it ends the program.

    Args:
      name: The name in error messages.
      command: Program and arguments.
      variables: Environment variables of the program; None for those of this process.
      log: File for the program's standard error; None to leave it on this process's standard error.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        variables: Mapping[str, str] | None = None,
        log: pathlib.Path | None = None,
    ) -> None:
        self.name = name
        self._log = log
        stderr = None if log is None else open(log, "wb")  # noqa: SIM115
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(
            list(command), stdin=pipe, stdout=pipe, stderr=stderr, text=True, env=variables
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
        """Waits until the program's tables are filled; raises as `ask`."""
        self._expect_line()

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

    def contender(self, what: str) -> Contender:
        """A contender that this program measures."""
        return lambda calls: Sample(*map(float, self.ask(f"0 {what} {calls}").split()))

    def checked(self, path: pathlib.Path) -> np.ndarray:
        """As Side.checked in sides.py; the outputs come in the file `path`."""
        self.ask(f"0 check {path}")
        return np.load(path)

    def _expect_line(self) -> str:
        line = self._process.stdout.readline()
        if line:
            return line.rstrip("\n")
        message = f"{self.name} ended with status {self._process.wait()}"
        if self._log is not None:
            lines = self._log.read_text(encoding="utf-8", errors="replace").splitlines()
            message += "".join(f"\n    {line}" for line in lines[-5:])
        raise RuntimeError(message)


def answer_lines(make: Callable[[], Callable[[str, str], object]]) -> None:
    """Is such a program: `make()` fills the tables, and returns what answers "0 <what> <argument>".

    An answer that is a Sample is printed as its two times.
    """
    # Libraries may print to standard output. It is redirected to standard error; answers go to a copy of it.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    answer = make()
    print("ready", file=answers, flush=True)
    for line in sys.stdin:
        _, what, argument = line.rstrip("\n").split(" ", 2)
        result = answer(what, argument)
        print(*(result if isinstance(result, Sample) else [result]), file=answers, flush=True)
