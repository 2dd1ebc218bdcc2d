"""Processes of the C++ benchmarks that measure on demand, such as the bare engine."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Sequence

from bench.axes import Tables
from bench.measuring_process import MeasuringProcess

_BAZEL_BIN = pathlib.Path(__file__).absolute().parents[2] / "bazel-bin"


def find_program(name: str = "group_benchmark") -> pathlib.Path | None:
    """The path of the program, or None if it is not built.

    The environment variable SOK_BAZEL_BIN is the folder of builds, by default the checkout's bazel-bin.
    tools/python.sh sets it, because each TensorFlow version has its own builds.
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
        """Starts the program. `id_files` are pairs: "dense" or "mean", and a file of `ids.write_batches`."""
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
