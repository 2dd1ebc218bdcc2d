"""The bandwidth of a GPU's memory."""

from __future__ import annotations

import tensorflow as tf

from bench.machine import COPY_BYTES, MemoryCopy
from bench.timing import CallContender


class DeviceCopy(CallContender):
    """Like `MemoryCopy`, but on the GPU: a TensorFlow op in a session that the caller initializes."""

    gigabytes_per_second = staticmethod(MemoryCopy.gigabytes_per_second)

    def __init__(self, name: str, session: tf.compat.v1.Session) -> None:
        source = tf.compat.v1.get_variable(
            name.replace(" ", "_"),
            [COPY_BYTES // 4],
            initializer=tf.compat.v1.zeros_initializer,
            trainable=False,
        )
        copy = tf.raw_ops.DeepCopy(x=source).op
        super().__init__(name, lambda: session.run(copy))
