"""The bare engine beside the sessions: the C++ program group_benchmark, which measures on demand."""

from __future__ import annotations

import pathlib
import subprocess
from collections.abc import Sequence

from bench.axes import Tables
from bench.timing import Contender, Sample

_ROOT = pathlib.Path(__file__).absolute().parents[2]
_PROGRAM = pathlib.Path("benchmarks", "engine", "group_benchmark")


def find_program() -> pathlib.Path | None:
    """The built program, in a checkout's bazel-bin or in a target's runfiles; None where it is not built."""
    for folder in (_ROOT / "bazel-bin", _ROOT):
        if (folder / _PROGRAM).is_file():
            return folder / _PROGRAM
    return None


class EngineProcess:
    """A running group_benchmark, its tables filled. Use it as a context manager."""

    def __init__(
        self,
        program: pathlib.Path,
        tables: Tables,
        batch: int,
        batches: int,
        threads: int,
        id_files: Sequence[tuple[str, pathlib.Path]],
    ) -> None:
        """Starts it; `id_files` are kinds ("dense" or "mean") and what `ids.write_batches` wrote."""
        numbers = {
            "--features": tables.features,
            "--rows": tables.rows_per_table,
            "--dim": tables.dim,
            "--batch": batch,
            "--batches": batches,
            "--threads": threads,
        }
        command = [str(program), "--optimizer", tables.optimizer]
        for flag, value in numbers.items():
            command += [flag, str(value)]
        for kind, path in id_files:
            command += [f"--{kind}", str(path)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._expect_line()

    def __enter__(self) -> EngineProcess:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait()

    def sample(self, ids: int, what: str, calls: int) -> Sample:
        """What a call of `what` ("forward", "lookup" or "step") takes with the ids of file number `ids`."""
        self._process.stdin.write(f"{ids} {what} {calls}\n")
        self._process.stdin.flush()
        wall, cpu = self._expect_line().split()
        return Sample(float(wall), float(cpu))

    def _expect_line(self) -> str:
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"group_benchmark ended with status {self._process.wait()}")
        return line


class EngineContender(Contender):
    """One of the things that an EngineProcess measures."""

    def __init__(self, name: str, process: EngineProcess, ids: int, what: str) -> None:
        super().__init__(name)
        self._process = process
        self._ids = ids
        self._what = what

    def sample(self, calls: int) -> Sample:
        """See Contender."""
        return self._process.sample(self._ids, self._what, calls)
