"""Lookups of a layer with `dp_input=False`: a rank has the ids of the whole batch, for the tables it has.

    ids of this rank's tables -> rows -> combined per sample -> exchange -> outputs of this rank's samples

The exchange is one for all tables; gradients go back in another. Before it, ranks tell each other the shapes
of their inputs and what is wrong with them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from sparse_operation_kit.dist_model_parallel import exchanges
from sparse_operation_kit.dist_model_parallel.exchanges import swap
from sparse_operation_kit.dist_model_parallel.inputs import FlatIds, LayerCall, merge_ids, unless
from sparse_operation_kit.dist_model_parallel.layout import Part, Unit
from sparse_operation_kit.dist_model_parallel.pooling import combined
from sparse_operation_kit.dist_model_parallel.strategy import DistEmbeddingStrategy
from sparse_operation_kit.ranks.communicator import communicator

# Stands for the number of ids of a sample where ids are [batch].
_NO_HOTNESS = -1


def look_up(call: LayerCall) -> list[Any]:
    """Returns an output of this rank's samples for each input of the layer; there are several ranks.

    The ids are those of the inputs `call.strategy.input_ids_list[rank]`, each dense [batch] or
    [batch, hotness] or, if its table has a combiner, also ragged or sparse.
    """
    strategy, flat, name = call.strategy, call.flat, call.name
    rank, size = communicator().rank, strategy.world_size
    own = strategy.input_ids_list[rank]
    shapes = [_shape(ids) for ids in flat]
    read = [_read(strategy, number) for number in own]
    variables = [*call.variables, *call.replicas]
    merged = None
    if own:
        merged = merge_ids(flat, [r.variable for r in read], [r.base for r in read], len(variables))
    finding = None if merged is None else merged.finding
    header = exchanges.header(strategy, own, finding, [shape[0] for shape in shapes])
    words = tf.concat([header, *(shape // [size, 1] for shape in shapes)], axis=0)
    of_all, starts = _words_of_ranks(strategy, words, name)
    gate = exchanges.checked(
        strategy,
        tf.gather(of_all, starts + tf.range(exchanges.HEADER, dtype=tf.int64)),
        name,
        of_all,
    )
    if not tf.executing_eagerly():
        gate = _with_known_dimensions(strategy, gate, starts, name)
    shapes_of = [_shapes_of(strategy, rank, gate, starts[rank, 0]) for rank in range(size)]
    of_input: dict[int, tf.Tensor] = {}
    if merged is not None:
        with tf.control_dependencies([] if tf.executing_eagerly() else [gate]):
            distinct = [tf.identity(keys) for keys in merged.distinct]
        used = sorted({r.variable for r in read})
        part_of = {r.variable: r.part for r in read}
        rows, places = zip(*(_rows(variables[i], part_of[i], distinct[i], merged.places[i]) for i in used))
        outputs = combined(rows, places, flat, [used.index(r.variable) for r in read], call.on_gpu)
        of_input.update(zip(own, outputs))
    # The first matrix has no rows, so that each rank has a gradient.
    none = tf.gather(call.variables[0], tf.zeros([0], tf.int64))
    sent = [none, *(of_input[number] for number, _ in _parts(strategy, rank))]
    widths = [
        [group[0].columns] + [part.columns[1] - part.columns[0] for _, part in _parts(strategy, number)]
        for number, group in enumerate(strategy.layout.groups)
    ]
    counts = [_counts(strategy, number, shapes_of[number]) for number in range(size)]
    own_counts = tf.tile(counts[rank][tf.newaxis], [size, 1])
    arrived = swap(sent, own_counts, counts, widths, f"{name}: rows")
    return _outputs(strategy, of_input, shapes_of, arrived, _dimensions(own, flat))


@dataclasses.dataclass(frozen=True)
class _Read:
    """What an input of this rank reads.

    Attributes:
      variable: the position among this rank's variables, of which replicas come last.
      base: the key of id 0. Keys are rows of the variable, except for a table that is sliced by rows.
      part: for such a table, the rows that this rank has.
    """

    variable: int
    base: int
    part: Part | None = None


def _read(strategy: DistEmbeddingStrategy, number: int) -> _Read:
    unit, layout = _unit_of(strategy, number), strategy.layout
    rank = communicator().rank
    if unit.cut == "replicated":
        return _Read(len(layout.groups[rank]) + layout.units.index(unit), 0)
    (part,) = (part for part in unit.parts if part.rank == rank)
    if unit.cut == "rows":
        return _Read(part.group, 0, part)
    base = unit.bases[unit.tables.index(strategy.input_table_map[number])]
    return _Read(part.group, base + part.shift)


def _shape(ids: FlatIds) -> tf.Tensor:
    """int64 [2]: the batch, and the ids of a sample; 1 where they are combined, -1 for ids [batch]."""
    if ids.combiner is None:
        shape = tf.shape(ids.ids, out_type=tf.int64)
        return shape if ids.ids.shape.rank == 2 else tf.concat([shape, [_NO_HOTNESS]], axis=0)
    batch = ids.count_of_bags()
    return tf.stack([batch, tf.ones_like(batch)])


def _count(shape: tf.Tensor) -> tf.Tensor:
    """The number of rows of an input with this `_shape`."""
    return tf.abs(tf.reduce_prod(shape))


def _dimensions(own: Sequence[int], flat: Sequence[FlatIds]) -> dict[int | None, int | None]:
    """For each of this rank's inputs without a combiner, the number of dimensions of its ids.

    Under None, the number for the inputs of other ranks, which these send only when the step runs: that of
    all here, 2 if there are none here, or None if it cannot be known before.
    """
    found: dict[int | None, int | None] = {
        number: ids.ids.shape.rank for number, ids in zip(own, flat) if ids.combiner is None
    }
    different = set(found.values()) or {2}
    is_known = len(different) == 1 and not tf.executing_eagerly()
    return {**found, None: different.pop() if is_known else None}


def _with_known_dimensions(
    strategy: DistEmbeddingStrategy, of_all: tf.Tensor, starts: tf.Tensor, name: str
) -> tf.Tensor:
    """Returns `of_all`; running it is an error on all ranks if `_dimensions` is wrong on one."""
    some_flat, some_deep = [], []
    for rank, numbers in enumerate(strategy.input_ids_list):
        plain = [i for i, number in enumerate(numbers) if _unit_of(strategy, number).combiner is None]
        words = [exchanges.HEADER + 2 * i + 1 for i in plain]
        hotness = tf.gather(of_all, starts[rank] + tf.constant(words, tf.int64))
        some_flat.append(tf.reduce_any(hotness < 0))
        some_deep.append(tf.reduce_any(hotness >= 0))
    flat, deep = tf.stack(some_flat), tf.stack(some_deep)
    # A rank expects what it has itself; one that has both expects nothing.
    is_wrong = (~flat & tf.reduce_any(flat)) | (flat & ~deep & tf.reduce_any(deep))
    rank = tf.strings.as_string(tf.argmax(tf.cast(is_wrong, tf.int32)))
    message = (
        f"{name}: with dp_input=False, some ids are [batch] and some [batch, hotness], and rank ",
        rank,
        " has one kind only: a graph needs one kind for all tables without a combiner; [batch, 1] may take "
        "the place of [batch]",
    )
    return unless(~tf.reduce_any(is_wrong), message, of_all)


def _rows(
    variable: tf.Variable, part: Part | None, keys: tf.Tensor, places: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """The rows of keys, and the row of each id.

    In a table that is sliced by rows, ids of other ranks read zeros: the sum over ranks is the output.
    """
    if part is None:
        return tf.gather(variable, keys), places
    begin, end = part.rows
    is_here = (keys >= begin) & (keys < end)
    rows = tf.gather(variable, tf.boolean_mask(keys, is_here) + part.shift)
    # The row of zeros that follows. `tf.where` of TensorFlow 1.15 does not broadcast.
    zeros = tf.fill(tf.shape(keys), tf.shape(rows)[0])
    row_of_key = tf.where(is_here, tf.cumsum(tf.cast(is_here, tf.int32)) - 1, zeros)
    return tf.concat([rows, tf.zeros([1, variable.shape[1]])], axis=0), tf.gather(row_of_key, places)


def _words_of_ranks(
    strategy: DistEmbeddingStrategy, words: tf.Tensor, name: str
) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the words of all ranks, and where each rank's words begin, [ranks, 1]."""
    of_all, splits = communicator().send_to_all(words, f"{name}: shapes")
    # If another rank has other tables, its words may be too few. They are not used: its header is an error.
    of_all = tf.concat([of_all, tf.zeros([strategy.world_size * tf.size(words)], tf.int64)], axis=0)
    return of_all, tf.cumsum(tf.cast(splits, tf.int64), exclusive=True)[:, tf.newaxis]


def _shapes_of(
    strategy: DistEmbeddingStrategy, rank: int, of_all: tf.Tensor, start: tf.Tensor
) -> dict[int, tf.Tensor]:
    """For each input of a rank, the `_shape` of another rank's samples."""
    numbers = strategy.input_ids_list[rank]
    begin = start + exchanges.HEADER
    shapes = tf.reshape(of_all[begin : begin + 2 * len(numbers)], [len(numbers), 2])
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
    counts = [_count(shapes[number]) for number, _ in _parts(strategy, rank)]
    return tf.stack([tf.constant(0, tf.int64), *counts])


def _outputs(
    strategy: DistEmbeddingStrategy,
    of_input: dict[int, tf.Tensor],
    shapes_of: Sequence[dict[int, tf.Tensor]],
    arrived: Sequence[Sequence[tf.Tensor]],
    dimensions: dict[int | None, int | None],
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
            # Its output is for the samples of all ranks.
            count = _count(shape)
            rows = of_input[number][communicator().rank * count :][:count]
        else:
            shape = shapes_of[unit.parts[0].rank][number]
            parts = of_parts[number]
            rows = tf.add_n(parts) if unit.cut == "rows" else tf.concat(parts, axis=1)
        known = 1 if unit.combiner else dimensions.get(number, dimensions[None])
        if unit.combiner is None:
            of_ids = (
                tf.boolean_mask(shape, tf.not_equal(shape, _NO_HOTNESS)) if known is None else shape[:known]
            )
            rows = tf.reshape(rows, tf.concat([of_ids, [unit.columns]], axis=0))
        if known is not None:
            rows.set_shape([None] * known + [unit.columns])
        outputs.append(rows)
    return outputs
