"""DeepRec's multi-hash variables: an id's row is composed of rows of its quotient and its remainder.

The technique is that of "Compositional Embeddings Using Complementary Partitions for Memory-Efficient
Recommendation Systems" (arXiv:1909.02107): two small tables give each id a row of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from sparse_operation_kit.lookup.composed import ComposedTable

_OPERATIONS = {"add": tf.add, "mul": tf.multiply, "mult": tf.multiply, "concat": None}


class MultiHashVariable(ComposedTable):
    """Two ordinary variables, of quotients and of remainders. See `get_multihash_variable`."""

    def __init__(self, name: str, tables: Sequence[Any], sizes: Sequence[int], operation: str) -> None:
        self.name = name
        self.tables = list(tables)
        self.operation = operation
        self._sizes = sizes

    def look_up(self, ids: tf.Tensor, blocknums: Any = None) -> tf.Tensor:
        """See `ComposedTable`. An id without rows is an error when the graph runs."""
        self._refuse_blocknums(blocknums)
        ids = self._checked(ids)
        parts = (tf.math.floordiv(ids, self._sizes[0]), tf.math.floormod(ids, self._sizes[1]))
        rows = [tf.compat.v1.nn.embedding_lookup(table, part) for table, part in zip(self.tables, parts)]
        combine = _OPERATIONS[self.operation]
        return tf.concat(rows, axis=1) if combine is None else combine(*rows)

    def _checked(self, ids: tf.Tensor) -> tf.Tensor:
        rows = self._sizes[0]
        has_rows = tf.logical_and(ids >= 0, ids < rows**2)
        message = (
            f"Lookup in multi-hash variable '{self.name}': with {rows} rows of quotients, ids must be from 0 "
            f"to {rows**2 - 1}, but are"
        )
        wrong = tf.boolean_mask(ids, tf.logical_not(has_rows))
        with tf.control_dependencies([tf.debugging.Assert(tf.reduce_all(has_rows), [message, wrong])]):
            return tf.identity(ids)

    def of_bags(self, ids: tf.Tensor, blocknums: Any) -> None:
        """See `ComposedTable`."""
        del ids
        self._refuse_blocknums(blocknums)

    def _refuse_blocknums(self, blocknums: Any) -> None:
        if blocknums is not None:
            raise ValueError(f"Lookup in multi-hash variable '{self.name}': it has no blocknums")


def check_multihash(who: str, sizes: Any, strategy: Any, operation: Any) -> None:
    """Checks the arguments that a variable and a column have in common.

    Raises:
      ValueError: The strategy or the operation is unknown, or there are not two positive sizes.
    """
    if strategy != "Q-R":
        raise ValueError(f"{who}: complementary_strategy must be 'Q-R', not {strategy!r}")
    if operation not in _OPERATIONS:
        raise ValueError(f"{who}: operation must be 'add', 'mul' or 'concat', not {operation!r}")
    if len(sizes) != 2 or not all(hasattr(size, "__index__") and size > 0 for size in sizes):
        raise ValueError(f"{who}: 'Q-R' needs two tables with a row or more, not {list(sizes)}")


def get_multihash_variable(
    name: str,
    dims: Sequence[Sequence[int]],
    num_of_partitions: int = 2,
    complementary_strategy: str = "Q-R",
    operation: str = "add",
    dtype: Any = tf.float32,
    initializer: Any = None,
    regularizer: Any = None,
    trainable: bool | None = None,
    collections: Sequence[str] | None = None,
    caching_device: Any = None,
    partitioner: Any = None,
    validate_shape: bool = True,
    use_resource: bool | None = None,
    custom_getter: Any = None,
    constraint: Any = None,
    synchronization: Any = tf.VariableSynchronization.AUTO,
    aggregation: Any = tf.VariableAggregation.NONE,
) -> MultiHashVariable:
    """Creates a variable whose row of an id is composed of rows of two small ordinary variables.

    `tf.nn.embedding_lookup`, `embedding_lookup_sparse` and `safe_embedding_lookup_sparse` look it up. The row
    of id `i` is that of `i // dims[0][0]` in the first variable and of `i % dims[1][0]` in the second. So ids
    must be less than the square of `dims[0][0]`; others are an error when the graph runs.

    Args:
      name: The variables are called `name_0` and `name_1`, in the current variable scope.
      dims: `[[rows, dim], [rows, dim]]`. Unless the operation is "concat", the dims are equal.
      num_of_partitions: 2.
      complementary_strategy: "Q-R": quotient and remainder.
      operation: How the two rows are composed: "add", "mul" (or "mult") or "concat".
      dtype: As in `tf.compat.v1.get_variable`; Python's float means tf.float32.
      initializer: This and all other arguments are those of `tf.compat.v1.get_variable`.

    Raises:
      ValueError: The dims do not fit, or the strategy, the operation or `num_of_partitions` is unknown.
    """
    who = f"get_multihash_variable('{name}')"
    if num_of_partitions != 2:
        raise ValueError(f"{who}: num_of_partitions must be 2, not {num_of_partitions}")
    shapes = [list(shape) for shape in dims]
    if any(len(shape) != 2 for shape in shapes):
        raise ValueError(f"{who}: dims must be [[rows, dim], [rows, dim]], not {dims}")
    sizes = [shape[0] for shape in shapes]
    check_multihash(who, sizes, complementary_strategy, operation)
    check_widths(who, [shape[1] for shape in shapes], operation)
    tables = [
        tf.compat.v1.get_variable(
            f"{name}_{i}",
            shape,
            dtype=tf.float32 if dtype is float else dtype,
            initializer=initializer,
            regularizer=regularizer,
            trainable=trainable,
            collections=collections,
            caching_device=caching_device,
            partitioner=partitioner,
            validate_shape=validate_shape,
            use_resource=use_resource,
            custom_getter=custom_getter,
            constraint=constraint,
            synchronization=synchronization,
            aggregation=aggregation,
        )
        for i, shape in enumerate(shapes)
    ]
    return MultiHashVariable(name, tables, sizes, operation)


def check_widths(who: str, widths: Sequence[int], operation: str) -> None:
    """Checks that rows of these widths can be composed by the operation.

    Raises:
      ValueError: They cannot.
    """
    if operation != "concat" and widths[0] != widths[1]:
        raise ValueError(f"{who}: operation '{operation}' needs rows of one width, not of {list(widths)}")
