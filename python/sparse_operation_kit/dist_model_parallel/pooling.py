"""Rows of distinct ids to outputs: a row for each id, or the combined rows of each bag."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from sparse_operation_kit import native
from sparse_operation_kit.compat.tensors import SEGMENT_DTYPE
from sparse_operation_kit.dist_model_parallel.inputs import FlatIds
from sparse_operation_kit.graphs import graph_ops

_CPU = "/device:CPU:0"


def combined(
    rows: Sequence[tf.Tensor],
    places: Sequence[tf.Tensor],
    inputs: Sequence[FlatIds],
    unit_of: Sequence[int],
    on_gpu: bool,
) -> list[tf.Tensor]:
    """Returns for each input a matrix with a row for each id, or for each bag if its table has a combiner.

    Args:
      rows: of each unit, [distinct ids, columns].
      places: of each unit, int32, the row of each id of its inputs, one input after another.
      inputs: the inputs; those of a unit have one combiner.
      unit_of: the unit of each input; each has one.
      on_gpu: whether rows may be on a GPU. There TensorFlow's ops combine them, else one op.
    """
    inputs_of = [[i for i, unit in enumerate(unit_of) if unit == number] for number in range(len(rows))]
    rows = [tf.ensure_shape(matrix, [None, matrix.shape[-1]]) for matrix in rows]
    if on_gpu:
        outputs: list[Any] = [None] * len(inputs)
        for matrix, of_ids, members in zip(rows, places, inputs_of):
            of_unit = _combined_by_tensorflow(matrix, of_ids, [inputs[i] for i in members])
            for i, output in zip(members, of_unit):
                outputs[i] = output
        return outputs
    with tf.device(_CPU):
        bags = [ids.words_of_bags() for ids in inputs]
        return list(
            native.ops.sok_combine_rows(
                rows=rows,
                places=list(places),
                bags=[words for _, words in bags],
                unit_of=list(unit_of),
                combiners=[inputs[members[0]].combiner or "none" for members in inputs_of],
                kinds=[kind for kind, _ in bags],
            )
        )


def _attributes(op: tf.Operation) -> dict[str, Any]:
    return {name: op.get_attr(name) for name in ("unit_of", "combiners", "kinds")}


@tf.RegisterGradient(graph_ops.COMBINE_ROWS)
def _of_rows(op: tf.Operation, *gradients: tf.Tensor) -> list[tf.Tensor | None]:
    inputs = graph_ops.inputs_of(op)
    with tf.device(_CPU):
        of_rows = native.ops.sok_combine_rows_grad(
            **inputs, gradients=[tf.convert_to_tensor(gradient) for gradient in gradients], **_attributes(op)
        )
    return graph_ops.in_order_of_inputs(op, {"rows": of_rows})


@tf.RegisterGradient(graph_ops.COMBINE_ROWS_GRAD)
def _of_gradients(op: tf.Operation, *gradients: tf.Tensor) -> list[tf.Tensor | None]:
    inputs = graph_ops.inputs_of(op)
    with tf.device(_CPU):
        # Outputs are linear in the rows, and so are the gradients of rows in those of outputs.
        of_gradients = native.ops.sok_combine_rows(
            rows=[tf.convert_to_tensor(gradient) for gradient in gradients],
            places=inputs["places"],
            bags=inputs["bags"],
            **_attributes(op),
        )
    return graph_ops.in_order_of_inputs(op, {"gradients": of_gradients})


@tf.custom_gradient
def _rows_at(rows: tf.Tensor, places: tf.Tensor) -> tuple[tf.Tensor, Any]:
    """As tf.gather, but the gradient of `rows` is dense, because most of its rows are read."""

    def backward(gradient: tf.Tensor) -> tuple[tf.Tensor, None]:
        return tf.math.unsorted_segment_sum(gradient, places, tf.shape(rows)[0]), None

    return tf.gather(rows, places), backward


def _combined_by_tensorflow(rows: tf.Tensor, places: tf.Tensor, inputs: Sequence[FlatIds]) -> list[tf.Tensor]:
    combiner = inputs[0].combiner
    if combiner is None or all(ids.is_one_hot for ids in inputs):
        counts = [tf.size(ids.values) for ids in inputs]
        outputs = _rows_at(rows, places)
    else:
        counts, bags, before = [], [], tf.constant(0, tf.int64)
        for ids in inputs:
            bags.append(ids.bags() + before)
            counts.append(ids.count_of_bags())
            before += counts[-1]
        combine = tf.sparse.segment_sum if combiner == "sum" else tf.sparse.segment_mean
        segments, number = (tf.cast(one, SEGMENT_DTYPE) for one in (tf.concat(bags, axis=0), before))
        outputs = combine(rows, places, segments, num_segments=number)
    outputs.set_shape([None, rows.shape[-1]])
    return [outputs] if len(inputs) == 1 else tf.split(outputs, tf.stack(counts))
