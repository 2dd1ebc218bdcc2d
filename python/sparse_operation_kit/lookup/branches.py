"""Gradients of lookups inside of branches and functions.

TensorFlow gives each tensor that a branch takes a gradient in every step; if the branch was not taken, zeros
of the tensor's shape. A table's handle has no such zeros. So a lookup in a branch also takes no rows of its
table, a tensor [0, dim], and the gradient of the table leaves the branch as that of this tensor:

    handle -> SokNoRows -> into the branch -> IdentityN(outputs, weights, no rows) -> outputs

It names rows of the table by tf.IndexedSlices. The zeros of a branch that was not taken name none. In the
graph of the handle, `SokNoRows` passes it on as the gradient of the handle.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from sparse_operation_kit import native
from sparse_operation_kit.compat.internals import ops, record
from sparse_operation_kit.graphs import graph_ops
from sparse_operation_kit.lookup.gradient_graph import gradients_of_lookup, leaves_with_gradients
from sparse_operation_kit.tables.embedding_variable import EmbeddingVariable

_NO_ROWS_ATTRIBUTE = "_sok_no_rows"


def with_gradients(
    tables: Sequence[EmbeddingVariable], weights: Sequence[tf.Tensor], outputs: Sequence[tf.Tensor]
) -> list[tf.Tensor]:
    """Returns a lookup's outputs with gradients that can leave the branch or function that is being built.

    Args:
      tables: The tables of the lookup, in the order of its handles.
      weights: The lookup's weights.
      outputs: The lookup's outputs.

    Returns:
      `outputs` where no branch or function is built, and in loops, which gradients cannot leave.
    """
    graph = tf.compat.v1.get_default_graph()
    if not leaves_with_gradients(graph):
        return list(outputs)
    # Not beside the table, as TensorFlow's lookups are: what a function takes has a device already.
    with graph.colocate_with(None, ignore_existing=True):
        # In the branch or function before recording stops, so that tapes know whence they come.
        inputs = [*outputs, *weights, *(tf.identity(_no_rows(table)) for table in tables)]
        # A tape would take the gradient of TensorFlow's IdentityN.
        with record.stop_recording(), graph.gradient_override_map({"IdentityN": graph_ops.IN_BRANCH}):
            passed_on = tf.identity_n(inputs)
    record.record_operation(graph_ops.IN_BRANCH, passed_on, inputs, functools.partial(_gradients, inputs))
    return passed_on[: len(outputs)]


def _no_rows(table: EmbeddingVariable) -> tf.Tensor:
    """Returns a table's output of `SokNoRows`, in the graph of its handle and outside of branches there."""
    rows = getattr(table, _NO_ROWS_ATTRIBUTE, None)
    if rows is None:
        with table.handle.graph.as_default(), tf.control_dependencies(None), record.stop_recording():
            rows = native.ops.sok_no_rows(table.handle, dim=table.dim)
        setattr(table, _NO_ROWS_ATTRIBUTE, rows)
    record.record_operation(
        graph_ops.NO_ROWS, [rows], [table.handle], lambda gradient: [_gradient_of(table.handle, gradient)]
    )
    return rows


@ops.RegisterGradient(graph_ops.IN_BRANCH)
def _gradient_inside(op: tf.Operation, *gradients: tf.Tensor) -> list[Any]:
    return _gradients(op.inputs, *gradients)


def _gradients(inputs: Sequence[tf.Tensor], *gradients: tf.Tensor) -> list[Any]:
    lookup = next(iter(inputs)).op
    outputs = graph_ops.outputs_of(lookup)["outputs"]
    of_tables, of_weights = gradients_of_lookup(lookup, gradients[: len(outputs)])
    no_rows = inputs[len(outputs) + len(of_weights) :]
    # Like the slices that TensorFlow makes of zeros, with a shape.
    slices = [
        tf.IndexedSlices(one.values, one.indices, tf.shape(rows)) for one, rows in zip(of_tables, no_rows)
    ]
    return [*(None for _ in outputs), *of_weights, *slices]


@ops.RegisterGradient(graph_ops.NO_ROWS)
def _gradient_outside(op: tf.Operation, gradient: tf.IndexedSlices) -> tf.IndexedSlices:
    return _gradient_of(graph_ops.inputs_of(op)["handle"], gradient)


def _gradient_of(handle: tf.Tensor, gradient: Any) -> tf.IndexedSlices:
    if not isinstance(gradient, tf.IndexedSlices) or graph_ops.leaves_loop(gradient.indices):
        name = graph_ops.table_of(handle).name
        raise TypeError(
            f"There is no gradient for lookups in embedding variable '{name}' in a function that "
            "tf.while_loop calls: look the rows up outside and use them inside, or use tf.stop_gradient"
        )
    return tf.IndexedSlices(gradient.values, native.ops.sok_rows_of_branches(handle, gradient.indices))


ops.NotDifferentiable(graph_ops.ROWS_OF_BRANCHES)
