"""Initial rows of pieces of tables: the same as in the whole table, whatever the number of ranks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from sparse_operation_kit.arguments import as_signed
from sparse_operation_kit.compat.internals import context
from sparse_operation_kit.dist_model_parallel.keras import keras
from sparse_operation_kit.dist_model_parallel.placement import Piece
from sparse_operation_kit.dist_model_parallel.strategy import TableOfLayer
from sparse_operation_kit.tables.initializers import RowInitializer, row_initializer

# The most elements that are drawn at once, unless a row is longer.
_BLOCK = 2**22


def initial_value(pieces: Sequence[Piece], tables: Sequence[TableOfLayer], columns: int) -> Callable:
    """Returns a function without arguments that computes a variable's initial value.

    The value at a row and column of a table depends only on the table's number, its initializer and the seed.
    The seed is the initializer's, else that of the graph or of `tf.random.set_seed`, else 0. So pieces are
    parts of the same table on any number of ranks. An initializer that is not one of Keras' is called for
    the whole table.

    Args:
      pieces: The variable's pieces, sorted by their first row; empty if it has no rows.
      tables: All tables of the layer; `Piece.table` is an index into them.
      columns: The variable's number of columns.
    """

    def value() -> tf.Tensor:
        if not pieces:
            return tf.zeros([0, columns])
        return tf.concat([_of_piece(piece, tables[piece.table]) for piece in pieces], axis=0)

    return value


def _of_piece(piece: Piece, of_layer: TableOfLayer) -> tf.Tensor:
    table = of_layer.table
    who = f"{piece.table} ('{table.name}')"
    initializer = _instance(of_layer.initializer)
    try:
        known = row_initializer(initializer, who, table.rows, table.columns)
    except (TypeError, ValueError):
        return _of_other(initializer, piece, of_layer)
    if known.kind == "constant":
        shape = [piece.rows[1] - piece.rows[0], piece.columns[1] - piece.columns[0]]
        return tf.fill(shape, tf.constant(known.args[0], tf.float32))
    block = max(1, _BLOCK // table.columns)
    first, last = piece.rows[0] // block, (piece.rows[1] - 1) // block
    seed = known.seed or _global_seed()

    def rows_of(number: Any) -> tf.Tensor:
        drawn = _drawn(known, [min(block, table.rows), table.columns], seed, piece.table, number)
        begin = tf.maximum(piece.rows[0] - number * block, 0)
        end = tf.minimum(piece.rows[1] - number * block, block)
        return drawn[begin:end, piece.columns[0] : piece.columns[1]]

    if first == last:
        return rows_of(tf.constant(first, tf.int64))
    width = piece.columns[1] - piece.columns[0]
    blocks = tf.TensorArray(
        tf.float32, size=last - first + 1, infer_shape=False, element_shape=tf.TensorShape([None, width])
    )
    _, blocks = tf.while_loop(
        lambda number, blocks: number <= last,
        lambda number, blocks: (number + 1, blocks.write(tf.cast(number - first, tf.int32), rows_of(number))),
        [tf.constant(first, tf.int64), blocks],
        parallel_iterations=1,
    )
    rows = blocks.concat()
    rows.set_shape([piece.rows[1] - piece.rows[0], width])
    return rows


def _drawn(known: RowInitializer, shape: list[int], seed: int, table: int, block: tf.Tensor) -> tf.Tensor:
    """Draws a block of whole rows from the distribution of one of Keras' initializers."""
    # A generator takes two numbers as its seed: the program's, and one for the table and the block.
    seeds = tf.stack([tf.constant(as_signed(seed), tf.int64), tf.constant(table << 32, tf.int64) + block])
    a, b = known.args
    if known.kind == "uniform":
        return tf.random.stateless_uniform(shape, seeds, a, b)
    draw = tf.random.stateless_normal if known.kind == "normal" else tf.random.stateless_truncated_normal
    return draw(shape, seeds, a, b)


def _of_other(initializer: Any, piece: Piece, of_layer: TableOfLayer) -> tf.Tensor:
    table = of_layer.table
    if not callable(initializer):
        raise TypeError(f"Table {piece.table} ('{table.name}'): {initializer!r} is not an initializer")
    rows = tf.convert_to_tensor(initializer([table.rows, table.columns], dtype=tf.float32), tf.float32)
    if not rows.shape.is_compatible_with([table.rows, table.columns]):
        raise ValueError(
            f"Table {piece.table} ('{table.name}'): the initializer returns the shape {rows.shape}, not "
            f"{[table.rows, table.columns]}"
        )
    return rows[piece.rows[0] : piece.rows[1], piece.columns[0] : piece.columns[1]]


def _instance(initializer: Any) -> Any:
    """Returns an initializer, which Keras makes if it is given as a name or a config."""
    if isinstance(initializer, (str, dict)) and keras is not None:
        return keras.initializers.get(initializer)
    return initializer() if isinstance(initializer, type) else initializer


def _global_seed() -> int:
    seed = context.global_seed() if tf.executing_eagerly() else tf.compat.v1.get_default_graph().seed
    return 0 if seed is None else int(seed)
