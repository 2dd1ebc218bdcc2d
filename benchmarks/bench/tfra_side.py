"""tensorflow-recommenders-addons: dynamic embedding tables."""

from __future__ import annotations

import types
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from bench.session_sides import FeatureTensors, SessionSide, Targets, targets_of
from bench.sides import LEARNING_RATE


def _import_dynamic_embedding() -> types.ModuleType:
    """Imports the library without the op libraries that cannot be loaded.

    Its wheel is built for GPUs: op libraries with device code need symbols that only TensorFlow's CUDA wheel
    has. The cuckoo hash table, which runs on CPUs, is in an op library without device code.
    """
    load = tf.load_op_library

    def load_if_possible(path: str) -> object:
        try:
            return load(path)
        except tf.errors.NotFoundError:
            return types.SimpleNamespace()

    tf.load_op_library = load_if_possible
    try:
        from tensorflow_recommenders_addons import dynamic_embedding
    finally:
        tf.load_op_library = load
    return dynamic_embedding


de = _import_dynamic_embedding()


def make_optimizer(name: str) -> tf.compat.v1.train.Optimizer:
    """Makes an optimizer that trains `de.Variable`s and TensorFlow's variables."""
    train = tf.compat.v1.train
    makers = {
        "lazy_adam": train.AdamOptimizer,
        "adagrad": train.AdagradOptimizer,
        "sgd": train.GradientDescentOptimizer,
    }
    return de.DynamicEmbeddingOptimizer(makers[name](LEARNING_RATE))


def look_up(hotness: int, table: de.Variable, feature: FeatureTensors) -> tf.Tensor:
    """A lookup outside of training: rows of single ids, or means of bags."""
    if hotness == 1:
        return table.lookup(feature.ids)
    unique = tf.unique(feature.ids)
    bags = tf.cast(feature.sparse.indices[:, 0], tf.int32)
    return tf.raw_ops.SparseSegmentMean(data=table.lookup(unique.y), indices=unique.idx, segment_ids=bags)


class TfraSide(SessionSide):
    """A `de.Variable`, a cuckoo hash table, for each feature."""

    def _prepare(self) -> None:
        job = self.job
        self._optimizer = make_optimizer(job.optimizer)
        self._tables = [
            de.get_variable(
                f"tfra_{feature}",
                dim=job.dim,
                devices=["/CPU:0"],
                initializer=0.0,
                init_size=job.rows,
                value_dtype=job.row_dtype,
            )
            for feature in range(job.features)
        ]
        self._rows = tf.compat.v1.placeholder(tf.float32, [job.rows, job.dim])
        keys = tf.range(job.rows, dtype=tf.int64)
        rows = tf.cast(self._rows, job.row_dtype)
        self._insert = [table.upsert(keys, rows) for table in self._tables]

    def _make_targets(self, features: Sequence[FeatureTensors], gradients: Sequence[tf.Tensor]) -> Targets:
        pairs = list(zip(self._tables, features))
        forward = [tf.cast(look_up(self.job.hotness, *pair), tf.float32) for pair in pairs]
        outputs, wrappers = zip(*(self._trained(*pair) for pair in pairs))
        outputs = [tf.cast(output, tf.float32) for output in outputs]
        return targets_of(outputs, forward, wrappers, gradients, self._optimizer)

    def _fill(self, feature: int, rows: np.ndarray) -> None:
        self.session.run(self._insert[feature], {self._rows: rows})

    def _trained(self, table: object, feature: FeatureTensors) -> tuple[tf.Tensor, tf.Variable]:
        """The outputs, and the temporary variable that the optimizer trains."""
        name = tf.compat.v1.get_default_graph().unique_name("trained", mark_as_used=True)
        if self.job.hotness == 1:
            return de.embedding_lookup_unique(table, feature.ids, name=name, return_trainable=True)
        return de.embedding_lookup_sparse(
            table, feature.sparse, None, combiner="mean", name=name, return_trainable=True
        )
