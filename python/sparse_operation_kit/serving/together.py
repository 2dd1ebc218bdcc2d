"""Exports that all ranks begin and end together."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import numpy as np
import tensorflow as tf

from sparse_operation_kit.ranks.communicator import communicator
from sparse_operation_kit.saver import agreement

# How long ranks wait for each other before an export begins.
_PATIENCE_SECONDS = 30


class Together:
    """Makes all ranks begin and end an export together."""

    def __init__(self, what: str) -> None:
        """Adds the ops to the default graph.

        Args:
          what: The function that exports, for messages; the same on all ranks.
        """
        self._what = what
        self._number = tf.compat.v1.placeholder(tf.int64, [], name="export_number")
        self._of_all = agreement.agree(tf.reshape(self._number, [1]), f"{what}: an export for serving")

    def begin(self, session: tf.compat.v1.Session) -> None:
        """Waits for all ranks. Raises FailedPreconditionError if one does not come."""
        try:
            options = tf.compat.v1.RunOptions(timeout_in_ms=_PATIENCE_SECONDS * 1000)
            # The first time may meet a call on which another rank gave up.
            for _ in range(2):
                session.run(self._of_all, {self._number: 0}, options=options)
        except tf.errors.DeadlineExceededError:
            raise tf.errors.FailedPreconditionError(
                None,
                None,
                f"{self._what}: not all {communicator().size} ranks have called it within "
                f"{_PATIENCE_SECONDS} seconds. All must, as each has a part of the rows",
            ) from None

    @contextlib.contextmanager
    def ending(self, session: tf.compat.v1.Session) -> Iterator[None]:
        """Returns a context that all ranks leave together. If one fails in it, the others raise."""
        try:
            yield
        except Exception:
            self.numbers(session, 1)
            raise
        if self.numbers(session, 0).any():
            raise tf.errors.FailedPreconditionError(
                None, None, f"{self._what}: another rank failed; its error has the reason"
            )

    def numbers(self, session: tf.compat.v1.Session, number: int) -> np.ndarray:
        """Returns the number that each rank gives, int64 [ranks]. All ranks call it."""
        return session.run(self._of_all, {self._number: number})[:, 0]
