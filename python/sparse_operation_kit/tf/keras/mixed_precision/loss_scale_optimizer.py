"""Scales the loss so that float16 gradients neither vanish nor overflow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from sparse_operation_kit.compat.tensors import with_values
from sparse_operation_kit.optimizers.scalar_state import initializer_of, scalar_state
from sparse_operation_kit.optimizers.wrapper import Gradient, OptimizerWrapper
from sparse_operation_kit.ranks.communicator import communicator

_INITIAL_SCALE = 2.0**15
_GROWTH_STEPS = 2000
_FACTOR = 2.0


class LossScaleOptimizer(OptimizerWrapper):
    """Wraps an optimizer: it unscales the gradients of a scaled loss, and applies them if all are finite.

    A step with an infinity or a NaN in any gradient changes no table, no ordinary variable, no step counter
    of the wrapped optimizer and no global step. If the scale is dynamic, such a step halves it, but not below
    1, and `dynamic_growth_steps` good steps in a row double it. Ranks decide together: if a gradient is not
    finite on one rank, all ranks skip the step, so that their scales stay equal.

    For graph mode. Either let `minimize` or `compute_gradients` scale and unscale, or do it by hand:

        scaled_loss = optimizer.get_scaled_loss(loss)
        scaled_gradients = tf.gradients(scaled_loss, variables)
        gradients = optimizer.get_unscaled_gradients(scaled_gradients)
        train_op = optimizer.apply_gradients(zip(gradients, variables))

    Args:
      optimizer: a tf.compat.v1.train or a legacy Keras optimizer; also accepted as `inner_optimizer`.
      loss_scale: "dynamic" or True for a dynamic scale, a number for a fixed scale, False for a fixed scale
        of `initial_scale`. Also accepted as `dynamic`.
      initial_scale: the scale at the start. 2**15 by default if the scale is dynamic; required if
        `loss_scale` is False; not allowed if it is a number.
      dynamic_growth_steps: good steps before the scale grows; 2000 by default.
      name: prefix of the names of ops and variables.

    Raises:
      TypeError: if `optimizer` is not an optimizer that can be wrapped.
      ValueError: if the arguments contradict each other, or a scale or a step count is not positive.
    """

    def __init__(
        self,
        optimizer: Any = None,
        loss_scale: str | bool | float = "dynamic",
        initial_scale: float | None = None,
        dynamic_growth_steps: int | None = None,
        *,
        inner_optimizer: Any = None,
        dynamic: bool | None = None,
        name: str = "LossScaleOptimizer",
    ):
        if (optimizer is None) == (inner_optimizer is None):
            raise TypeError("LossScaleOptimizer takes one optimizer to wrap")
        super().__init__(inner_optimizer if optimizer is None else optimizer, name)
        if dynamic is not None:
            loss_scale = dynamic
        self._dynamic, self._initial_scale = _parse_scale(loss_scale, initial_scale)
        self._growth_steps = _parse_growth_steps(self._dynamic, dynamic_growth_steps)

    @property
    def dynamic(self) -> bool:
        """Whether the scale changes."""
        return self._dynamic

    @property
    def initial_scale(self) -> float:
        """The scale that training starts from."""
        return self._initial_scale

    @property
    def dynamic_growth_steps(self) -> int | None:
        """Good steps in a row before the scale grows; None if the scale is fixed."""
        return self._growth_steps

    @property
    def loss_scale(self) -> tf.Tensor:
        """The current scale, a float32 scalar of the current graph."""
        if not self._dynamic:
            return tf.constant(self._initial_scale, tf.float32)
        return tf.convert_to_tensor(self._scale_variable())

    @property
    def initializer(self) -> tf.Operation:
        """An op that initializes the scale's variables and the wrapped optimizer's own.

        It covers the variables that exist so far in the current graph; if there are none, it does nothing.
        """
        return initializer_of(self, self.inner_optimizer)

    def get_scaled_loss(self, loss: tf.Tensor | Callable) -> tf.Tensor | Callable:
        """Returns the loss times the scale. For a function it returns a function that scales its result."""
        if callable(loss):
            return lambda: self.get_scaled_loss(loss())
        return loss * tf.cast(self.loss_scale, loss.dtype)

    def get_unscaled_gradients(self, grads: Sequence[Gradient]) -> list[Gradient]:
        """Returns the gradients divided by the scale. tf.IndexedSlices and None keep their type."""
        factor = 1.0 / self.loss_scale
        return [_scaled(gradient, factor) for gradient in grads]

    def compute_gradients(self, loss, var_list=None, *args, **kwargs) -> list[tuple[Gradient, tf.Variable]]:
        """Like tf.compat.v1.train.Optimizer's, but scales the loss and unscales the gradients."""
        pairs = super().compute_gradients(self.get_scaled_loss(loss), var_list, *args, **kwargs)
        gradients = self.get_unscaled_gradients([gradient for gradient, _ in pairs])
        return [(gradient, variable) for gradient, (_, variable) in zip(gradients, pairs)]

    def apply_gradients(self, grads_and_vars, global_step=None, name=None) -> tf.Operation:
        """Lets the wrapped optimizer apply unscaled gradients, if all are finite.

        Args:
          grads_and_vars: pairs of an unscaled gradient and its variable.
          global_step: a variable that is incremented by one if the gradients are applied.
          name: name of the returned op.

        Raises:
          ValueError: if no variable has a gradient.
        """
        pairs = list(grads_and_vars)
        gradients = [gradient for gradient, _ in pairs if gradient is not None]
        if not gradients:
            raise ValueError(
                f"No gradients provided for any variable: {[variable.name for _, variable in pairs]}"
            )
        train_ops = tf.compat.v1.get_collection_ref(tf.compat.v1.GraphKeys.TRAIN_OP)
        earlier_train_ops = list(train_ops)
        with tf.compat.v1.name_scope(name, self.get_name()) as scope:
            # Created outside the branches: variables created in a branch could not be initialized.
            scale, good_steps = self._state()

            finite = communicator().all(_all_finite(gradients), f"{self.get_name()}.finite")

            def apply():
                update = super(LossScaleOptimizer, self).apply_gradients(pairs, global_step)
                return _done([update, *self._grow(scale, good_steps)])

            def skip():
                return _done(self._back_off(scale, good_steps))

            applied = tf.cond(finite, apply, skip)
            train_op = tf.group(applied, name=scope)
        # Replaces the op that the wrapped optimizer added, which is inside the conditional.
        train_ops[:] = [*earlier_train_ops, train_op]
        return train_op

    def _scale_variable(self) -> tf.Variable:
        return scalar_state(self, "current_loss_scale", self._initial_scale, tf.float32)

    def _state(self) -> tuple[Any, Any]:
        if not self._dynamic:
            return None, None
        return self._scale_variable(), scalar_state(self, "good_steps", 0, tf.int64)

    def _grow(self, scale: Any, good_steps: Any) -> list:
        if not self._dynamic:
            return []
        counted = good_steps + 1
        grown = scale * _FACTOR
        due = counted >= self._growth_steps
        return [
            scale.assign(tf.where(due & tf.math.is_finite(grown), grown, scale), read_value=False),
            good_steps.assign(tf.where(due, tf.zeros_like(counted), counted), read_value=False),
        ]

    def _back_off(self, scale: Any, good_steps: Any) -> list:
        if not self._dynamic:
            return []
        return [
            scale.assign(tf.maximum(scale / _FACTOR, 1.0), read_value=False),
            good_steps.assign(0, read_value=False),
        ]


def _parse_scale(loss_scale: Any, initial_scale: float | None) -> tuple[bool, float]:
    """Returns whether the scale is dynamic, and the scale at the start."""
    if isinstance(loss_scale, str) and loss_scale != "dynamic":
        raise ValueError(f"loss_scale must be 'dynamic', a bool or a number, not '{loss_scale}'")
    if loss_scale is True or loss_scale == "dynamic":
        dynamic, scale = True, _INITIAL_SCALE if initial_scale is None else initial_scale
    elif loss_scale is False:
        if initial_scale is None:
            raise ValueError("A fixed loss scale needs initial_scale")
        dynamic, scale = False, initial_scale
    else:
        if initial_scale is not None:
            raise ValueError(f"loss_scale={loss_scale} and initial_scale={initial_scale} both give the scale")
        dynamic, scale = False, loss_scale
    if not scale > 0:
        raise ValueError(f"The loss scale must be positive, not {scale}")
    return dynamic, float(scale)


def _parse_growth_steps(dynamic: bool, steps: int | None) -> int | None:
    if not dynamic:
        if steps is not None:
            raise ValueError(f"dynamic_growth_steps={steps} makes no sense with a fixed loss scale")
        return None
    if steps is None:
        return _GROWTH_STEPS
    if steps < 1:
        raise ValueError(f"dynamic_growth_steps must be at least 1, not {steps}")
    return int(steps)


def _scaled(gradient: Gradient, factor: tf.Tensor) -> Gradient:
    if gradient is None:
        return None
    if isinstance(gradient, tf.IndexedSlices):
        return with_values(gradient, gradient.values * tf.cast(factor, gradient.values.dtype))
    return gradient * tf.cast(factor, gradient.dtype)


def _all_finite(gradients: list) -> tf.Tensor:
    values = [g.values if isinstance(g, tf.IndexedSlices) else g for g in gradients]
    return tf.reduce_all(tf.stack([tf.reduce_all(tf.math.is_finite(value)) for value in values]))


def _done(updates: list) -> tf.Tensor:
    # The branches return a tensor, so that tf.cond's result depends on their updates in every TensorFlow.
    with tf.control_dependencies(updates):
        return tf.constant(True)
