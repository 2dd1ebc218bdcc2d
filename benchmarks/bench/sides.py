"""The libraries that are compared, and the process of each.

`python -m bench.sides NAME JOB` is a program as in processes.py, with a job's rows in the library's tables.
"check" with a file trains one step on each batch, and writes what `Side.checked` returns.
"""

from __future__ import annotations

import abc
import argparse
import dataclasses
import functools
import importlib
import itertools
import json
import os
import pathlib
import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from bench import flags, processes
from bench.jobs import Job
from bench.timing import Contender, contender, sample

OURS = "sok"
OTHER = "sok_other"  # ours, as another checkout has built it
LAZY = "sok_lazy"  # ours, but training with LazyAdam where the others train with exact Adam
LEARNING_RATE = 0.001
# Per feature; enough to include frequent and rare ids.
_CHECKED_BAGS = 256


class Library(NamedTuple):
    """A library, where its tables are implemented, and the optimizers that it has for sparse gradients."""

    place: str  # module and class in bench
    environment: str = ""  # name of a file in benchmarks/requirements, without .txt; "": our environment
    optimizers: Sequence[str] = flags.OPTIMIZERS
    row_dtypes: Sequence[str] = ("float32",)
    # If set, it trains with this optimizer instead of the run's, so that its results are not compared.
    trains_with: str = ""


LIBRARIES = {
    OURS: Library("session_sides.SokSide", row_dtypes=flags.ROW_DTYPES),
    OTHER: Library("session_sides.SokSide"),
    LAZY: Library("session_sides.SokSide", optimizers=("adam",), trains_with="lazy_adam"),
    "tensorflow": Library("session_sides.TensorFlowSide"),
    "tfra": Library("tfra_side.TfraSide", "tfra", ("lazy_adam", "adagrad", "sgd"), flags.ROW_DTYPES),
    "torch": Library("torch_sides.TorchSide", "torch", ("lazy_adam", "adagrad", "sgd")),
    "fbgemm": Library(
        "torch_sides.FbgemmSide",
        "torch",
        ("adagrad", "sgd", "rowwise_adagrad"),
        row_dtypes=("float32", "float16"),
    ),
}


class Side(abc.ABC):
    """One library's tables with a job's rows, and lookups and training steps with the job's ids."""

    def __init__(self, job: Job) -> None:
        self.job = job

    @abc.abstractmethod
    def call(self, what: str) -> Callable[[], object]:
        """A function that runs `what`, "forward" or "step", on the next batch."""

    @abc.abstractmethod
    def outputs(self) -> Sequence[np.ndarray]:
        """The outputs of the first batch, float32 [bags, dim] for each feature."""

    @abc.abstractmethod
    def train(self) -> None:
        """Trains one step on each batch, starting with the first."""

    def contender(self, what: str) -> Contender:
        """A contender that runs `what` in this process."""
        return contender(self.call(what))

    def checked(self, path: pathlib.Path | None = None) -> np.ndarray:
        """Outputs of some bags before and after `train`, as an array, which is also written to `path`."""
        before = [feature[:_CHECKED_BAGS] for feature in self.outputs()]
        self.train()
        outputs = np.stack([*before, *(feature[:_CHECKED_BAGS] for feature in self.outputs())])
        if path is not None:
            np.save(path, outputs)
        return outputs


class EagerSide(Side):
    """A library that is called eagerly; calls rotate over `batches`."""

    batches: Sequence[Any]

    @abc.abstractmethod
    def _forward(self, batch: Any) -> Any:
        """A lookup outside of training."""

    @abc.abstractmethod
    def _step(self, batch: Any) -> None:
        """A whole training step."""

    def call(self, what: str) -> Callable[[], object]:
        """See Side."""
        run, rotation = {"forward": self._forward, "step": self._step}[what], itertools.cycle(self.batches)
        return lambda: run(next(rotation))

    def train(self) -> None:
        """See Side."""
        for batch in self.batches:
            self._step(batch)


def default_folder() -> pathlib.Path:
    """The folder in which benchmarks/setup_peers.sh makes environments."""
    home = os.environ.get("SOK_HOME") or pathlib.Path.home() / ".cache" / "sparse-operation-kit"
    return pathlib.Path(home) / "peers"


def interpreter(name: str, folder: pathlib.Path) -> pathlib.Path | None:
    """The Python interpreter of a library's environment; None if there is no such environment."""
    environment = LIBRARIES[name].environment
    if not environment:
        return pathlib.Path(sys.executable)
    # The set-up writes the stamp last: an environment without it is incomplete.
    is_there = (folder / environment / ".stamp").is_file()
    return folder / environment / "bin" / "python" if is_there else None


def can_run(name: str, job: Job, folder: pathlib.Path) -> bool:
    """Whether a library has the job's optimizer and row type, and an environment; says so if it has none."""
    library = LIBRARIES[name]
    if job.optimizer not in library.optimizers or job.row_dtype not in library.row_dtypes:
        return False
    if interpreter(name, folder) is not None:
        return True
    where = f"it has no environment in {folder}, where benchmarks/setup_peers.sh makes it."
    processes.say(f"{name} is left out: {where}")
    return False


def built_checkout(text: str) -> pathlib.Path:
    """Parses the folder of another checkout; returns the folder of what it has built."""
    built = pathlib.Path(text).absolute() / "bazel-bin"
    for part in ("tools/site", "benchmarks/engine/group_benchmark"):
        if not (built / part).exists():
            raise argparse.ArgumentTypeError(
                f"{text} has no bazel-bin/{part}: build it there with "
                "`bazel build //tools:site //benchmarks/engine:group_benchmark`"
            )
    return built


def variables_of(name: str, point: argparse.Namespace) -> dict[str, str]:
    """The environment variables of a library's process."""
    # OMP_* are read by OpenMP only. Waiting threads sleep: if other processes run too, spinning threads take
    # processor time from the library's working threads, and a step takes several times as long.
    variables = processes.environment(OMP_NUM_THREADS=str(point.threads), OMP_WAIT_POLICY="PASSIVE")
    variables["TF_USE_LEGACY_KERAS"] = "1" if name == "tfra" else "0"
    if LIBRARIES[name].environment or name == OTHER:
        package = [str(point.other / "tools" / "site")] if name == OTHER else []
        variables["PYTHONPATH"] = os.pathsep.join([*package, str(processes.BENCHMARKS)])
    return variables


def start(name: str, job: Job, point: argparse.Namespace, folder: pathlib.Path) -> processes.MeasuringProcess:
    """Starts a library's process; the log is in `folder`."""
    library = LIBRARIES[name]
    if library.trains_with:
        job = dataclasses.replace(job, optimizer=library.trains_with)
    variables = variables_of(name, point)
    python = interpreter(name, point.environments)
    command = [str(python), "-m", "bench.sides", name, json.dumps(dataclasses.asdict(job))]
    return processes.MeasuringProcess(name, command, variables, folder / f"{name}.log")


def _fill(name: str, job: Job) -> Callable[[str, str], object]:
    module, side_class = LIBRARIES[name].place.split(".")
    side: Side = getattr(importlib.import_module(f"bench.{module}"), side_class)(job)
    call = functools.lru_cache(maxsize=None)(side.call)

    def answer(what: str, argument: str) -> object:
        if what == "check":
            side.checked(pathlib.Path(argument))
            return argument
        return sample(call(what), int(argument))

    return answer


if __name__ == "__main__":
    processes.answer_lines(lambda: _fill(sys.argv[1], Job(**json.loads(sys.argv[2]))))
