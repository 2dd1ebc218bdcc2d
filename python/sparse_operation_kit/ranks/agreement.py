"""Work that ranks do together in stages: if a rank fails, all ranks know it before the next stage."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from sparse_operation_kit import native
from sparse_operation_kit.ranks.communicator import communicator


def agree(words: tf.Tensor, name: str) -> tf.Tensor:
    """Returns the int64 words `[k]` of every rank, `[ranks, k]`."""
    known = communicator()
    if known.size == 1:
        return words[tf.newaxis]
    received, _ = known.send_to_all(words, name)
    return tf.reshape(received, [known.size, words.shape.num_elements()])


class Stages:
    """Stages whose ops return their errors, which are raised on all ranks after the last stage.

    Attributes:
      proceed: scalar bool tensor, whether no rank has failed so far.
    """

    def __init__(self, what: str, exchange: str | None = None) -> None:
        """Starts without stages.

        Args:
          what: the beginning of error messages and, unless `exchange` is given, of exchange names; the same
            on all ranks.
          exchange: the beginning of exchange names.
        """
        self.proceed = tf.constant(True)
        self._what = what
        self._exchange = exchange or what
        self._codes: list[tf.Tensor] = []
        self._messages: list[tf.Tensor] = []
        self._failures: list[tf.Tensor] = []

    def add(
        self, results: Sequence[tuple[tf.Tensor, tf.Tensor]], stage: str, words: Sequence[tf.Tensor] = ()
    ) -> tf.Tensor:
        """Adds a stage, after which all ranks know whether one has failed.

        Args:
          results: the stage's error code and message, an int32 and a string scalar, on this rank, or on each
            parameter server; the code is 0 for success.
          stage: the stage's name, the same on all ranks.
          words: k int64 scalars to send to all ranks.

        Returns:
          The words of all ranks, int64 `[ranks, k]`.
        """
        failures_here = [tf.not_equal(code, 0) for code, _ in results]
        failed = failures_here[0] if len(results) == 1 else tf.reduce_any(tf.stack(failures_here))
        if communicator().size == 1:
            # Savers add stages for each table, so these are as few ops as possible.
            any_failed, failures = failed, tf.expand_dims(tf.cast(failed, tf.int32), 0)
            words_of_all = tf.stack([words]) if words else tf.zeros([1, 0], tf.int64)
        else:
            of_all = agree(tf.stack([tf.cast(failed, tf.int64), *words]), f"{self._exchange}: {stage}")
            failures, words_of_all = tf.cast(of_all[:, 0], tf.int32), of_all[:, 1:]
            any_failed = tf.reduce_any(tf.not_equal(failures, 0))
        self.proceed = tf.logical_and(self.proceed, tf.logical_not(any_failed))
        self._codes += [code for code, _ in results]
        self._messages += [message for _, message in results]
        self._failures.append(failures)
        return words_of_all

    def raise_failures(self) -> tf.Tensor:
        """Returns a tensor that is `b'OK'` if all stages succeeded on all ranks; otherwise it raises."""
        return native.ops.sok_raise_failures(
            self._codes, self._messages, tf.add_n(self._failures), what=self._what
        )
