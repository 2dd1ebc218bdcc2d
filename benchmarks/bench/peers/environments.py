"""The interpreter and the environment variables of each library's process."""

from __future__ import annotations

import os
import pathlib
import sys

from bench.peers.catalog import OTHER, Library

_BENCHMARKS = pathlib.Path(__file__).absolute().parents[2]


def default_folder() -> pathlib.Path:
    """The folder in which benchmarks/setup_peers.sh makes environments."""
    home = os.environ.get("SOK_HOME") or pathlib.Path.home() / ".cache" / "sparse-operation-kit"
    return pathlib.Path(home) / "peers"


def built_by(checkout: pathlib.Path) -> pathlib.Path:
    """Where a checkout's `bazel build` leaves what it has built."""
    return checkout / "bazel-bin"


def interpreter(library: Library, folder: pathlib.Path) -> pathlib.Path | None:
    """The Python interpreter of the library's environment; None if there is no such environment."""
    if library.environment is None:
        return pathlib.Path(sys.executable)
    # The set-up writes the stamp last: an environment without it is incomplete.
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
        # Read by OpenMP only. Waiting threads sleep: if other processes run too, spinning threads take
        # processor time from the library's working threads, and a step takes several times as long.
        "OMP_NUM_THREADS": str(threads),
        "OMP_WAIT_POLICY": "PASSIVE",
        **dict(library.variables),
    }
