"""Gives ordinary variables rank 0's initial values: their initializers broadcast the values they assign.

This affects variables that are created while `Part.COLLECTIVE_TRAINING` is installed. Every rank has to run
the initializers of the same variables, as global_variables_initializer does. Local variables and variables of
strings are not broadcast.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from sparse_operation_kit.compat.internals import trackable
from sparse_operation_kit.core import replacements
from sparse_operation_kit.core.communicator import communicator

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
