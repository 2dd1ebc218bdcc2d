"""tensorflow-recommenders-addons: dynamic embedding tables."""

from __future__ import annotations

import types
from collections.abc import Sequence

import tensorflow as tf

from bench.inputs import FeatureTensors
from bench.peers.session_tables import SessionTables
from bench.targets import Targets, consumed

LEARNING_RATE = 0.001


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


class Tables(SessionTables):
    """See HeldTables."""

    def _prepare(self) -> None:
        tables = self.job.tables
        train = tf.compat.v1.train
        makers = {
            "lazy_adam": train.AdamOptimizer,
            "adagrad": train.AdagradOptimizer,
            "sgd": train.GradientDescentOptimizer,
        }
        self._optimizer = de.DynamicEmbeddingOptimizer(makers[tables.optimizer](LEARNING_RATE))
        self._variables = [
            de.get_variable(
                f"tfra_{feature}",
                dim=tables.dim,
                devices=["/CPU:0"],
                initializer=0.0,
                init_size=tables.rows_per_table,
            )
            for feature in range(tables.features)
        ]
        self._rows = tf.compat.v1.placeholder(tf.float32, [tables.rows_per_table, tables.dim])
        keys = tf.range(tables.rows_per_table, dtype=tf.int64)
        self._insert = [variable.upsert(keys, self._rows) for variable in self._variables]

    def _make_targets(
        self, one_hot: bool, features: Sequence[FeatureTensors], gradients: Sequence[tf.Tensor]
    ) -> Targets:
        pairs = list(zip(self._variables, features))
        forward = [_forward(one_hot, *pair) for pair in pairs]
        outputs, wrappers = zip(*(_trained(one_hot, *pair) for pair in pairs))
        slices = tf.gradients(outputs, wrappers, grad_ys=list(gradients))
        update = self._optimizer.apply_gradients(zip(slices, wrappers))
        lookup = consumed(outputs)
        return Targets([lookup], [consumed(forward)], [lookup, update], outputs)

    def _fill(self, feature: int) -> None:
        self._session.run(self._insert[feature], {self._rows: self.job.rows(feature)})


def _forward(one_hot: bool, variable: object, feature: FeatureTensors) -> tf.Tensor:
    if one_hot:
        return variable.lookup(feature.ids)
    unique = tf.unique(feature.ids)
    bags = tf.cast(feature.sparse.indices[:, 0], tf.int32)
    return tf.raw_ops.SparseSegmentMean(data=variable.lookup(unique.y), indices=unique.idx, segment_ids=bags)


def _trained(one_hot: bool, variable: object, feature: FeatureTensors) -> tuple[tf.Tensor, tf.Variable]:
    """The outputs, and the temporary variable that the optimizer trains."""
    name = tf.compat.v1.get_default_graph().unique_name("trained", mark_as_used=True)
    if one_hot:
        return de.embedding_lookup_unique(variable, feature.ids, name=name, return_trainable=True)
    return de.embedding_lookup_sparse(
        variable, feature.sparse, None, combiner="mean", name=name, return_trainable=True
    )
