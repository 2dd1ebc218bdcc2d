"""What ranks do together in stages: all learn of the failure of one before any goes on."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import tensorflow as tf

from sparse_operation_kit import native
from sparse_operation_kit.core.communicator import communicator

# Names are part of every negotiation between ranks: many tables are told by a fingerprint.
_LONGEST_LIST = 120


def list_of(names: Sequence[str]) -> str:
    """The names in quotes, for messages and the names of exchanges."""
    everything = ", ".join(f"'{name}'" for name in names)
    if len(everything) <= _LONGEST_LIST:
        return everything
    fingerprint = hashlib.sha256(everything.encode()).hexdigest()[:16]
    return f"'{names[0]}' and {len(names) - 1} more ({fingerprint})"


def agree(words: tf.Tensor, name: str) -> tf.Tensor:
    """Returns the int64 words `[k]` of every rank, `[ranks, k]`.

    An exchange and not an allgather: where a rank does not come, the others are told who waits for what.
    """
    known = communicator()
    if known.size == 1:
        return words[tf.newaxis]
    count = words.shape.num_elements()
    received, _ = known.exchange(tf.tile(words, [known.size]), tf.fill([known.size], count), name)
    return tf.reshape(received, [known.size, count])


class Stages:
    """Stages whose ops report their errors, to be raised on all ranks when all know of them.

    Attributes:
      proceed: scalar bool tensor, whether no rank has failed in the stages so far.
    """

    def __init__(self, what: str) -> None:
        """`what` begins messages and the names of exchanges: it is the same on all ranks."""
        self.proceed = tf.constant(True)
        self._what = what
        self._codes: list[tf.Tensor] = []
        self._messages: list[tf.Tensor] = []
        self._failures: list[tf.Tensor] = []

    def add(
        self, code: tf.Tensor, message: tf.Tensor, stage: str, words: Sequence[tf.Tensor] = ()
    ) -> tf.Tensor:
        """Has the ranks agree on a stage's outcome. Returns the int64 scalars of each, `[ranks, k]`."""
        failed = tf.cast(tf.not_equal(code, 0), tf.int64)
        of_all = agree(tf.stack([failed, *words]), f"{self._what}: {stage}")
        failures = of_all[:, 0]
        self.proceed = tf.logical_and(self.proceed, tf.reduce_all(tf.equal(failures, 0)))
        self._codes.append(code)
        self._messages.append(message)
        self._failures.append(tf.cast(failures, tf.int32))
        return of_all[:, 1:]

    def raise_failures(self) -> tf.Tensor:
        """Returns the tensor that is `b'OK'` when all stages have succeeded on all ranks, or else raises."""
        return native.ops.sok_raise_failures(
            self._codes, self._messages, tf.add_n(self._failures), what=self._what
        )
