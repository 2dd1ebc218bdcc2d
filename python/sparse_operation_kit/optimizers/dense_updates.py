"""Trains dense tables by one op for a variable and its slots.

A dense table is an ordinary variable whose rows are looked up by ids. TensorFlow's optimizers train it with
several ops: they sum the gradients of equal rows, and read and write each slot and the variable. During a
call of `apply_gradients` of a known optimizer, `SokTrainRows` takes their place, with the arithmetic of the
engine's rule. It does so where that is TensorFlow's arithmetic for sparse gradients: the rule changes rows
with a gradient only, and has slots of the variable's shape. Other optimizers keep their ops.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from sparse_operation_kit import native
from sparse_operation_kit.changes import replacements
from sparse_operation_kit.changes.replacement_table import Part
from sparse_operation_kit.optimizers.known_optimizer import KnownOptimizer, shadow_methods
from sparse_operation_kit.optimizers.mapping import known_or_none
from sparse_operation_kit.optimizers.table_update import TableUpdate
from sparse_operation_kit.tables.table_device import may_be_on_gpu

_MARK = "_sok_dense_table"


def make_dense_table(variable: tf.Variable) -> None:
    """Lets optimizers train a resource variable of floats, [rows, columns], by one op if they can."""
    # Not at import, so that importing the library alone does not change TensorFlow.
    replacements.install(Part.OPTIMIZERS)
    setattr(variable, _MARK, True)


def is_dense_table(variable: Any) -> bool:
    """Whether `make_dense_table` was called for the variable."""
    return getattr(variable, _MARK, False)


@functools.lru_cache(maxsize=None)
def trains_dense_tables(rule: str) -> bool:
    """Whether a rule of the engine changes rows with a gradient only, and has whole rows as slots."""
    of_rule = native.optimizer_rules()[rule]
    has_row_slots = any(slot["one_per_row"] for slot in of_rule["slots"].values())
    return of_rule["untouched"] == "stay" and not has_row_slots


@contextlib.contextmanager
def routed(optimizer: Any) -> Iterator[None]:
    """Returns a context in which `optimizer.apply_gradients` trains dense tables by one op each, if it can.

    Args:
      optimizer: any optimizer of tf.compat.v1.train or of Keras.
    """
    known = known_or_none(optimizer)
    if known is None or known.for_tables_only:
        yield
        return
    is_v1 = isinstance(optimizer, tf.compat.v1.train.Optimizer)
    update_of = _v1_update(known, optimizer) if is_v1 else _keras_update(known, optimizer)
    original = optimizer._resource_apply_sparse_duplicate_indices

    # Keras passes apply_state by name, and only if it finds that name here or takes any.
    def apply_slices(grad, var, indices, **kwargs):
        update = None
        if is_dense_table(var) and grad.dtype == tf.float32 and not may_be_on_gpu(var):
            update = update_of(var, tf.IndexedSlices(grad, indices), **kwargs)
        if update is None or not trains_dense_tables(update.rule):
            return original(grad, var, indices, **kwargs)
        return _train_rows(optimizer, known, update, var, indices, grad)

    with shadow_methods(optimizer, _resource_apply_sparse_duplicate_indices=apply_slices):
        yield


def _v1_update(known: KnownOptimizer, optimizer: Any) -> Callable[..., TableUpdate]:
    if known.differs_by_table:
        return lambda variable, gradient: known.update(optimizer, variable, gradient)
    # Made in the first update, since it needs the tensors of `_prepare`.
    made = functools.lru_cache(maxsize=None)(lambda: known.update(optimizer))
    return lambda variable, gradient: made()


def _keras_update(known: KnownOptimizer, optimizer: Any) -> Callable[..., TableUpdate]:
    def update(variable: tf.Variable, gradient: tf.IndexedSlices, apply_state: Any = None) -> TableUpdate:
        del gradient
        coefficients = (apply_state or {}).get((variable.device, tf.float32))
        return known.update(
            optimizer, coefficients or optimizer._fallback_apply_state(variable.device, tf.float32)
        )

    return update


def _train_rows(
    optimizer: Any,
    known: KnownOptimizer,
    update: TableUpdate,
    variable: tf.Variable,
    rows: tf.Tensor,
    gradients: tf.Tensor,
) -> tf.Operation:
    names = {of_rule: name for name, of_rule in known.slots.items()}
    slots = [
        optimizer.get_slot(variable, names.get(slot, slot))
        for slot in native.optimizer_rules()[update.rule]["slots"]
    ]
    return native.ops.sok_train_rows(
        variable=variable.handle,
        slots=[slot.handle for slot in slots],
        hyper=update.packed_hyper(),
        rows=tf.cast(rows, tf.int64),
        gradients=gradients,
        optimizer=update.rule,
        variable_name=variable.name,
    )
