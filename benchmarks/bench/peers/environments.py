"""Where each library's interpreter is, and what its process starts with."""

from __future__ import annotations

import os
import pathlib
import sys

from bench.peers.catalog import OTHER, Library

_BENCHMARKS = pathlib.Path(__file__).absolute().parents[2]


def default_folder() -> pathlib.Path:
    """Where benchmarks/setup_peers.sh makes environments."""
    home = os.environ.get("SOK_HOME") or pathlib.Path.home() / ".cache" / "sparse-operation-kit"
    return pathlib.Path(home) / "peers"


def built_by(checkout: pathlib.Path) -> pathlib.Path:
    """Where a checkout's `bazel build` leaves what it has built."""
    return checkout / "bazel-bin"


def interpreter(library: Library, folder: pathlib.Path) -> pathlib.Path | None:
    """The Python to run the library with; None where its environment is not there."""
    if library.environment is None:
        return pathlib.Path(sys.executable)
    # The set-up writes the stamp last: without it an environment is unfinished.
    if not (folder / library.environment / ".stamp").is_file():
        return None
    return folder / library.environment / "bin" / "python"


def variables(library: Library, threads: int, other: pathlib.Path | None = None) -> dict[str, str]:
    """The environment variables of the library's process; `other` is the checkout of OTHER."""
    ours = os.pathsep.join(sys.path) if library.environment is None else str(_BENCHMARKS)
    if library.name == OTHER:
        ours = os.pathsep.join([str(built_by(other) / "tools" / "site"), str(_BENCHMARKS)])
    return {
        **os.environ,
        "PYTHONPATH": ours,
        "TF_CPP_MIN_LOG_LEVEL": "2",
        # Only what runs through OpenMP reads these. Threads that wait sleep: where other processes run too,
        # threads that spin take the processor from their own side, and a step takes ten times as long.
        "OMP_NUM_THREADS": str(threads),
        "OMP_WAIT_POLICY": "PASSIVE",
        **dict(library.variables),
    }
