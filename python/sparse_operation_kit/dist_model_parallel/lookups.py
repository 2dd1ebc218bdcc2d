"""Lookups of all inputs of a layer, whose ids are those of this rank's samples.

    ids, merged per unit -> exchange -> rows of this rank's variables -> exchange -> rows of each unit ->
    outputs

Each exchange is one for all tables. A third one sends the gradients back, which an optimizer gets as
tf.IndexedSlices.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from sparse_operation_kit.dist_model_parallel import exchanges
from sparse_operation_kit.dist_model_parallel.exchanges import exchange_ids, swap
from sparse_operation_kit.dist_model_parallel.inputs import LayerCall, merge_ids
from sparse_operation_kit.dist_model_parallel.layout import Layout, Part, Unit
from sparse_operation_kit.dist_model_parallel.pooling import combined
from sparse_operation_kit.dist_model_parallel.strategy import DistEmbeddingStrategy
from sparse_operation_kit.ranks.communicator import communicator


@dataclasses.dataclass(frozen=True)
class _Requests:
    """What a rank requests of a unit.

    Attributes:
      rows: for each part of the unit, int64, the distinct rows of its variable; of a replica, this rank's.
      places: int32 [ids], the position of each id's row in the reply; for a table sliced by rows, the parts'
        replies follow each other.
    """

    rows: list[tf.Tensor]
    places: tf.Tensor


def look_up(call: LayerCall) -> list[Any]:
    """Returns an output for each input of the layer, in the shape that the plain layer gives."""
    strategy, flat = call.strategy, call.flat
    units = strategy.layout.units
    unit_of, bases = _units_of_inputs(strategy)
    merged = merge_ids(flat, unit_of, bases, len(units))
    requests = [_requests_of(*of_unit) for of_unit in zip(units, merged.distinct, merged.places)]
    header = exchanges.header(strategy, range(len(flat)), merged.finding)
    if communicator().size == 1:
        matrices = _own_matrices(call, requests, header)
    else:
        matrices = _matrices_of_ranks(call, requests, header)
    read = sorted(set(unit_of))
    rows = [
        tf.gather(call.replicas[number], matrices.checked(requests[number].rows[0]))
        if units[number].cut == "replicated"
        else matrices.of_unit(number, units[number])
        for number in read
    ]
    places = [requests[number].places for number in read]
    outputs = combined(rows, places, flat, [read.index(number) for number in unit_of], call.on_gpu)
    return [ids.shaped(matrix) for ids, matrix in zip(flat, outputs)]


def _units_of_inputs(strategy: DistEmbeddingStrategy) -> tuple[list[int], list[int]]:
    """For each input the number of its unit, and the key of its id 0."""
    of_table = {
        table: (number, base)
        for number, unit in enumerate(strategy.layout.units)
        for table, base in zip(unit.tables, unit.bases)
    }
    of_inputs = [of_table[table] for table in strategy.input_table_map]
    return [number for number, _ in of_inputs], [base for _, base in of_inputs]


def _requests_of(unit: Unit, keys: tf.Tensor, places: tf.Tensor) -> _Requests:
    if unit.cut != "rows":
        return _Requests([keys + part.shift if part.shift else keys for part in unit.parts] or [keys], places)
    owners = _owners(unit.parts, keys)
    order = tf.argsort(owners, stable=True)
    counts = tf.math.bincount(owners, minlength=len(unit.parts), maxlength=len(unit.parts))
    of_parts = tf.split(tf.gather(keys, order), counts, num=len(unit.parts))
    rows = [keys + part.shift for keys, part in zip(of_parts, unit.parts)]
    return _Requests(rows, tf.gather(tf.math.invert_permutation(order), places))


def _owners(parts: Sequence[Part], keys: tf.Tensor) -> tf.Tensor:
    """int32, the part that has each key. A bad id gets any part: it is never looked up."""
    ends = tf.constant([part.rows[1] for part in parts[:-1]], tf.int64)
    return tf.searchsorted(ends, keys, side="right")


class _Matrices:
    """The rows of the replies: a matrix for each variable of each sender, with the rows of its parts."""

    def __init__(self, layout: Layout, requests: Sequence[_Requests], gate: tf.Tensor) -> None:
        self._layout = layout
        self._requests = requests
        # A tensor that can be computed only if no rank found an error.
        self._gate = gate
        self._of_part: dict[tuple[int, int], tf.Tensor] = {}

    def add(self, of_ranks: Sequence[Sequence[tf.Tensor]]) -> None:
        for rank, matrices in enumerate(of_ranks):
            for matrix, parts in zip(matrices, self._layout.parts_of(rank)):
                sizes = [tf.size(self._requests[unit].rows[part]) for unit, part in parts]
                split = tf.split(matrix, sizes) if len(parts) > 1 else [matrix] * len(parts)
                self._of_part.update(zip(parts, split))

    def of_unit(self, number: int, unit: Unit) -> tf.Tensor:
        parts = [self._of_part[number, part] for part in range(len(unit.parts))]
        if len(parts) == 1:
            return parts[0]
        return tf.concat(parts, axis=1 if unit.cut == "columns" else 0)

    def checked(self, rows: tf.Tensor) -> tf.Tensor:
        with tf.control_dependencies([] if tf.executing_eagerly() else [self._gate]):
            return tf.identity(rows)


def _own_matrices(call: LayerCall, requests: Sequence[_Requests], header: tf.Tensor) -> _Matrices:
    layout = call.strategy.layout
    gate = exchanges.checked(call.strategy, header[tf.newaxis], call.name, tf.constant(0))
    matrices = _Matrices(layout, requests, gate)
    own = []
    for variable, parts in zip(call.variables, layout.parts_of(0)):
        rows = [requests[unit].rows[part] for unit, part in parts]
        own.append(tf.gather(variable, matrices.checked(_joined(rows))))
    matrices.add([own])
    return matrices


def _matrices_of_ranks(call: LayerCall, requests: Sequence[_Requests], header: tf.Tensor) -> _Matrices:
    strategy, variables, name = call.strategy, call.variables, call.name
    layout = strategy.layout
    wanted = [
        [_joined([requests[unit].rows[part] for unit, part in parts]) for parts in layout.parts_of(rank)]
        for rank in range(strategy.world_size)
    ]
    wanted_counts = [tf.stack([tf.size(rows, out_type=tf.int64) for rows in of_rank]) for of_rank in wanted]
    received, splits = exchange_ids(
        [[header, counts, *rows] for counts, rows in zip(wanted_counts, wanted)], f"{name}: ids"
    )
    groups = len(variables)
    places = tf.cumsum(splits, exclusive=True)[:, tf.newaxis] + tf.range(
        exchanges.HEADER + groups, dtype=tf.int64
    )
    # If another rank has other tables, its message may be shorter. The error is raised before its words are
    # used.
    places = tf.minimum(places, tf.size(received, out_type=tf.int64) - 1)
    headers = exchanges.checked(strategy, tf.gather(received, places[:, : exchanges.HEADER]), name, places)
    counts = tf.gather(received, headers[:, exchanges.HEADER :])
    sizes = tf.concat(
        [tf.fill([strategy.world_size, 1], tf.constant(exchanges.HEADER + groups, tf.int64)), counts], 1
    )
    split = tf.split(received, tf.reshape(sizes, [-1]), num=strategy.world_size * (1 + groups))
    own = [
        tf.gather(variable, _joined(split[1 + group :: 1 + groups]))
        for group, variable in enumerate(variables)
    ]
    widths = [[group.columns for group in of_rank] for of_rank in layout.groups]
    matrices = _Matrices(layout, requests, counts)
    matrices.add(swap(own, counts, wanted_counts, widths, f"{name}: rows"))
    return matrices


def _joined(rows: Sequence[tf.Tensor]) -> tf.Tensor:
    if not rows:
        return tf.zeros([0], tf.int64)
    return rows[0] if len(rows) == 1 else tf.concat(rows, axis=0)
