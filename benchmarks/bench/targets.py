"""What sessions run, whoever owns the tables."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import tensorflow as tf


@dataclasses.dataclass(frozen=True)
class Targets:
    """What a session runs of one lookup: `lookup` in training, `forward` alone, and a whole `step`."""

    lookup: Sequence[tf.Operation]
    forward: Sequence[tf.Operation]
    step: Sequence[tf.Operation]
    outputs: Sequence[tf.Tensor]  # of the lookup in training, float32 [bags, dim] for each feature


def consumed(outputs: Sequence[tf.Tensor]) -> tf.Operation:
    """An op that takes the outputs and copies nothing. Behind a tf.group alone, TensorFlow's graph optimizer
    leaves lookups out that have no effect but their outputs."""
    return tf.raw_ops.IdentityN(input=list(outputs))[0].op
