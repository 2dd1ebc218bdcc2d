"""Adam with decoupled weight decay that updates only the rows of the batch."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import tensorflow as tf

from sparse_operation_kit.optimizers import lazy_adam, v1_rules
from sparse_operation_kit.optimizers.known_optimizer import of_v1
from sparse_operation_kit.optimizers.lazy_adam import LazyAdamOptimizer
from sparse_operation_kit.optimizers.scalar_state import CountsIterations
from sparse_operation_kit.optimizers.table_update import TableUpdate


class AdamWOptimizer(LazyAdamOptimizer):
    """DeepRec's `tf.train.AdamWOptimizer`, for embedding and ordinary variables.

    With gradient g, moments m and v, and the bias-corrected rate alpha of Adam::

        w -= weight_decay * w
        m = beta1 * m + (1 - beta1) * g
        v = beta2 * v + (1 - beta2) * g * g
        w -= alpha * m / (sqrt(v) + epsilon)

    The decay is decoupled (Loshchilov and Hutter, 2019): it is not part of the gradient, and the learning
    rate does not scale it. If the learning rate has a schedule, give `weight_decay` a schedule too.

    A step changes only the rows of an embedding variable that its lookups have read, each row once, however
    often its key occurs. Rows without a gradient keep their weights and moments; the decay that they miss is
    not made up later. The same applies to ordinary variables whose gradient is tf.IndexedSlices. With a dense
    gradient every element of an ordinary variable decays and moves.

    Its methods are those of tf.compat.v1.train.Optimizer. `minimize` and `apply_gradients` also take
    DeepRec's `decay_var_list`: the variables that decay, None for all. The others move as with LazyAdam.

    Args:
      weight_decay: the fraction of a weight that a step subtracts, in [0, 1]; a number, a scalar tensor, or a
        function without arguments that returns one.
      learning_rate: a number, a scalar tensor, or a function without arguments that returns one.
      beta1: decay of the first moment.
      beta2: decay of the second moment.
      epsilon: added to the square root of the second moment.
      use_locking: whether updates of ordinary variables take locks.
      name: prefix of the names of ops and variables.
      second_moment: "element" or "row", as for `LazyAdamOptimizer`.

    Raises:
      ValueError: if `second_moment` is neither.
    """

    def __init__(
        self,
        weight_decay: float | tf.Tensor | Callable,
        learning_rate: float | tf.Tensor | Callable = 0.001,
        beta1: float | tf.Tensor = 0.9,
        beta2: float | tf.Tensor = 0.999,
        epsilon: float | tf.Tensor = 1e-8,
        use_locking: bool = False,
        name: str = "AdamW",
        second_moment: str = "element",
    ):
        super().__init__(learning_rate, beta1, beta2, epsilon, use_locking, name, second_moment)
        self._weight_decay = weight_decay
        # The tensor of the step that is being built, and the variables that decay in it; None for all.
        self._weight_decay_tensor = None
        self._decaying: Sequence[tf.Variable] | None = None
        # The updates of that step's tables, by whether they decay.
        self._updates: dict[bool, TableUpdate] = {}

    def minimize(self, *args: Any, decay_var_list: Iterable[tf.Variable] | None = None, **kwargs: Any) -> Any:
        """Like `minimize` of the base class; `decay_var_list` has the variables that decay, None for all."""
        with self._of_step(decay_var_list):
            return super().minimize(*args, **kwargs)

    def apply_gradients(
        self, *args: Any, decay_var_list: Iterable[tf.Variable] | None = None, **kwargs: Any
    ) -> Any:
        """Like `apply_gradients` of the base class; `decay_var_list` as in `minimize`."""
        with self._of_step(self._decaying if decay_var_list is None else decay_var_list):
            return super().apply_gradients(*args, **kwargs)

    @contextlib.contextmanager
    def _of_step(self, decay_var_list: Iterable[tf.Variable] | None) -> Iterator[None]:
        before, self._updates = self._decaying, {}
        self._decaying = None if decay_var_list is None else list(decay_var_list)
        try:
            yield
        finally:
            self._decaying = before

    def _decays(self, variable: tf.Variable) -> bool:
        return self._decaying is None or any(one is variable for one in self._decaying)

    def _rate_of(self, variable: tf.Variable) -> Any:
        """Returns the weight decay of a variable in the step that is being built."""
        return self._weight_decay_tensor if self._decays(variable) else 0.0

    def _prepare(self) -> None:
        super()._prepare()
        self._weight_decay_tensor = tf.convert_to_tensor(
            self._call_if_callable(self._weight_decay), name="weight_decay"
        )

    def _apply_dense(self, grad: tf.Tensor, var: tf.Variable) -> tf.Operation:
        with tf.control_dependencies([self._decay(var, grad)]):
            return super()._apply_dense(grad, var)

    def _resource_apply_dense(self, grad: tf.Tensor, handle: tf.Variable) -> tf.Operation:
        with tf.control_dependencies([self._decay(handle, grad)]):
            return super()._resource_apply_dense(grad, handle)

    def _resource_apply_sparse(self, grad: tf.Tensor, var: tf.Variable, indices: tf.Tensor) -> tf.Operation:
        with tf.control_dependencies([grad]):  # see _decay
            decay = tf.cast(self._rate_of(var), grad.dtype) * tf.gather(var, indices)
            decayed = var.scatter_sub(tf.IndexedSlices(decay, indices), use_locking=self._use_locking)
        with tf.control_dependencies([decayed.op]):
            return super()._resource_apply_sparse(grad, var, indices)

    def _decay(self, variable: tf.Variable, grad: tf.Tensor) -> tf.Operation:
        # The decay does not need the gradient, but waits for it: by then the model has read the weights.
        with tf.control_dependencies([grad]):
            decay = tf.cast(self._rate_of(variable), variable.dtype.base_dtype) * variable
            return variable.assign_sub(decay, use_locking=self._use_locking).op


class AdamW(CountsIterations, AdamWOptimizer):
    """`AdamWOptimizer` with the argument names of Keras' legacy optimizers and TensorFlow Addons' AdamW.

    Keras' newer `tf.keras.optimizers.AdamW` multiplies the decay by the learning rate. To get the effect of
    its `weight_decay=0.004`, pass a schedule `wd` with `wd(step) == 0.004 * learning_rate(step)`.

    Args:
      weight_decay: the fraction of a weight that a step subtracts, in [0, 1]; the same types as
        `learning_rate`.
      learning_rate: a number, a scalar tensor, a function without arguments that returns one, or a Keras
        LearningRateSchedule (any function of one argument), which is called with `iterations`.
      beta_1: decay of the first moment, a number or a scalar tensor.
      beta_2: decay of the second moment, a number or a scalar tensor.
      epsilon: added to the square root of the second moment ("epsilon hat" of Kingma and Ba's paper).
      amsgrad: must be False.
      name: prefix of the names of ops and variables.
      second_moment: "element" or "row", as for `LazyAdamOptimizer`.

    Raises:
      ValueError: if `amsgrad` is true, or `second_moment` is neither.
    """

    def __init__(
        self,
        weight_decay: float | tf.Tensor | Callable,
        learning_rate: float | tf.Tensor | Callable = 0.001,
        beta_1: float | tf.Tensor = 0.9,
        beta_2: float | tf.Tensor = 0.999,
        epsilon: float | tf.Tensor = 1e-7,
        amsgrad: bool = False,
        name: str = "AdamW",
        second_moment: str = "element",
    ):
        if amsgrad:
            raise ValueError("amsgrad=True is not supported: tables keep no maximum of the second moment")
        super().__init__(
            lambda: self._current(weight_decay),
            lambda: self._current(learning_rate),
            beta_1,
            beta_2,
            epsilon,
            name=name,
            second_moment=second_moment,
        )


def table_update(optimizer: AdamWOptimizer, table: tf.Variable, gradient: tf.IndexedSlices) -> TableUpdate:
    """Returns the update of a table for one step of the optimizer."""
    decays = optimizer._decays(table)
    if decays not in optimizer._updates:
        rate = optimizer._rate_of(table)
        optimizer._updates[decays] = lazy_adam.table_update(optimizer, "adamw", weight_decay=rate)
    return optimizer._updates[decays]


ENTRIES = tuple(
    of_v1(
        f"sok.optimizers.{cls.__name__}",
        cls,
        table_update,
        {
            "adamw": {"weight_decay": 0.01},
            "rowwise_adam": {"weight_decay": 0.01, "second_moment": "row"},
        },
        create_shared_state=v1_rules.create_beta_powers,
        differs_by_table=True,
    )
    for cls in (AdamWOptimizer, AdamW)
)
