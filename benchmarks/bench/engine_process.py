"""The C++ programs that take turns with others: the bare engine, and the bound of gathering rows."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Sequence

from bench.axes import Tables
from bench.measuring_process import MeasuringProcess

_BAZEL_BIN = pathlib.Path(__file__).absolute().parents[2] / "bazel-bin"


def find_program(name: str = "group_benchmark") -> pathlib.Path | None:
    """The built program, or None where it is not built.

    Environment variable SOK_BAZEL_BIN says where builds lie: tools/python.sh sets it, as each version of
    TensorFlow has its own. By default it is the checkout's bazel-bin.
    """
    folder = pathlib.Path(os.environ.get("SOK_BAZEL_BIN", _BAZEL_BIN))
    program = folder / "benchmarks" / "engine" / name
    return program if program.is_file() else None


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
