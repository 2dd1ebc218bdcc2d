"""Lookups in branches, in functions and in blocks that `tf.recompute_grad` computes again: their gradients.

TensorFlow gives each tensor that a branch takes a gradient in every step; if the branch was not taken, zeros
of the tensor's shape. A table's handle has no such zeros. So a lookup in a branch also takes no rows of its
table, a tensor [0, dim], and the gradient of the table leaves the branch as that of this tensor:

    handle -> SokNoRows -> into the branch -> IdentityN(outputs, weights, no rows) -> outputs

It names rows of the table by tf.IndexedSlices. The zeros of a branch that was not taken name none. In the
graph of the handle, `SokNoRows` passes it on as the gradient of the handle.

TensorFlow gives the op of a recomputed function its variables as whole tensors. So the lookups of a function
are made once, outside, and it gets their rows as further arguments; only what follows is computed again.
Another lookup would also count each id twice, and over ranks exchange the rows twice.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from sparse_operation_kit import native
from sparse_operation_kit.changes import replacements
from sparse_operation_kit.compat.internals import ops, record
from sparse_operation_kit.graphs import graph_ops
from sparse_operation_kit.lookup.gradient_graph import gradients_of_lookup, leaves_with_gradients
from sparse_operation_kit.tables.embedding_variable import EmbeddingVariable
from sparse_operation_kit.tables.row_lookup import around, made_by

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
    of_tables, of_weights = gradients_of_lookup[lookup.type](lookup, gradients[: len(outputs)])
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


def rows_from_outside(look_up: Callable[..., list[tf.Tensor]]) -> Callable[..., list[tf.Tensor]]:
    """Decorates the function that makes lookups: a function that is recomputed gets rows made before."""

    @functools.wraps(look_up)
    def wrapper(lookups: Sequence[Any], *args: Any, **kwargs: Any) -> list[tf.Tensor]:
        make = functools.partial(look_up, lookups, *args, **kwargs)
        instead = around.get()
        return make() if instead is None else instead(lookups, make)

    return wrapper


class _LooksUp(Exception):
    """Raised at the first lookup of a function."""


@replacements.implements("tf.recompute_grad")
def _with_rows_as_arguments(original: Callable) -> Callable:
    @functools.wraps(original)
    def recompute_grad(f):
        without_lookups = original(f)

        @functools.wraps(without_lookups)
        def call(*args, **kwargs):
            if tf.executing_eagerly():
                return without_lookups(*args, **kwargs)
            reached = []

            def stop(lookups, make):
                del make
                reached.append(lookups)
                raise _LooksUp

            try:
                with made_by(stop):
                    return without_lookups(*args, **kwargs)
            except Exception:
                # It may be another error if AutoGraph has converted the function.
                if not reached:
                    raise
            made = _lookups_of(f, args)
            rows = [one for _, of_lookup in made for one in of_lookup]
            sizes = [(names, len(of_lookup)) for names, of_lookup in made]
            return original(_with_given_rows(f, len(args), sizes))(*args, *rows)

        call.__wrapped__ = f  # as TensorFlow's has it
        return call

    return recompute_grad


def _lookups_of(f: Callable, args: Sequence[Any]) -> list[tuple[str, list[tf.Tensor]]]:
    """Calls a function for its lookups; returns for each the names of its variables, and the rows."""
    place, outer = _place(), around.get()
    made = []

    def note(lookups, make):
        names = _names(lookups)
        if _place() != place:
            raise TypeError(
                f"tf.recompute_grad cannot take a function that looks rows up in embedding variable {names} "
                "inside tf.cond, tf.while_loop or tf.function: look them up before, and pass them to the "
                "function"
            )
        made.append((names, make() if outer is None else outer(lookups, make)))
        return made[-1][1]

    with made_by(note):
        f(*args)
    return made


def _with_given_rows(f: Callable, number: int, sizes: Sequence[tuple[str, int]]) -> Callable:
    """Returns `f` with the rows of its lookups as further arguments, after the first `number`."""

    @functools.wraps(f)
    def with_rows(*arguments):
        given, remaining = iter(arguments[number:]), iter(sizes)

        def take(lookups, make):
            del make
            names, size = next(remaining, (None, 0))
            if names != _names(lookups):
                raise ValueError(
                    f"tf.recompute_grad: the function looked rows up in embedding variable {_names(lookups)} "
                    "when it was called again, and not before"
                )
            return [next(given) for _ in range(size)]

        with made_by(take):
            return f(*arguments[:number])

    return with_rows


def _place() -> tuple[tf.Graph, Any]:
    """Returns the graph, and the branch or loop of v1 control flow, in which ops are made."""
    graph = tf.compat.v1.get_default_graph()
    return graph, graph._get_control_flow_context()


def _names(lookups: Sequence[Any]) -> str:
    return ", ".join(sorted({f"'{lookup.variable.m_var_name}'" for lookup in lookups}))
