"""Compares libraries on one job: checks that their results agree, and times them and the machine's memory."""

from __future__ import annotations

import pathlib
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from bench import jobs, machine
from bench.report import Goal, Result
from bench.sides import LAZY, LIBRARIES, OURS
from bench.timing import Contender, measure

ENGINE = "engine"
GATHER = "bare gather"
COPY = "memory copy"
# Libraries sum thousands of float32 gradients in different orders.
_RELATIVE, _ABSOLUTE = 1e-4, 1e-5

# (what, optimizer, beside, least, aim): a goal of our results; None is any optimizer.
_GOALS = (
    ("step", "lazy_adam", "tfra", 8.0, 12.0),
    ("step", "lazy_adam", "tensorflow", 2.0, 3.0),
    ("step", "rowwise_adagrad", "fbgemm", 1.0, 1.5),
    ("step", "adam", LAZY, 1 / 1.5, None),
    ("step", "adam", "tensorflow", 50.0, None),
    # The cost of the op layer: a session's step may take at most 1.25 times as long as the bare engine's.
    ("step", None, ENGINE, 1 / 1.25, None),
    ("forward", None, "fbgemm", 1.3, None),
)
_LARGE_BYTES = 0.99 * 3e9  # least size of the tables in the goal of forward
# Least number of rows in the goal of exact Adam: the ten million rows of a default run, rounded down per
# feature.
_MANY_ROWS = 9e6


def check_agreement(measured: Mapping[str, Any], folder: pathlib.Path, row_dtype: str = "float32") -> None:
    """Trains each library one step on each batch, and compares outputs before and after.

    Outputs of rows in 16 bits are compared before only, as libraries round steps differently.

    Raises:
      AssertionError: A library's outputs differ from ours.
    """
    compared = [name for name in measured if name in LIBRARIES and not LIBRARIES[name].trains_with]
    ours = measured[OURS].checked(folder / "outputs.npy")
    count = len(ours) if row_dtype == "float32" else len(ours) // 2
    for name in compared:
        if name != OURS:
            theirs = measured[name].checked(folder / "outputs.npy")
            what = f"{name} and {OURS}, before or after training"
            # Not an assert statement, which python -O removes.
            np.testing.assert_allclose(theirs[:count], ours[:count], _RELATIVE, _ABSOLUTE, err_msg=what)


def compare(
    job: jobs.Job,
    batches: list[jobs.Batch],
    measured: Mapping[str, Any],
    whats: Sequence[str],
    rounds: int,
    copy: Contender,
) -> list[Result]:
    """Measures each of `whats` with each of `measured`, in the same rounds.

    Args:
      job: The job.
      batches: Its batches.
      measured: Sides or processes, by name, ours first.
      whats: "forward", "lookup" or "step".
      rounds: How many.
      copy: Copies machine.COPY_BYTES of memory.

    Returns:
      A result for each of `whats`, with the time of a memory copy of as many bytes as it must move.
    """
    contenders = {COPY: copy}
    for what in whats:
        for name, one in measured.items():
            if name != GATHER or what == "forward":
                contenders[f"{name} {what}"] = one.contender(what)
    if "lookup" in whats:
        contenders["run"] = measured[OURS].contender("run")
    timings = measure(contenders, rounds)
    ids, unique = jobs.ids_per_step(batches), jobs.unique_per_step(batches)
    results = []
    for what in whats:
        moved = job.bytes_moved(what, ids, unique)
        bound = {f"{moved / 1e6:.1f} MB copied": timings[COPY].times(moved / machine.COPY_BYTES / 2)}
        if "run" in timings:
            bound["session.run alone"] = timings["run"]
        own = {name: timings[f"{name} {what}"] for name in measured if f"{name} {what}" in timings}
        question = {
            **{name: getattr(job, name) for name in ("threads", "features", "batch", "zipf")},
            "MB of rows": round(job.bytes / 1e6),
            **{name: getattr(job, name) for name in ("optimizer", "dim", "hotness", "row_dtype")},
            "what": what,
        }
        counts = {"ids": ids, "unique": unique}
        results.append(Result(question, {**bound, **own}, OURS, counts, goals=goals_of(job, what, own)))
    return results


def goals_of(job: jobs.Job, what: str, besides: Collection[str]) -> tuple[Goal, ...]:
    """The goals of our `what` that apply to the job and these contenders."""
    goals = []
    if job.row_dtype != "float32":
        return ()
    for goal_what, optimizer, beside, least, aim in _GOALS:
        if goal_what != what or beside not in besides or optimizer not in (None, job.optimizer):
            continue
        if what == "forward" and job.bytes < _LARGE_BYTES:
            continue
        if (optimizer, beside) == ("adam", "tensorflow") and job.features * job.rows < _MANY_ROWS:
            continue
        goals.append(Goal(beside, least, aim))
    return tuple(goals)
