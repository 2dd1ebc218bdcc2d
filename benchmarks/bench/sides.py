"""The two sides: SOK's tables and TensorFlow's variables, with the same lookups and the same training."""

from __future__ import annotations

import abc
from collections.abc import Sequence

import tensorflow as tf

import sparse_operation_kit as sok
from bench.axes import Tables
from bench.inputs import FeatureTensors
from bench.optimizers import make_optimizer
from bench.targets import Targets, consumed
from sparse_operation_kit.lookup import group


class Side(abc.ABC):
    """Tables, one for each feature, and the optimizer that trains them."""

    def __init__(self, tables: Tables) -> None:
        self.variables = [self._make_table(tables, feature) for feature in range(tables.features)]
        self._optimizer = make_optimizer(tables.optimizer)

    @abc.abstractmethod
    def _make_table(self, tables: Tables, feature: int) -> tf.Variable: ...

    def targets(
        self, kind: str, features: Sequence[FeatureTensors], gradients: Sequence[tf.Tensor]
    ) -> Targets:
        """Makes lookups of kind "gather" or "sparse", and steps that train with the outputs' `gradients`."""
        outputs = self._look_up(kind, features, training=True)
        forward = self._look_up(kind, features, training=False)
        slices = tf.gradients(outputs, self.variables, grad_ys=list(gradients))
        update = self._optimizer.apply_gradients(zip(slices, self.variables))
        # The step includes `lookup`: the gradients are given, so that the update alone would not need the
        # lookup, and TensorFlow would not run it.
        lookup = consumed(outputs)
        return Targets([lookup], [consumed(forward)], [lookup, update], outputs)

    @abc.abstractmethod
    def _look_up(self, kind: str, features: Sequence[FeatureTensors], training: bool) -> list[tf.Tensor]: ...


class TensorFlowSide(Side):
    """`tf.Variable` tables with a fixed number of rows."""

    def _make_table(self, tables: Tables, feature: int) -> tf.Variable:
        return tf.compat.v1.get_variable(
            f"tensorflow_{feature}",
            [tables.rows_per_table, tables.dim],
            initializer=tf.compat.v1.random_uniform_initializer(-0.05, 0.05),
            use_resource=True,
        )

    def _look_up(self, kind: str, features: Sequence[FeatureTensors], training: bool) -> list[tf.Tensor]:
        del training
        pairs = zip(self.variables, features)
        if kind == "gather":
            return [tf.gather(variable, feature.ids) for variable, feature in pairs]
        return [
            tf.nn.embedding_lookup_sparse(variable, feature.sparse, None, combiner="mean")
            for variable, feature in pairs
        ]


class SokSide(Side):
    """SOK's hash tables, all looked up as one group."""

    def _make_table(self, tables: Tables, feature: int) -> tf.Variable:
        return sok.EmbeddingVariable(f"sok_{feature}", tables.dim)

    def _look_up(self, kind: str, features: Sequence[FeatureTensors], training: bool) -> list[tf.Tensor]:
        pairs = zip(self.variables, features)
        if kind == "gather":
            lookups = [group.DenseLookup(variable, feature.ids) for variable, feature in pairs]
        else:
            lookups = [group.SparseLookup(variable, feature.sparse, "mean") for variable, feature in pairs]
        return group.lookup_group(lookups, training=training)

    def copy_rows(self, session: tf.compat.v1.Session, source: TensorFlowSide) -> None:
        """Sets the row of key i in each table to row i of the corresponding table of `source`."""
        saver = sok.Saver()
        for variable, other in zip(self.variables, source.variables):
            session.run(saver.load_embedding_values(variable, other))
