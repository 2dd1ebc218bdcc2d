"""Checks that two sides compute the same results; otherwise comparing their speed would be meaningless."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf

from bench.inputs import RotatingBatches
from bench.sides import Targets

TOLERANCE = 1e-5


def check_agreement(
    session: tf.compat.v1.Session,
    batches: RotatingBatches,
    count: int,
    ours: Targets,
    trained: Targets,
    read_only: Mapping[str, Targets],
) -> None:
    """Trains both sides one step on each of `count` batches and compares their outputs before and after.

    Args:
      session: A session in which the tables of both sides hold the same rows.
      batches: The batches that all targets look up.
      count: The number of batches in the rotation.
      ours: SOK's targets.
      trained: TensorFlow's targets; their `step` trains TensorFlow's tables.
      read_only: Other targets on TensorFlow's tables, by name. Their outputs are compared, but they do not
        train.

    Raises:
      AssertionError: Outputs differ by more than TOLERANCE.
    """
    others = {"step's own": trained, **read_only}
    for when in ("before training", "after training"):
        expected = _all_outputs(session, batches, count, ours)
        for name, targets in others.items():
            for a, b in zip(expected, _all_outputs(session, batches, count, targets)):
                # Not an assert statement, which python -O removes.
                np.testing.assert_allclose(a, b, rtol=0, atol=TOLERANCE, err_msg=f"{name}, {when}")
        if when == "before training":
            _run(session, batches, count, ours.step)
            _run(session, batches, count, trained.step)


def _all_outputs(
    session: tf.compat.v1.Session, batches: RotatingBatches, count: int, targets: Targets
) -> list[np.ndarray]:
    batches.restart(session)
    return [output for _ in range(count) for output in session.run(list(targets.outputs))]


def _run(
    session: tf.compat.v1.Session, batches: RotatingBatches, count: int, ops: Sequence[tf.Operation]
) -> None:
    batches.restart(session)
    for _ in range(count):
        session.run(ops)
