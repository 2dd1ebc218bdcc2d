"""DeepRec's variables of a dynamic dimension: a lookup says how many blocks of its row each id uses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from sparse_operation_kit.lookup.composed import ComposedTable
from sparse_operation_kit.lookup.group import RaggedLookup, lookup_group
from sparse_operation_kit.tables.embedding_variable import EmbeddingVariable
from sparse_operation_kit.tables.get_embedding_variable import EmbeddingVariableOption, get_embedding_variable


class DynamicDimensionVariable(ComposedTable):
    """One embedding variable for each block. See `get_dynamic_dimension_embedding_variable`."""

    def __init__(self, name: str, tables: Sequence[EmbeddingVariable]) -> None:
        self.name = name
        self.tables = list(tables)

    def look_up(self, ids: tf.Tensor, blocknums: Any = None) -> tf.Tensor:
        """See `ComposedTable`. All blocks are one lookup op; an id gets rows in its blocks only."""
        blocknums = self._checked(ids, blocknums)
        keys = tf.cast(ids, self.tables[0].key_dtype)
        lookups = []
        for block, table in enumerate(self.tables):
            has_block = blocknums > block
            bags = tf.RaggedTensor.from_row_lengths(
                tf.boolean_mask(keys, has_block), tf.cast(has_block, tf.int64)
            )
            lookups.append(RaggedLookup(table, bags, "sum"))
        return lookup_group(lookups, name="dynamic_dimension_lookup", side_by_side=True)[0]

    def of_bags(self, ids: tf.Tensor, blocknums: Any) -> tf.Tensor:
        """See `ComposedTable`. An id that occurs several times uses the largest of its numbers."""
        distinct, positions = tf.unique(ids)
        largest = tf.math.unsorted_segment_max(self._checked(ids, blocknums), positions, tf.size(distinct))
        return tf.gather(largest, positions)

    def _checked(self, ids: tf.Tensor, blocknums: Any) -> tf.Tensor:
        if blocknums is None:
            raise ValueError(
                f"Lookup in '{self.name}', a variable of a dynamic dimension: blocknums must be given, the "
                "number of blocks of each id"
            )
        numbers = tf.cast(tf.convert_to_tensor(blocknums), tf.int32)
        if not numbers.shape.is_compatible_with(ids.shape):
            raise ValueError(
                f"Lookup in '{self.name}': blocknums of shape {numbers.shape} for ids of shape {ids.shape}"
            )
        return numbers


def get_dynamic_dimension_embedding_variable(
    name: str,
    embedding_block_dimension: float,
    embedding_block_num: int,
    key_dtype: tf.DType = tf.int64,
    value_dtype: tf.DType | None = None,
    initializer: Any = None,
    regularizer: Any = None,
    trainable: bool = True,
    collections: Sequence[str] | None = None,
    caching_device: Any = None,
    partitioner: Any = None,
    validate_shape: bool = True,
    custom_getter: Any = None,
    constraint: Any = None,
    steps_to_live: int | None = None,
    init_data_source: Any = None,
    ev_option: EmbeddingVariableOption | None = None,
) -> DynamicDimensionVariable:
    """Creates a variable whose rows consist of blocks, of which each id uses as many as a lookup says.

    `tf.nn.embedding_lookup(variable, ids, blocknums=...)` returns `[n, block dimension * blocks]`, zeros in
    the blocks that an id does not use. Only used blocks have rows in memory. `embedding_lookup_sparse` and
    `safe_embedding_lookup_sparse` take `blocknums` too, one for each id.

    Args:
      name: The blocks are embedding variables `name/block_0`, `name/block_1`, and so on.
      embedding_block_dimension: The number of floats of a block, a whole number.
      embedding_block_num: The number of blocks.
      key_dtype: This and all other arguments are those of `get_embedding_variable`, for each block.

    Raises:
      ValueError: There is no block, or its dimension is not a whole number; see also
        `get_embedding_variable`.
    """
    who = f"get_dynamic_dimension_embedding_variable('{name}')"
    dim = int(embedding_block_dimension)
    if dim != embedding_block_dimension:
        raise ValueError(
            f"{who}: embedding_block_dimension must be a whole number, not {embedding_block_dimension}"
        )
    if embedding_block_num < 1:
        raise ValueError(f"{who}: embedding_block_num must be at least 1, not {embedding_block_num}")
    tables = [
        get_embedding_variable(
            f"{name}/block_{block}",
            dim,
            key_dtype=key_dtype,
            value_dtype=value_dtype,
            initializer=initializer,
            regularizer=regularizer,
            trainable=trainable,
            collections=collections,
            caching_device=caching_device,
            partitioner=partitioner,
            validate_shape=validate_shape,
            custom_getter=custom_getter,
            constraint=constraint,
            steps_to_live=steps_to_live,
            init_data_source=init_data_source,
            ev_option=EmbeddingVariableOption() if ev_option is None else ev_option,
        )
        for block in range(embedding_block_num)
    ]
    return DynamicDimensionVariable(name, tables)
