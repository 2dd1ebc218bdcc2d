"""Ops of this library in TensorFlow's own ops, from their inputs and attributes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from sparse_operation_kit.graphs import graph_ops
from sparse_operation_kit.lookup import bags
from sparse_operation_kit.serving.stock_tables import StockTable


def look_up(group: tf.Operation, inputs: Mapping[str, Any], tables: Sequence[StockTable]) -> list[tf.Tensor]:
    """Returns the outputs of a group's lookup in the default graph.

    Ids without a row read as the tables' options say, whatever `training` was. Weights are not checked.

    Args:
      group: An op with the signature of `SokGroupLookup`, in any graph; its attributes are read.
      inputs: Its inputs by name, in the default graph.
      tables: The tables of its handles.
    """
    bag_inputs, dense_shapes, weights = (iter(inputs[name]) for name in ("bags", "dense_shapes", "weights"))
    layouts = group.get_attr("layouts")
    ignored = [False] * len(layouts)
    positive_only = group.get_attr("positive_weights_only") or ignored
    placed = group.get_attr("placed") or ignored
    outputs = []
    for number, layout in enumerate(layouts):
        table = tables[group.get_attr("table_of")[number]]
        ids = inputs["ids"][number]
        if layout == b"dense":
            outputs.append(table.look_up(ids))
            continue
        ids.set_shape([None])  # Of what a function takes it may be unknown.
        segments, count = _bags(layout, next(bag_inputs), dense_shapes)
        if placed[number]:
            next(bag_inputs)
        of_ids: Any = next(weights) if group.get_attr("weighted")[number] else None
        if positive_only[number]:
            keep = of_ids > 0
            ids, segments, of_ids = (tf.boolean_mask(one, keep) for one in (ids, segments, of_ids))
        rows = table.look_up(ids)
        if of_ids is not None:
            rows = rows * of_ids[:, tf.newaxis]
        combiner = group.get_attr("combiners")[number].decode()
        output = bags.combine_segments(rows, segments, count, combiner, of_ids)
        slots = group.get_attr("slots")[number]
        outputs.append(tf.reshape(output, [-1, slots, output.shape[1]]) if slots else output)
    return _side_by_side(outputs, group.get_attr("beside"))


def _bags(layout: bytes, places: tf.Tensor, dense_shapes: Any) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the bag of each id, and the number of bags."""
    if layout == b"ragged":
        return tf.ragged.row_splits_to_segment_ids(places), tf.size(places, out_type=tf.int64) - 1
    return places[:, 0], next(dense_shapes)[0]


def _side_by_side(lookups: Sequence[tf.Tensor], beside: Sequence[int]) -> list[tf.Tensor]:
    remaining = iter(lookups)
    together = [[next(remaining) for _ in range(number)] for number in beside or [1] * len(lookups)]
    return [ones[0] if len(ones) == 1 else tf.concat(ones, axis=-1) for ones in together]


def _merge_ids(op: tf.Operation, inputs: Mapping[str, Any]) -> list[tf.Tensor]:
    keys: list[list[tf.Tensor]] = [[tf.zeros([0], tf.int64)] for _ in range(op.get_attr("units"))]
    findings = []
    sizes = iter(op.get_attr("sizes"))
    attributes = (op.get_attr(name) for name in ("unit_of", "bases", "features"))
    for number, (ids, unit, base, features) in enumerate(zip(inputs["ids"], *attributes)):
        ids = tf.reshape(ids, [-1])
        ends = np.cumsum([next(sizes) for _ in range(features)])
        starts = np.concatenate([[0], ends[:-1]])
        feature = tf.range(tf.size(ids)) % features
        too_large = ids >= tf.gather(tf.constant(ends - starts, tf.int64), feature)
        lowest = tf.minimum(tf.reduce_min(ids), 0)
        highest = tf.maximum(tf.reduce_max(tf.where(too_large, ids, tf.zeros_like(ids))), 0)
        worst = tf.where(lowest < 0, lowest, highest)  # 0: none is out of range
        is_bad = tf.cast(tf.not_equal(worst, 0), tf.int64)
        findings.append(tf.stack([is_bad, is_bad * number, worst]))
        keys[unit].append(ids + tf.gather(tf.constant(base + starts, tf.int64), feature))
    merged = [tf.unique(tf.concat(of_unit, 0)) for of_unit in keys]
    of_inputs = tf.stack(findings)
    finding = of_inputs[tf.argmax(of_inputs[:, 0])]
    return [*(distinct for distinct, _ in merged), *(places for _, places in merged), finding]


def _combine_rows(op: tf.Operation, inputs: Mapping[str, Any]) -> list[tf.Tensor]:
    outputs = []
    combiners, begins = op.get_attr("combiners"), [0] * len(inputs["rows"])
    for words, unit, kind in zip(inputs["bags"], op.get_attr("unit_of"), op.get_attr("kinds")):
        if kind == b"fixed":
            count = tf.reduce_prod(words[:-1])
            segments = tf.repeat(tf.range(count), words[-1])
        elif kind == b"splits":
            count, segments = (
                tf.size(words, out_type=tf.int64) - 1,
                tf.ragged.row_splits_to_segment_ids(words),
            )
        else:
            count, segments = words[0], words[1:]
        end = begins[unit] + tf.size(segments)
        rows = tf.gather(inputs["rows"][unit], inputs["places"][unit][begins[unit] : end])
        begins[unit] = end
        combiner = combiners[unit].decode()
        outputs.append(
            rows if combiner == "none" else bags.combine_segments(rows, segments, count, combiner, None)
        )
    return outputs


def _raise_failures(op: tf.Operation, inputs: Mapping[str, Any]) -> list[tf.Tensor]:
    holds = tf.reduce_all(tf.equal(tf.stack(inputs["codes"]), 0))
    with tf.control_dependencies([tf.debugging.Assert(holds, inputs["messages"])]):
        return [tf.constant("OK")]


def _no_rows(op: tf.Operation, inputs: Mapping[str, Any]) -> list[tf.Tensor]:
    del inputs
    return [tf.zeros([0, op.get_attr("dim")])]


# The outputs of ops of the library that need no row of a table, from the op, whose attributes are read, and
# its inputs by name in the default graph.
COUNTERPARTS: Mapping[str, Callable[[tf.Operation, Mapping[str, Any]], list[tf.Tensor]]] = {
    graph_ops.MERGE_IDS: _merge_ids,
    graph_ops.COMBINE_ROWS: _combine_rows,
    graph_ops.RAISE_FAILURES: _raise_failures,
    graph_ops.NO_ROWS: _no_rows,
}
