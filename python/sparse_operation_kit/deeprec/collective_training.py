"""Collective training: all ranks begin with the same ordinary variables, and train them alike.

While `Part.COLLECTIVE_TRAINING` is installed,

- the initializers of ordinary variables that are created broadcast rank 0's values. Every rank has to run the
  initializers of the same variables, as global_variables_initializer does. Local variables and variables of
  strings are not broadcast;
- `compute_gradients`, and so `minimize`, of every optimizer of tf.compat.v1.train average gradients over the
  ranks. A `sok.DistributedOptimizer` combines its gradients by itself, and they are not averaged here.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from sparse_operation_kit.changes import replacements
from sparse_operation_kit.compat.internals import trackable
from sparse_operation_kit.optimizers.combination import average, is_by_hand
from sparse_operation_kit.ranks.communicator import communicator

_VARIABLES = "tensorflow.python.ops"


@replacements.implements(
    f"{_VARIABLES}.resource_variable_ops.ResourceVariable._init_from_args",
    f"{_VARIABLES}.ref_variable.RefVariable._init_from_args",
)
def _with_broadcast(original: Callable) -> Callable:
    @functools.wraps(original)
    def init_from_args(self, initial_value=None, *args, **kwargs):
        if initial_value is not None and _is_shared(kwargs.get("collections")):
            initial_value = functools.partial(_of_rank_0, initial_value, kwargs.get("dtype"))
        return original(self, initial_value, *args, **kwargs)

    return init_from_args


def _is_shared(collections: Any) -> bool:
    keys = tf.compat.v1.GraphKeys
    local = collections is not None and keys.LOCAL_VARIABLES in collections
    return not local and not tf.executing_eagerly() and communicator().size > 1


def _of_rank_0(initial_value: Any, dtype: tf.DType | None) -> Any:
    """Returns rank 0's value of `initial_value`, which is a value or a function that returns one."""
    value = initial_value() if callable(initial_value) else initial_value
    if isinstance(value, trackable.CheckpointInitialValue):
        return value
    value = tf.convert_to_tensor(value, dtype=dtype)
    if value.dtype in (tf.string, tf.variant, tf.resource):
        return value
    # TensorFlow calls this in a name scope with the variable's unique name.
    scope = tf.compat.v1.get_default_graph().get_name_scope()
    shared = communicator().broadcast(value, 0, f"initial_value.{scope}")
    shared.set_shape(value.shape)
    return shared


@replacements.implements("tf.compat.v1.train.Optimizer.compute_gradients")
def _with_averages(original: Callable) -> Callable:
    @functools.wraps(original)
    def compute_gradients(self, *args, **kwargs):
        pairs = original(self, *args, **kwargs)
        if is_by_hand() or communicator().size == 1 or tf.executing_eagerly():
            return pairs
        return average(pairs, self.get_name())

    return compute_gradients
