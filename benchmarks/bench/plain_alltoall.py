"""The peer over ranks: `tf.Variable` shards, with lookups by Horovod's plain alltoall for each feature."""

from __future__ import annotations

from collections.abc import Sequence

import horovod.tensorflow as hvd
import numpy as np
import tensorflow as tf

from bench.axes import Tables
from bench.inputs import FeatureTensors
from bench.optimizers import make_optimizer
from bench.targets import Targets, consumed


class PlainAlltoallSide:
    """Tables with a fixed number of rows; row i of a table is row i // ranks of rank i % ranks.

    A lookup has two alltoalls: it sends ids to their owners and gets rows back. The gradient of the second is
    a third alltoall. Models without a sparse library are written like this, with or without `tf.unique`.
    """

    def __init__(self, tables: Tables, rows: Sequence[np.ndarray]) -> None:
        self.variables = [
            tf.compat.v1.get_variable(
                f"plain_{feature}", initializer=values[hvd.rank() :: hvd.size()], use_resource=True
            )
            for feature, values in enumerate(rows)
        ]
        self._optimizer = make_optimizer(tables.optimizer)

    def targets(
        self, features: Sequence[FeatureTensors], gradients: Sequence[tf.Tensor], unique: bool
    ) -> Targets:
        """As Side.targets in bench.sides, for one id per bag. Its lookup in training equals forward."""
        kind = "unique" if unique else "plain"
        outputs = [
            (_look_up_unique if unique else _look_up)(variable, feature.ids, f"{kind}_{number}")
            for number, (variable, feature) in enumerate(zip(self.variables, features))
        ]
        slices = tf.gradients(outputs, self.variables, grad_ys=list(gradients))
        update = self._optimizer.apply_gradients(zip(slices, self.variables))
        lookup = consumed(outputs)
        return Targets([lookup], [lookup], [lookup, update], outputs)


def _look_up_unique(variable: tf.Variable, ids: tf.Tensor, name: str) -> tf.Tensor:
    unique, inverse = tf.unique(ids)
    return tf.gather(_look_up(variable, unique, name), inverse)


def _look_up(variable: tf.Variable, ids: tf.Tensor, name: str) -> tf.Tensor:
    ranks = hvd.size()
    owner = tf.cast(tf.math.floormod(ids, ranks), tf.int32)
    by_owner = tf.argsort(owner, stable=True)
    splits = tf.math.bincount(owner, minlength=ranks, maxlength=ranks)
    asked, asked_splits = hvd.alltoall(tf.gather(ids, by_owner), splits=splits, name=f"{name}_ids")
    rows, _ = hvd.alltoall(
        tf.gather(variable, asked // ranks),
        splits=tf.ensure_shape(asked_splits, [ranks]),
        name=f"{name}_rows",
    )
    # From the order of owners to the order of ids.
    return tf.gather(rows, tf.math.invert_permutation(by_owner))
