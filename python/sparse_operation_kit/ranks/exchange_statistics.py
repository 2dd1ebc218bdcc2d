"""Counts of a process's exchanges with other ranks."""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

from sparse_operation_kit import native


class ExchangeStatistics(NamedTuple):
    """Counts since the process started: scalar int64 tensors, or the values that a session returned for them.

    Only successful exchanges count. Bytes are those of the exchanged words, without Horovod's overhead. Bytes
    from a rank to itself count in `bytes_sent` and `bytes_received` only.
    """

    exchanges: tf.Tensor
    bytes_sent: tf.Tensor
    bytes_received: tf.Tensor
    bytes_sent_to_others: tf.Tensor
    bytes_received_from_others: tf.Tensor


def exchange_statistics() -> ExchangeStatistics:
    """Returns tensors that read this process's counts whenever they run.

    To count the exchanges of a step, run them before and after the step, not in it.

    Raises:
      ImportError: Horovod is missing, or no exchange library was built for it.
    """
    return ExchangeStatistics(*tf.unstack(native.horovod_ops().sok_exchange_statistics(), 5))
