"""Embedding and ConcatOneHotEmbedding: tables on one rank, as in NVIDIA's distributed-embeddings."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, Union

import tensorflow as tf

from sparse_operation_kit.arguments import whole_number
from sparse_operation_kit.compat.tensors import with_values
from sparse_operation_kit.dist_model_parallel.inputs import Ids, as_ids, checked_ids, unless
from sparse_operation_kit.dist_model_parallel.keras import FloatLayer, Layer, keras
from sparse_operation_kit.dist_model_parallel.strategy import COMBINERS
from sparse_operation_kit.lookup import ordinary


class Embedding(FloatLayer):
    """A Keras layer that turns ids into rows of its table, and combines the rows of a sample.

    It is `tf.keras.layers.Embedding` and `tf.nn.embedding_lookup_sparse` in one. The last dimension of the
    input holds the ids of a sample:

    | input | output, combiner None | output, "sum" or "mean" |
    |---|---|---|
    | Tensor `[d1, …, dn]` | `[d1, …, dn, output_dim]` | `[d1, …, dn-1, output_dim]`, n ≥ 2 |
    | RaggedTensor `[batch, None]` | `[batch, None, output_dim]`, ragged | `[batch, output_dim]` |
    | SparseTensor `[batch, any]` | ValueError | `[batch, output_dim]` |

    A RaggedTensor may have more dimensions. An id that occurs twice counts twice; a sample without ids gives
    zeros. Ids have any integer dtype; floats, to which Keras converts inputs without a dtype, are truncated.
    Output is in the layer's compute dtype. Running the layer on an id outside [0, input_dim) raises an
    InvalidArgumentError that names the layer and the id. Gradients of the table are `tf.IndexedSlices`.

    Attributes:
      embeddings: the table, a variable `[input_dim, output_dim]`.
      input_dim, output_dim, combiner, embeddings_initializer, embeddings_regularizer, embeddings_constraint:
        the arguments; initializer, regularizer and constraint are Keras objects.
    """

    def __init__(
        self,
        input_dim: int,
        output_dim: int,
        embeddings_initializer: Any = "uniform",
        embeddings_regularizer: Any = None,
        activity_regularizer: Any = None,
        embeddings_constraint: Any = None,
        combiner: str | None = None,
        *,
        use_custom_kernel: bool = True,
        **kwargs: Any,
    ) -> None:
        """Creates the layer. Its table is created when it is built.

        Args:
          input_dim: rows of the table, the largest id + 1.
          output_dim: floats of a row.
          embeddings_initializer: the table's initializer, in any form that Keras accepts.
          embeddings_regularizer: the table's regularizer.
          activity_regularizer: the output's regularizer.
          embeddings_constraint: applied to the table after each update.
          combiner: "sum" or "mean" of the rows of a sample, or None.
          use_custom_kernel: has no effect.
          **kwargs: arguments of every Keras layer: `name`, `dtype`, `trainable`, `weights`, `input_shape` and
            so on.

        Raises:
          TypeError, ValueError: an argument is of the wrong type or out of range.
        """
        del use_custom_kernel
        kwargs.setdefault("input_shape", (None,))
        super().__init__(**kwargs)
        self.input_dim = whole_number(input_dim, f"Embedding layer '{self.name}': input_dim")
        self.output_dim = whole_number(output_dim, f"Embedding layer '{self.name}': output_dim")
        if combiner not in COMBINERS:
            raise ValueError(
                f"Embedding layer '{self.name}': combiner must be 'sum', 'mean' or None, not {combiner!r}"
            )
        self.embeddings_initializer = keras.initializers.get(embeddings_initializer)
        self.embeddings_regularizer = keras.regularizers.get(embeddings_regularizer)
        self.activity_regularizer = keras.regularizers.get(activity_regularizer)
        self.embeddings_constraint = keras.constraints.get(embeddings_constraint)
        self.combiner = combiner

    def build(self, input_shape: Any = None) -> None:
        """Creates the table; its size does not depend on the input's shape."""
        self.embeddings = self.add_weight(
            name="embeddings",
            shape=(self.input_dim, self.output_dim),
            initializer=self.embeddings_initializer,
            regularizer=self.embeddings_regularizer,
            constraint=self.embeddings_constraint,
            experimental_autocast=False,
            use_resource=True,
        )
        self.built = True

    def call(self, inputs: Ids) -> Union[tf.Tensor, tf.RaggedTensor]:
        """The rows of the ids, in the shapes that the class describes.

        Raises:
          TypeError: ids are not numbers.
          ValueError: ids have no dimension to combine, or are a SparseTensor without a combiner or not
            `[batch, any]`.
        """
        who = f"Embedding layer '{self.name}'"
        return self._computed(_look_up(self.embeddings, inputs, self.combiner, who))

    def compute_output_shape(self, input_shape: Any) -> tf.TensorShape:
        """The output's shape for an input of shape `input_shape`."""
        shape = tf.TensorShape(input_shape)
        return (shape[:-1] if self.combiner else shape).concatenate([self.output_dim])

    def get_config(self) -> dict[str, Any]:
        """The layer's arguments, for `from_config`."""
        return {
            **super().get_config(),
            "input_dim": self.input_dim,
            "output_dim": self.output_dim,
            "embeddings_initializer": keras.initializers.serialize(self.embeddings_initializer),
            "embeddings_regularizer": keras.regularizers.serialize(self.embeddings_regularizer),
            "activity_regularizer": keras.regularizers.serialize(self.activity_regularizer),
            "embeddings_constraint": keras.constraints.serialize(self.embeddings_constraint),
            "combiner": self.combiner,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Embedding:
        """The layer of a config of this class or of Keras' Embedding.

        Keras' arguments `mask_zero` and `input_length` have no effect.
        """
        own = {name: value for name, value in config.items() if name not in ("mask_zero", "input_length")}
        return cls(**own)


def embedding_lookup(param: Any, ids: Any, combiner: str | None = None) -> Union[tf.Tensor, tf.RaggedTensor]:
    """Returns the rows of ids, in the shapes that `Embedding` describes, from a table of the program's.

    Args:
      param: the table, a tensor or a variable `[rows, columns]` of known size.
      ids: a Tensor, RaggedTensor or SparseTensor of numbers.
      combiner: "sum" or "mean" of the rows of a sample, or None.

    Raises:
      TypeError: ids are not numbers.
      ValueError: ids have no dimension to combine, or are a SparseTensor without a combiner or not
        `[batch, any]`; the combiner or the table is none that can be used.
      tf.errors.InvalidArgumentError: when it runs, if an id is not a row of the table.
    """
    if combiner not in COMBINERS:
        raise ValueError(f"embedding_lookup: combiner must be 'sum', 'mean' or None, not {combiner!r}")
    shape = tf.TensorShape(param.shape)
    if not shape.is_fully_defined() or shape.rank != 2:
        raise ValueError(f"embedding_lookup: the table must be [rows, columns] of known size, not {shape}")
    return _look_up(param, ids, combiner, "embedding_lookup")


@tf.autograph.experimental.do_not_convert
def _look_up(param: Any, ids: Any, combiner: str | None, who: str) -> Union[tf.Tensor, tf.RaggedTensor]:
    if not isinstance(ids, (tf.SparseTensor, tf.RaggedTensor)):
        ids = tf.convert_to_tensor(ids)
    return _rows(param, ids, who) if combiner is None else _combined(param, ids, combiner, who)


def _rows(param: Any, ids: Ids, who: str) -> Union[tf.Tensor, tf.RaggedTensor]:
    if isinstance(ids, tf.SparseTensor):
        raise ValueError(f"{who}: ids in a SparseTensor need a combiner")
    if isinstance(ids, tf.RaggedTensor):
        return with_values(ids, _rows(param, ids.values, who))
    return tf.nn.embedding_lookup(param, _checked(param, ids, who))


def _combined(param: Any, ids: Ids, combiner: str, who: str) -> Union[tf.Tensor, tf.RaggedTensor]:
    if ids.shape.rank is not None and ids.shape.rank < 2:
        raise ValueError(
            f"{who}: combiner '{combiner}' needs ids of shape [batch, ids] or more dimensions, not "
            f"{ids.shape}"
        )
    if isinstance(ids, tf.SparseTensor):
        if ids.shape.rank not in (None, 2):
            raise ValueError(f"{who} takes a SparseTensor of shape [batch, ids], not {ids.shape}")
        return _bags(param, tf.sparse.reorder(ids), combiner, who)
    if isinstance(ids, tf.RaggedTensor):
        # The ids to combine are those of the innermost dimension, which need not be ragged.
        inner = isinstance(ids.values, tf.RaggedTensor) or ids.values.shape.rank not in (None, 1)
        if inner:
            return with_values(ids, _combined(param, ids.values, combiner, who))
        return _bags(param, ids, combiner, who)
    return _of_each_last_dimension(param, ids, combiner, who)


def _bags(param: Any, ids: Union[tf.SparseTensor, tf.RaggedTensor], combiner: str, who: str) -> tf.Tensor:
    ids = with_values(ids, _checked(param, ids.values, who))
    return ordinary.look_up_bags([param], ids, combiner, None, "div", who)


def _of_each_last_dimension(param: Any, ids: tf.Tensor, combiner: str, who: str) -> tf.Tensor:
    rows = tf.nn.embedding_lookup(param, _checked(param, ids, who))
    if ids.shape.rank is not None and ids.shape[-1] == 1:
        return tf.squeeze(rows, axis=-2)
    sums = tf.reduce_sum(rows, axis=-2)
    if combiner == "sum":
        return sums
    # Not a mean of TensorFlow's, which is NaN where there are no ids.
    return tf.math.divide_no_nan(sums, tf.cast(tf.shape(ids)[-1], sums.dtype))


def _checked(param: Any, ids: tf.Tensor, who: str) -> tf.Tensor:
    return checked_ids(as_ids(ids, who), int(param.shape[0]), who)


class ConcatOneHotEmbedding(Layer):
    """A Keras layer with a table for each of several features, all of one width, looked up in one gather.

    The tables are the parts of one variable, in the order of the features. The layer takes ids
    `[…, features]`, of any integer dtype, and returns `[…, features, embedding_width]`. An id outside its
    feature's table raises an InvalidArgumentError that names the layer, the feature and the id when the layer
    runs. Gradients are `tf.IndexedSlices`.

    Attributes:
      params: the variable, float32 `[sum of feature_sizes, embedding_width]`.
      feature_sizes, embedding_width: the arguments.
      input_dim, output_dim, combiner: the variable's rows and columns, and None, as in `Embedding`.
    """

    def __init__(self, feature_sizes: Sequence[int], embedding_width: int, **kwargs: Any) -> None:
        """Creates the layer and its variable.

        Args:
          feature_sizes: rows of each feature's table.
          embedding_width: floats of a row.
          **kwargs: arguments of every Keras layer: `name`, `trainable`.

        Raises:
          TypeError, ValueError: an argument is of the wrong type or out of range.
        """
        kwargs.setdefault("dtype", tf.float32)
        super().__init__(**kwargs)
        who = f"ConcatOneHotEmbedding layer '{self.name}'"
        self.feature_sizes = [whole_number(size, f"{who}: a feature's size") for size in feature_sizes]
        if not self.feature_sizes:
            raise ValueError(f"{who}: feature_sizes is empty")
        self.embedding_width = whole_number(embedding_width, f"{who}: embedding_width")
        self.input_dim, self.output_dim, self.combiner = sum(self.feature_sizes), self.embedding_width, None
        self._first_rows = [0, *itertools.accumulate(self.feature_sizes[:-1])]
        self.params = self.add_weight(
            name="params", shape=[self.input_dim, self.output_dim], dtype=tf.float32, use_resource=True
        )

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        """The rows of ids `[…, features]`: `[…, features, embedding_width]`."""
        return tf.nn.embedding_lookup(self.params, self.rows_of(inputs))

    def rows_of(self, ids: tf.Tensor) -> tf.Tensor:
        """The rows of `params`, int64, for ids `[…, features]`, of the same shape.

        Raises:
          TypeError: ids are not numbers.
          ValueError: the last dimension is not known to be the number of features.
        """
        who = f"ConcatOneHotEmbedding layer '{self.name}'"
        ids = tf.cast(as_ids(tf.convert_to_tensor(ids), who), tf.int64)
        features = len(self.feature_sizes)
        if not ids.shape.rank or ids.shape[-1] != features:
            raise ValueError(f"{who} takes ids of shape [batch, {features}], not {ids.shape}")
        sizes = tf.constant(self.feature_sizes, tf.int64)
        outside = tf.logical_or(ids < 0, ids >= sizes)
        # The first id that is outside. The padding makes sure that there is one, even in an empty batch.
        place = tf.argmax(tf.pad(tf.cast(tf.reshape(outside, [-1]), tf.uint8), [[0, 1]], constant_values=1))
        feature = place % features
        message = [
            f"{who}: id ",
            tf.strings.as_string(tf.pad(tf.reshape(ids, [-1]), [[0, 1]])[place]),
            " of feature ",
            tf.strings.as_string(feature),
            " is not in [0, ",
            tf.strings.as_string(sizes[feature]),
            ")",
        ]
        holds = tf.logical_not(tf.reduce_any(outside))
        return unless(holds, message, ids + tf.constant(self._first_rows, tf.int64))

    def compute_output_shape(self, input_shape: Any) -> tf.TensorShape:
        """The output's shape for an input of shape `input_shape`."""
        return tf.TensorShape(input_shape).concatenate([self.embedding_width])

    def get_config(self) -> dict[str, Any]:
        """The layer's arguments, for `from_config`."""
        config = super().get_config()
        return {**config, "feature_sizes": self.feature_sizes, "embedding_width": self.embedding_width}
