"""The C++ programs that take turns with others: the bare engine, and the bound of gathering rows."""

from __future__ import annotations

import pathlib
from collections.abc import Sequence

from bench.axes import Tables
from bench.measuring_process import MeasuringProcess

_ROOT = pathlib.Path(__file__).absolute().parents[2]
_FOLDER = pathlib.Path("benchmarks", "engine")


def find_program(name: str = "group_benchmark") -> pathlib.Path | None:
    """The built program, in a checkout's bazel-bin or in a target's runfiles; None where it is not built."""
    for folder in (_ROOT / "bazel-bin", _ROOT):
        if (folder / _FOLDER / name).is_file():
            return folder / _FOLDER / name
    return None


class EngineProcess(MeasuringProcess):
    """A started group_benchmark, or a program that takes the same flags."""

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
        super().__init__(program.name, command)
