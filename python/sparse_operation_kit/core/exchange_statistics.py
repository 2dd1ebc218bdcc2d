"""What a process has exchanged with the other ranks, counted."""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

from sparse_operation_kit import native


class ExchangeStatistics(NamedTuple):
    """Numbers since the process started; scalar int64 tensors, or what a session made of them.

    An exchange counts once it has ended well. Bytes are those of its words, without what Horovod adds;
    those from a rank to itself are in `bytes_sent` and `bytes_received` only.
    """

    exchanges: tf.Tensor
    bytes_sent: tf.Tensor
    bytes_received: tf.Tensor
    bytes_sent_to_others: tf.Tensor
    bytes_received_from_others: tf.Tensor


def exchange_statistics() -> ExchangeStatistics:
    """Returns tensors that give this process's numbers each time they are run.

    To count a step, run them before and after it, not in it.

    Raises:
      ImportError: There is no Horovod, or the library was built without it.
    """
    return ExchangeStatistics(*tf.unstack(native.horovod_ops().sok_exchange_statistics(), 5))
