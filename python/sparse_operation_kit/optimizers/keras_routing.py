"""Makes a legacy Keras optimizer apply the gradients of embedding variables to the tables.

As in `v1_routing`, Keras' own `apply_gradients` runs, so that clipping, gradient transformers, schedules and
the iteration counter apply to all variables together.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import tensorflow as tf

from sparse_operation_kit.optimizers.known_optimizer import shadow_methods
from sparse_operation_kit.optimizers.mapping import find_known
from sparse_operation_kit.optimizers.step_ops import StepOps
from sparse_operation_kit.optimizers.table_update import check_gradient, claim_table
from sparse_operation_kit.tables.embedding_variable import is_embedding_variable
from sparse_operation_kit.tables.table_device import on_host


@contextlib.contextmanager
def routed(optimizer: Any, tables: Sequence[tf.Variable]) -> Iterator[None]:
    """Returns a context in which `optimizer.apply_gradients` updates embedding variables in their tables.

    Args:
      optimizer: a legacy Keras optimizer.
      tables: the embedding variables of the call, at least one.

    Raises:
      TypeError: if the optimizer is not a known one.
    """
    known = find_known(optimizer, tables[0])
    ops = StepOps()
    add_slot = optimizer.add_slot
    apply_dense = optimizer._resource_apply_dense
    apply_slices = optimizer._resource_apply_sparse_duplicate_indices

    prepare = optimizer._prepare
    coefficients: dict[str, Any] = {}

    def prepare_ordinary_variables(var_list):
        return prepare([variable for variable in var_list if not is_embedding_variable(variable)])

    def update_table(variable, gradient):
        check_gradient(variable, gradient)
        with on_host(variable):
            if not coefficients:
                coefficients.update(optimizer._fallback_apply_state(variable.device, tf.float32))
            update = known.update(optimizer, coefficients)
            hyper = update.packed_hyper()
        claim_table(variable, optimizer, update.rule, update.hyper)
        return ops.update(variable, gradient, update.rule, hyper)

    # Replaced instead of `_create_slots`, which also creates state that all variables share.
    def add_slot_of_ordinary_variable(var, slot_name, *args, **kwargs):
        return None if is_embedding_variable(var) else add_slot(var, slot_name, *args, **kwargs)

    # Keras inspects this signature to decide whether to pass apply_state.
    def dense(grad, var, apply_state=None):
        if is_embedding_variable(var):
            return update_table(var, grad)
        return apply_dense(grad, var, apply_state=apply_state)

    def slices(grad, var, indices, **kwargs):
        if is_embedding_variable(var):
            return update_table(var, tf.IndexedSlices(grad, indices))
        return apply_slices(grad, var, indices, **kwargs)

    with shadow_methods(
        optimizer,
        add_slot=add_slot_of_ordinary_variable,
        _prepare=prepare_ordinary_variables,
        _resource_apply_dense=dense,
        _resource_apply_sparse_duplicate_indices=slices,
    ):
        yield
        ops.finish()
