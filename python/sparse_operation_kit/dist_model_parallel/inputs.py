"""The ids of a layer's inputs: checked, flat, and merged over the inputs of a unit; the shapes of outputs."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Union

import tensorflow as tf

from sparse_operation_kit import native
from sparse_operation_kit.dist_model_parallel.strategy import DistEmbeddingStrategy, TableOfLayer
from sparse_operation_kit.tables.table_device import may_be_on_gpu

Ids = Union[tf.Tensor, tf.RaggedTensor, tf.SparseTensor]


def as_ids(values: tf.Tensor, who: str) -> tf.Tensor:
    """Returns numbers as int32 or int64. Floats, Keras' default for inputs, are truncated.

    Raises:
      TypeError: the values are not numbers; the message begins with `who`.
    """
    if not (values.dtype.is_integer or values.dtype.is_floating):
        raise TypeError(f"{who}: ids must be integers, not {values.dtype.name}")
    return values if values.dtype in (tf.int32, tf.int64) else tf.cast(values, tf.int64)


def checked_ids(ids: tf.Tensor, rows: int, who: str) -> tf.Tensor:
    """Returns int32 or int64 `ids` of any shape, and checks that all are in [0, rows).

    If they are not, running the result raises InvalidArgumentError with `who` and the lowest id if that is
    negative, else the highest. On a GPU TensorFlow itself would read zeros for such ids.
    """
    # Zero stands in for the ids of an empty batch.
    lowest = tf.cast(tf.minimum(tf.reduce_min(ids), 0), tf.int64)
    highest = tf.cast(tf.maximum(tf.reduce_max(ids), 0), tf.int64)
    worst = tf.where(lowest < 0, lowest, highest)
    in_table = tf.logical_and(lowest >= 0, highest <= rows - 1)
    return unless(in_table, [who, ": id ", tf.strings.as_string(worst), f" is not in [0, {rows})"], ids)


def unless(holds: tf.Tensor, message: Sequence[Any], result: tf.Tensor) -> tf.Tensor:
    """Returns `result`; running it raises InvalidArgumentError if the scalar `holds` is false.

    Args:
      holds: a scalar bool tensor.
      message: the parts of the error's message, strings and scalar string tensors.
      result: any tensor.
    """
    # Not tf.debugging.Assert, which prints quotes and what is beyond ASCII as escapes.
    with tf.device("/device:CPU:0"):
        passed = native.ops.sok_raise_failures(
            codes=[tf.where(holds, 0, tf.errors.INVALID_ARGUMENT)],
            messages=[tf.strings.join(message)],
            failures=tf.zeros([0], tf.int32),
            what="",
        )
    # In eager execution the check has been made.
    with tf.control_dependencies([] if tf.executing_eagerly() else [passed]):
        return tf.identity(result)


@dataclasses.dataclass(frozen=True)
class FlatIds:
    """The ids of one input.

    Attributes:
      ids: the input.
      values: int64 [n]. Id i is one of feature i % len(sizes).
      sizes: the number of rows of each feature of the table, whose rows follow each other; most tables have
        one feature.
      combiner: the table's.
    """

    ids: Ids
    values: tf.Tensor
    sizes: tuple[int, ...]
    combiner: str | None

    @property
    def is_one_hot(self) -> bool:
        """Whether each bag is known to have one id, so that combining changes nothing."""
        return self._is_dense and self.ids.shape.rank is not None and self.ids.shape[-1] == 1

    @property
    def has_batches(self) -> bool:
        """Whether the ids are [batch] or [batch, hotness], or are combined to a row for each sample."""
        return self.ids.shape.rank in (1, 2) and (self._is_dense or self.combiner is not None)

    @property
    def _is_dense(self) -> bool:
        return not isinstance(self.ids, (tf.RaggedTensor, tf.SparseTensor))

    def count_of_bags(self) -> tf.Tensor:
        """int64, the number of bags."""
        if isinstance(self.ids, tf.SparseTensor):
            return self.ids.dense_shape[0]
        if isinstance(self.ids, tf.RaggedTensor):
            return tf.cast(self.ids.nrows(), tf.int64)
        return tf.reduce_prod(tf.shape(self.ids, out_type=tf.int64)[:-1])

    def bags(self) -> tf.Tensor:
        """int64 [n], the bag of each value, in rising order."""
        if isinstance(self.ids, tf.SparseTensor):
            return self.ids.indices[:, 0]
        if isinstance(self.ids, tf.RaggedTensor):
            return tf.cast(self.ids.value_rowids(), tf.int64)
        hotness = tf.shape(self.ids, out_type=tf.int64)[-1]
        return tf.repeat(tf.range(self.count_of_bags()), hotness)

    def words_of_bags(self) -> tuple[str, tf.Tensor]:
        """The same as `SokCombineRows` takes them: their kind, and int64 words."""
        if isinstance(self.ids, tf.SparseTensor):
            return "numbers", tf.concat([self.ids.dense_shape[:1], self.ids.indices[:, 0]], axis=0)
        if not isinstance(self.ids, tf.RaggedTensor):
            return "fixed", tf.shape(self.ids, out_type=tf.int64)
        if self.combiner is None:
            return "fixed", tf.shape(self.values, out_type=tf.int64)
        return "splits", tf.cast(self.ids.row_splits, tf.int64)

    def shaped(self, rows: tf.Tensor) -> Union[tf.Tensor, tf.RaggedTensor]:
        """Gives the rows of `values`, or of the bags if there is a combiner, the shape of the output."""
        columns = rows.shape[-1]
        if isinstance(self.ids, tf.RaggedTensor):
            if self.combiner is None:
                return self.ids.with_flat_values(rows)
            rows.set_shape([self.ids.shape[0], columns])
            return rows
        if isinstance(self.ids, tf.SparseTensor):
            rows.set_shape([self.ids.shape[0], columns])
            return rows
        known = self.ids.shape
        if self.combiner is not None and known.rank == 2:
            rows.set_shape([known[0], columns])
            return rows
        shape = tf.shape(self.ids)
        if self.combiner is not None:
            known, shape = known[:-1], shape[:-1]
        output = tf.reshape(rows, tf.concat([shape, [columns]], axis=0))
        output.set_shape(known.concatenate([columns]))
        return output


def flat_ids(ids: Any, of_layer: TableOfLayer, who: str) -> FlatIds:
    """Checks the kind and shape of an input.

    Args:
      ids: any tensor, or a value that converts to one.
      of_layer: the table.
      who: the beginning of error messages.

    Raises:
      TypeError: ids are not numbers.
      ValueError: ids have a shape, or are of a kind, that the table's combiner cannot take.
    """
    combiner = of_layer.table.combiner
    if isinstance(ids, tf.compat.v1.SparseTensorValue):
        ids = tf.SparseTensor.from_value(ids)
    if isinstance(ids, tf.compat.v1.ragged.RaggedTensorValue):
        ids = tf.RaggedTensor.from_nested_row_splits(ids.flat_values, ids.nested_row_splits)
    if isinstance(ids, tf.SparseTensor):
        if combiner is None:
            raise ValueError(f"{who}: ids in a SparseTensor need a table with a combiner")
        if ids.shape.rank not in (None, 2):
            raise ValueError(f"{who}: ids in a SparseTensor must be [batch, ids], not {ids.shape}")
        ids = tf.sparse.reorder(ids)
        values = ids.values
    elif isinstance(ids, tf.RaggedTensor):
        is_matrix = ids.ragged_rank == 1 and ids.flat_values.shape.rank == 1
        if combiner is not None and not is_matrix:
            raise ValueError(f"{who}: ids in a RaggedTensor must be [batch, None], not {ids.shape}")
        values = ids.flat_values
    else:
        ids = tf.convert_to_tensor(ids)
        if combiner is not None and ids.shape.rank is not None and ids.shape.rank < 2:
            raise ValueError(
                f"{who}: combiner '{combiner}' needs ids of shape [batch, ids], or of more dimensions, not "
                f"{ids.shape}"
            )
        if ids.shape.rank == 0:
            raise ValueError(f"{who}: ids must have a batch dimension, but are a scalar")
        values = ids
    values = as_ids(values, who)
    sizes = of_layer.feature_sizes or (of_layer.table.rows,)
    if of_layer.feature_sizes is not None and (
        isinstance(ids, tf.RaggedTensor) or not values.shape.rank or values.shape[-1] != len(sizes)
    ):
        raise ValueError(f"{who}: ids must be [batch, {len(sizes)}], not {ids.shape}")
    values = tf.reshape(tf.cast(values, tf.int64), [-1])
    return FlatIds(ids, values, sizes, combiner)


@dataclasses.dataclass(frozen=True)
class LayerCall:
    """One call of a layer.

    Attributes:
      strategy: the tables.
      replicas: the variables of `strategy.layout.replicas`.
      variables: this rank's other variables, those of `strategy.layout.groups`.
      flat: the ids of this rank's inputs.
      name: of the layer, for messages; a name for the exchanges of this call.
    """

    strategy: DistEmbeddingStrategy
    replicas: Sequence[tf.Variable]
    variables: Sequence[tf.Variable]
    flat: Sequence[FlatIds]
    name: str

    @property
    def on_gpu(self) -> bool:
        """Whether rows may be on a GPU."""
        return any(may_be_on_gpu(variable) for variable in [*self.replicas, *self.variables])


@dataclasses.dataclass(frozen=True)
class MergedIds:
    """The ids of inputs by unit: tables whose ids are merged into one set of keys.

    Attributes:
      distinct: for each unit int64, its distinct keys.
      places: for each unit int32, for all ids of its inputs, one input after another, where their key is.
      finding: int64 [3]: zeros, or 1, the position of the first input with an id that is not in its table,
        and that id.
    """

    distinct: list[tf.Tensor]
    places: list[tf.Tensor]
    finding: tf.Tensor


def merge_ids(flat: Sequence[FlatIds], unit_of: Sequence[int], bases: Sequence[int], units: int) -> MergedIds:
    """Merges ids.

    Args:
      flat: the inputs, at least one.
      unit_of: the unit of each.
      bases: the key of the id 0 of each.
      units: how many there are.
    """
    with tf.device("/device:CPU:0"):
        merged = native.ops.sok_merge_ids(
            ids=[ids.values for ids in flat],
            units=units,
            unit_of=list(unit_of),
            bases=list(bases),
            features=[len(ids.sizes) for ids in flat],
            sizes=[size for ids in flat for size in ids.sizes],
        )
    return MergedIds(list(merged.distinct), list(merged.places), merged.finding)
