"""Makes TensorFlow's and legacy Keras optimizers apply gradients of embedding variables to the tables.

TensorFlow's own `apply_gradients` runs, with everything it does (name scopes, the global step, the counters
of Adam, the collection of train ops). During the call only the methods that create slots and update one
variable are replaced; for ordinary variables the replacements call the original methods. With Keras' own
`apply_gradients`, clipping, gradient transformers, schedules and the iteration counter apply to all variables
together.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf

from sparse_operation_kit.optimizers.known_optimizer import shadow_methods
from sparse_operation_kit.optimizers.mapping import KnownOptimizer, find_known
from sparse_operation_kit.optimizers.step_ops import StepOps
from sparse_operation_kit.optimizers.table_update import check_gradient, claim_table
from sparse_operation_kit.tables.embedding_variable import is_embedding_variable
from sparse_operation_kit.tables.table_device import may_be_on_gpu, on_host


class _Step:
    """One call of apply_gradients. Unless `differs_by_table`, all tables share the update.

    Args:
      optimizer: the optimizer.
      known: its entry.
      arguments: returns what `known.update` takes besides the optimizer, given a table and its gradient.
    """

    def __init__(self, optimizer: Any, known: KnownOptimizer, arguments: Callable[..., Sequence[Any]]):
        self._optimizer = optimizer
        self._known = known
        self._arguments = arguments
        self._update: Any = None
        self._hyper: tf.Tensor | None = None
        self._ops = StepOps()

    def apply(self, variable: tf.Variable, gradient: tf.IndexedSlices) -> tf.Operation:
        check_gradient(variable, gradient)
        # The update is created here and not before the call, because it needs the tensors of _prepare.
        if self._known.differs_by_table or self._update is None:
            with on_host(variable):
                self._prepare(variable, gradient)
        rule = self._known.rule_for(self._update.rule, variable)
        claim_table(variable, self._optimizer, rule, self._update.hyper)
        return self._ops.update(variable, gradient, rule, self._hyper)

    def finish(self) -> None:
        self._ops.finish()

    def _prepare(self, variable: tf.Variable, gradient: tf.IndexedSlices) -> None:
        update = self._known.update(self._optimizer, *self._arguments(variable, gradient))
        if update is not self._update:
            self._update, self._hyper = update, update.packed_hyper()

    def routed(self, apply: Callable) -> Callable:
        """Returns a method of the optimizer that applies gradients, for tables too."""

        def apply_any(grad, var, *indices, **kwargs):
            if not is_embedding_variable(var):
                return apply(grad, var, *indices, **kwargs)
            return self.apply(var, tf.IndexedSlices(grad, *indices) if indices else grad)

        return apply_any


_V1_METHODS = (
    "_apply_dense",
    "_apply_sparse_duplicate_indices",
    "_resource_apply_dense",
    "_resource_apply_sparse_duplicate_indices",
)


@contextlib.contextmanager
def v1_routed(optimizer: tf.compat.v1.train.Optimizer, tables: Sequence[tf.Variable]) -> Iterator[None]:
    """Returns a context in which `optimizer.apply_gradients` updates embedding variables in their tables.

    Args:
      optimizer: a tf.compat.v1.train.Optimizer.
      tables: the embedding variables of the call, at least one.

    Raises:
      TypeError: if the optimizer is not a known one.
    """
    known = find_known(optimizer, tables[0])
    step = _Step(optimizer, known, lambda *of_table: of_table if known.differs_by_table else ())
    create_slots = optimizer._create_slots

    def create_slots_of_ordinary_variables(var_list):
        ordinary = [variable for variable in var_list if not is_embedding_variable(variable)]
        # TensorFlow puts step counters on the device of an ordinary variable. A table's kernel needs them on
        # the host, so for tables on GPUs they are made first, and there.
        if not ordinary or any(may_be_on_gpu(table) for table in tables):
            known.create_shared_state(optimizer, tables)
        if ordinary:
            create_slots(ordinary)

    methods = {name: step.routed(getattr(optimizer, name)) for name in _V1_METHODS}
    with shadow_methods(optimizer, _create_slots=create_slots_of_ordinary_variables, **methods):
        yield
        step.finish()


@contextlib.contextmanager
def keras_routed(optimizer: Any, tables: Sequence[tf.Variable]) -> Iterator[None]:
    """Returns a context in which `optimizer.apply_gradients` updates embedding variables in their tables.

    Args:
      optimizer: a legacy Keras optimizer.
      tables: the embedding variables of the call, at least one.

    Raises:
      TypeError: if the optimizer is not a known one.
    """
    known = find_known(optimizer, tables[0])
    step = _Step(
        optimizer, known, lambda variable, _: [optimizer._fallback_apply_state(variable.device, tf.float32)]
    )
    add_slot, prepare = optimizer.add_slot, optimizer._prepare
    apply_dense = step.routed(optimizer._resource_apply_dense)

    def prepare_ordinary_variables(var_list):
        return prepare([variable for variable in var_list if not is_embedding_variable(variable)])

    # Replaced instead of `_create_slots`, which also creates state that all variables share.
    def add_slot_of_ordinary_variable(var, slot_name, *args, **kwargs):
        return None if is_embedding_variable(var) else add_slot(var, slot_name, *args, **kwargs)

    # Keras inspects this signature to decide whether to pass apply_state.
    def dense(grad, var, apply_state=None):
        return apply_dense(grad, var, apply_state=apply_state)

    with shadow_methods(
        optimizer,
        add_slot=add_slot_of_ordinary_variable,
        _prepare=prepare_ordinary_variables,
        _resource_apply_dense=dense,
        _resource_apply_sparse_duplicate_indices=step.routed(
            optimizer._resource_apply_sparse_duplicate_indices
        ),
    ):
        yield
        step.finish()
