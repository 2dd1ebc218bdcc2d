"""Lookups of a layer with `dp_input=False`: a rank has the ids of the whole batch, for the tables it has.

    ids of this rank's tables -> rows -> combined per sample -> exchange -> outputs of this rank's samples

The exchange is one for all tables; gradients go back in another. Before it, ranks tell each other the shapes
of their inputs and what is wrong with them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from sparse_operation_kit.core.communicator import communicator
from sparse_operation_kit.dist_model_parallel import messages
from sparse_operation_kit.dist_model_parallel.exchanges import exchange_ids, swap
from sparse_operation_kit.dist_model_parallel.inputs import FlatIds
from sparse_operation_kit.dist_model_parallel.layer_call import LayerCall
from sparse_operation_kit.dist_model_parallel.layout import Part, Unit
from sparse_operation_kit.dist_model_parallel.pooling import combined
from sparse_operation_kit.dist_model_parallel.strategy import DistEmbeddingStrategy


def look_up(call: LayerCall) -> list[Any]:
    """Returns an output of this rank's samples for each input of the layer; there are several ranks.

    The ids are those of the inputs `call.strategy.input_ids_list[rank]`, each dense [batch, hotness] or, if
    its table has a combiner, also ragged or sparse.
    """
    strategy, flat, name = call.strategy, call.flat, call.name
    ranks, size = communicator().rank, strategy.world_size
    own = strategy.input_ids_list[ranks]
    shapes = [_shape(ids) for ids in flat]
    header = messages.header(strategy, own, flat, [shape[0] for shape in shapes])
    words = tf.concat([header, *(shape // [size, 1] for shape in shapes)], axis=0)
    told, starts = _told(strategy, words, name)
    gate = messages.checked(
        strategy, tf.gather(told, starts + tf.range(messages.HEADER, dtype=tf.int64)), name, told
    )
    shapes_of = [_shapes_of(strategy, rank, gate, starts[rank, 0]) for rank in range(size)]
    with tf.control_dependencies([] if tf.executing_eagerly() else [gate]):
        flat_of = dict(zip(own, [ids.copied() for ids in flat]))
    sent = _sent(strategy, call.variables, flat_of)
    widths = [
        [group[0].columns] + [part.columns[1] - part.columns[0] for _, part in _parts(strategy, rank)]
        for rank, group in enumerate(strategy.layout.groups)
    ]
    counts = [_counts(strategy, rank, shapes_of[rank]) for rank in range(size)]
    own_counts = tf.tile(counts[ranks][tf.newaxis], [size, 1])
    arrived = swap(sent, own_counts, counts, widths, f"{name}: rows")
    return _outputs(strategy, call.replicas, flat_of, shapes_of, arrived)


def _shape(ids: FlatIds) -> tf.Tensor:
    """int64 [2]: the batch, and the ids of a sample; 1 where they are combined."""
    if ids.combiner is None:
        return tf.shape(ids.ids, out_type=tf.int64)
    _, batch = ids.bags()
    return tf.stack([batch, tf.ones_like(batch)])


def _told(strategy: DistEmbeddingStrategy, words: tf.Tensor, name: str) -> tuple[tf.Tensor, tf.Tensor]:
    """`(words of all ranks, [ranks, 1] where each rank's begin)`."""
    told, splits = exchange_ids([[words]] * strategy.world_size, f"{name}: shapes")
    # What is missing if another rank has other tables is never read: its header says so.
    told = tf.concat([told, tf.zeros([strategy.world_size * tf.size(words)], tf.int64)], axis=0)
    return told, tf.cumsum(splits, exclusive=True)[:, tf.newaxis]


def _shapes_of(
    strategy: DistEmbeddingStrategy, rank: int, told: tf.Tensor, start: tf.Tensor
) -> dict[int, tf.Tensor]:
    """By input of a rank, what `_shape` is of one rank's samples."""
    numbers = strategy.input_ids_list[rank]
    begin = start + messages.HEADER
    shapes = tf.reshape(told[begin : begin + 2 * len(numbers)], [len(numbers), 2])
    return {number: shapes[i] for i, number in enumerate(numbers)}


def _parts(strategy: DistEmbeddingStrategy, rank: int) -> list[tuple[int, Part]]:
    """(input, part) of the inputs that a rank looks up for all ranks, in their order."""
    parts = []
    for number in strategy.input_ids_list[rank]:
        for part in _unit_of(strategy, number).parts:
            if part.rank == rank:
                parts.append((number, part))
    return parts


def _unit_of(strategy: DistEmbeddingStrategy, number: int) -> Unit:
    table = strategy.input_table_map[number]
    return next(unit for unit in strategy.layout.units if table in unit.tables)


def _counts(strategy: DistEmbeddingStrategy, rank: int, shapes: dict[int, tf.Tensor]) -> tf.Tensor:
    """int64: how many rows of each of its matrices a rank sends to each rank."""
    counts = [tf.reduce_prod(shapes[number]) for number, _ in _parts(strategy, rank)]
    return tf.stack([tf.constant(0, tf.int64), *counts])


def _sent(
    strategy: DistEmbeddingStrategy, variables: Sequence[tf.Variable], flat_of: dict[int, FlatIds]
) -> list[tf.Tensor]:
    """The matrices of this rank, for all samples; the first has no rows, so that each rank has a gradient."""
    of_input: dict[int, tf.Tensor] = {}
    parts = _parts(strategy, communicator().rank)
    for group, variable in enumerate(variables):
        members = [(number, part) for number, part in parts if part.group == group]
        if members:
            units = [_unit_of(strategy, number) for number, _ in members]
            inputs = [flat_of[number] for number, _ in members]
            rows = [_rows(unit, part, ids) for unit, (_, part), ids in zip(units, members, inputs)]
            if units[0].cut == "rows":
                matrices = _of_some_rows(variable, rows, inputs)
            else:
                distinct, places = tf.unique(tf.concat(rows, axis=0))
                matrices = combined(tf.gather(variable, distinct), places, inputs)
            of_input.update(zip([number for number, _ in members], matrices))
    none = tf.gather(variables[0], tf.zeros([0], tf.int64))
    return [none, *(of_input[number] for number, _ in parts)]


def _rows(unit: Unit, part: Part, ids: FlatIds) -> tf.Tensor:
    """The rows of the part's variable; -1 for ids that it does not have."""
    if unit.cut != "rows":
        base = part.shift if unit.cut == "columns" else unit.bases[0]
        return ids.values + base
    begin, end = part.rows
    return tf.where((ids.values >= begin) & (ids.values < end), ids.values + part.shift, -1)


def _of_some_rows(
    variable: tf.Variable, rows: Sequence[tf.Tensor], inputs: Sequence[FlatIds]
) -> list[tf.Tensor]:
    """This rank's share of the outputs; the sum of the shares is the output."""
    joined = tf.concat(rows, axis=0)
    is_here = joined >= 0
    distinct, places_here = tf.unique(tf.boolean_mask(joined, is_here))
    # Others read a row of zeros that follows.
    count = tf.size(distinct)
    values = tf.concat([tf.gather(variable, distinct), tf.zeros([1, variable.shape[1]])], axis=0)
    places = tf.tensor_scatter_nd_update(tf.fill(tf.shape(joined), count), tf.where(is_here), places_here)
    return combined(values, places, inputs)


def _outputs(
    strategy: DistEmbeddingStrategy,
    replicas: Sequence[tf.Variable],
    flat_of: dict[int, FlatIds],
    shapes_of: Sequence[dict[int, tf.Tensor]],
    arrived: Sequence[Sequence[tf.Tensor]],
) -> list[tf.Tensor]:
    of_parts: dict[int, list[tf.Tensor]] = {}
    for rank, matrices in enumerate(arrived):
        for (number, _), matrix in zip(_parts(strategy, rank), matrices[1:]):
            of_parts.setdefault(number, []).append(matrix)
    outputs = []
    for number in range(len(strategy.input_table_map)):
        unit = _unit_of(strategy, number)
        if unit.cut == "replicated":
            shape = shapes_of[communicator().rank][number]
            rows = _of_replica(replicas[strategy.layout.units.index(unit)], flat_of[number], shape)
        else:
            shape = shapes_of[unit.parts[0].rank][number]
            parts = of_parts[number]
            rows = tf.add_n(parts) if unit.cut == "rows" else tf.concat(parts, axis=1)
        if unit.combiner is None:
            rows = tf.reshape(rows, tf.concat([shape, [unit.columns]], axis=0))
        rows.set_shape([None] * (2 if unit.combiner is None else 1) + [unit.columns])
        outputs.append(rows)
    return outputs


def _of_replica(variable: tf.Variable, ids: FlatIds, shape: tf.Tensor) -> tf.Tensor:
    """The rows of this rank's samples."""
    distinct, places = tf.unique(ids.values)
    (rows,) = combined(tf.gather(variable, distinct), places, [ids])
    count = tf.reduce_prod(shape)
    begin = communicator().rank * count
    return rows[begin : begin + count]
