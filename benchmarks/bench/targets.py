"""The ops that sessions run to measure a lookup, on any side."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import tensorflow as tf


@dataclasses.dataclass(frozen=True)
class Targets:
    """The ops of one lookup: `lookup` in training, `forward` outside of training, and a whole `step`."""

    lookup: Sequence[tf.Operation]
    forward: Sequence[tf.Operation]
    step: Sequence[tf.Operation]
    outputs: Sequence[tf.Tensor]  # of the lookup in training, float32 [bags, dim] for each feature


def consumed(outputs: Sequence[tf.Tensor]) -> tf.Operation:
    """An op that takes the outputs without copying them.

    A tf.group would not do: TensorFlow's graph optimizer removes lookups that have no effect but their
    outputs.
    """
    return tf.raw_ops.IdentityN(input=list(outputs))[0].op
