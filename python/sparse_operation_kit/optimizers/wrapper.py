"""OptimizerWrapper: the base class of optimizers that wrap another optimizer."""

from __future__ import annotations

from typing import Any, Union

import tensorflow as tf

from sparse_operation_kit import compat

Gradient = Union[tf.Tensor, tf.IndexedSlices, None]


class OptimizerWrapper(tf.compat.v1.train.Optimizer):
    """Passes all calls on to the optimizer that it wraps. For graph mode.

    Args:
      optimizer: a tf.compat.v1.train or a legacy Keras optimizer.
      name: prefix of the names of ops and variables.

    Raises:
      TypeError: if `optimizer` cannot be wrapped.
    """

    def __init__(self, optimizer: Any, name: str):
        super().__init__(use_locking=False, name=name)
        self._inner = optimizer
        self._inner_is_v1 = self._check_inner(optimizer)

    @property
    def inner_optimizer(self) -> Any:
        """The wrapped optimizer."""
        return self._inner

    def compute_gradients(self, loss, var_list=None, *args, **kwargs) -> list[tuple[Gradient, tf.Variable]]:
        """Like the wrapped optimizer's; for a Keras optimizer like tf.compat.v1.train.Optimizer's."""
        compute = self._inner.compute_gradients if self._inner_is_v1 else super().compute_gradients
        return compute(loss, var_list, *args, **kwargs)

    def minimize(self, loss, global_step=None, var_list=None, *args, **kwargs) -> tf.Operation:
        """Like tf.compat.v1.train.Optimizer's; also accepts Keras' order, `minimize(loss, variables)`."""
        if isinstance(global_step, (list, tuple)):
            global_step, var_list = None, global_step
        return super().minimize(loss, global_step, var_list, *args, **kwargs)

    def apply_gradients(self, grads_and_vars, global_step=None, name=None) -> tf.Operation:
        """Like the wrapped optimizer's; also increments `global_step` if that is a Keras optimizer."""
        pairs = list(grads_and_vars)
        if self._inner_is_v1:
            return self._inner.apply_gradients(pairs, global_step=global_step, name=name)
        # The gradients are not from the `minimize` of the Keras optimizer.
        pairs = compat.clipped_before_applying(self._inner, pairs)
        update = self._inner.apply_gradients(pairs, name=name)
        if global_step is None:
            return update
        with tf.control_dependencies([update]):
            return tf.compat.v1.assign_add(global_step, tf.ones([], global_step.dtype.base_dtype))

    def variables(self) -> list[tf.Variable]:
        """Returns the variables of this object and of the wrapped optimizer in the current graph."""
        inner = self._inner.variables
        return super().variables() + list(inner() if callable(inner) else inner)

    def get_slot(self, var: tf.Variable, name: str) -> tf.Variable | None:
        """Returns the wrapped optimizer's slot."""
        return self._inner.get_slot(var, name)

    def get_slot_names(self) -> list[str]:
        """Returns the wrapped optimizer's slot names."""
        return self._inner.get_slot_names()

    def _check_inner(self, optimizer: Any) -> bool:
        """Checks that `optimizer` can be wrapped; returns whether it is a tf.compat.v1.train optimizer."""
        own_name = type(self).__name__
        if isinstance(optimizer, type(self)):
            raise TypeError(f"{own_name} cannot wrap another {own_name}")
        if isinstance(optimizer, tf.compat.v1.train.Optimizer):
            return True
        if any(isinstance(optimizer, module.Optimizer) for _, module in compat.legacy_keras_optimizers()):
            return False
        raise TypeError(
            f"{own_name} wraps a tf.compat.v1.train.Optimizer or a legacy Keras optimizer, not"
            f" {type(optimizer).__name__}"
        )
