"""Lets optimizers that know nothing of embedding variables train them.

It wraps `apply_gradients` of the base classes of optimizers. A call without embedding variables goes to the
original at once, with the very pairs it came with.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from sparse_operation_kit.core import replacements
from sparse_operation_kit.core.embedding_variable import is_embedding_variable
from sparse_operation_kit.optimizers import keras_routing, v1_routing
from sparse_operation_kit.optimizers.mapping import find_known
from sparse_operation_kit.optimizers.table_update import check_gradient

# What looks at the pairs before they are applied: functions of the optimizer and them.
_checks: list[Callable[[Any, Sequence], None]] = []


def add_check(check: Callable[[Any, Sequence], None]) -> None:
    """Has `check(optimizer, grads_and_vars)` called before gradients are applied, from now on."""
    _checks.append(check)


def _with_tables(route: Callable[[Any, Sequence[tf.Variable]], contextlib.AbstractContextManager]):
    """Wraps apply_gradients so that it runs inside `route` when embedding variables take part."""

    def wrap(original: Callable) -> Callable:
        @functools.wraps(original)
        def apply_gradients(self, grads_and_vars, *args, **kwargs):
            if not isinstance(grads_and_vars, (list, tuple)):
                # A zip can be gone through once only, and the original needs to.
                grads_and_vars = list(grads_and_vars)
            for check in _checks:
                check(self, grads_and_vars)
            tables = _check_tables(grads_and_vars)
            if not tables:
                return original(self, grads_and_vars, *args, **kwargs)
            with route(self, tables):
                return original(self, grads_and_vars, *args, **kwargs)

        return apply_gradients

    return wrap


def _check_tables(grads_and_vars: Sequence) -> list[tf.Variable]:
    """The embedding variables of the pairs, gradients checked. Malformed pairs are left to TensorFlow."""
    tables = []
    for pair in grads_and_vars:
        if isinstance(pair, (list, tuple)) and len(pair) == 2 and is_embedding_variable(pair[1]):
            check_gradient(pair[1], pair[0])
            tables.append(pair[1])
    return tables


@replacements.implements("tf.keras.optimizers.legacy.Optimizer.get_slot")
def _without_slots(original: Callable) -> Callable:
    @functools.wraps(original)
    def get_slot(self, var, slot_name):
        # Slots of a table lie in its rows; there is no variable to give.
        return None if is_embedding_variable(var) else original(self, var, slot_name)

    return get_slot


@contextlib.contextmanager
def _refuse(optimizer: Any, tables: Sequence[tf.Variable]):
    find_known(optimizer, tables[0])
    yield


replacements.implements("tf.compat.v1.train.Optimizer.apply_gradients")(_with_tables(v1_routing.routed))
replacements.implements("tf.keras.optimizers.legacy.Optimizer.apply_gradients")(
    _with_tables(keras_routing.routed)
)
replacements.implements("tf.keras.optimizers.Optimizer.apply_gradients")(_with_tables(_refuse))
