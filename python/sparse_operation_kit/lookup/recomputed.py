"""Makes `tf.recompute_grad` take functions with lookups in embedding variables.

TensorFlow gives the op of a recomputed function its variables as whole tensors. So the lookups of a function
are made once, outside, and it gets their rows as further arguments; only what follows is computed again.
Another lookup would also count each id twice, and over ranks exchange the rows twice.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from sparse_operation_kit.changes import replacements
from sparse_operation_kit.tables.row_lookup import around, made_by


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
