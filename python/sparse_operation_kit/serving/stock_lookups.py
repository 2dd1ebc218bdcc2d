"""Lookups of a group in TensorFlow's own ops, from the inputs and attributes of the library's op."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

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
        return tf.ragged.row_splits_to_segment_ids(places), tf.size(places, tf.int64) - 1
    return places[:, 0], next(dense_shapes)[0]


def _side_by_side(lookups: Sequence[tf.Tensor], beside: Sequence[int]) -> list[tf.Tensor]:
    remaining = iter(lookups)
    together = [[next(remaining) for _ in range(number)] for number in beside or [1] * len(lookups)]
    return [ones[0] if len(ones) == 1 else tf.concat(ones, axis=-1) for ones in together]
