"""DeepRec's settings: fields of `tf.ConfigProto`, `variable_scope(...).keep_weights()`, protocols of servers.

TensorFlow's messages do not have the fields. Setting one is logged once, and kept in the message as the
bytes of a field that TensorFlow does not know. So it can be read again, also from copies of the message,
and TensorFlow's sessions ignore it.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf
from google.protobuf import descriptor_pb2

from sparse_operation_kit.changes import replacements
from sparse_operation_kit.deeprec.replacement_entries import CONFIG_MESSAGES

_logger = logging.getLogger(__name__)

_FUSED = (
    "lookups in tables are fused already, and TensorFlow rewrites the rest of the graph as it does always"
)
_STAGED = "tf.staged reads ahead without it, and sok.LookupPrefetch prepares lookups too"
_THREADS = "the session's own threads do this work"
_DEVICE = "TensorFlow places ops and schedules devices itself"
# For each class of messages DeepRec's fields, and why they have no effect here.
FIELDS: dict[str, dict[str, str]] = {
    "ConfigProto": {},
    "GPUOptions": {"cuda_graph_enable_jit": _DEVICE, "cuda_graph_mode_compatible": _DEVICE},
    "OptimizerOptions": {
        "do_async_embedding": "it gives rows as they were before an update; sok.LookupPrefetch does not",
        "do_op_fusion": _FUSED,
        "do_smart_stage": _STAGED,
        "do_smart_stage_gpu": _STAGED,
        "embedding_layer_device_placement_optimization": _DEVICE,
        "micro_batch_num": "0 and 1 mean the whole batch",
        "stage_multi_stream": _DEVICE,
        "stage_subgraph_on_cpu": _STAGED,
    },
    "RewriterConfig": {"use_multi_stream": _DEVICE},
}
# The same for fields that are messages or lists of messages, in which any field can be set.
MESSAGES: dict[str, dict[str, str]] = {
    "ConfigProto": {"cuda_graph_mode_options": _DEVICE, "session_stage_subgraph_thread_pool": _THREADS},
    "GPUOptions": {},
    "OptimizerOptions": {"async_embedding_options": _STAGED},
    "RewriterConfig": {"multi_stream_opts": _DEVICE},
}
# A message whose one list holds names with values, in a field with a number that TensorFlow's messages do not
# use: they keep its bytes, and it reads its own from theirs.
_Carrier = descriptor_pb2.ServiceOptions
_NO_EFFECT = "DeepRec's %s in tf.ConfigProto has no effect here: %s"


class IgnoredMessage:
    """Stands in for a DeepRec message or a list of them: any field can be set, without effect."""

    def __getattr__(self, name: str) -> IgnoredMessage:
        if name.startswith("__"):
            raise AttributeError(name)
        return IgnoredMessage()

    def __setattr__(self, name: str, value: Any) -> None:
        pass

    def __getitem__(self, index: int) -> IgnoredMessage:
        return IgnoredMessage()

    def __len__(self) -> int:
        return 0

    def __iter__(self) -> Iterator[IgnoredMessage]:
        # Without this, Python would call `__getitem__`, which has no last index.
        return iter(())

    def add(self, **fields: Any) -> IgnoredMessage:
        """Adds a message to the list."""
        return IgnoredMessage()


def _setter(message: str) -> Callable[[Callable], Callable]:
    """Returns the wrapper of `__setattr__` for a class of messages."""

    def wrap(original: Callable) -> Callable:
        def __setattr__(self: Any, name: str, value: Any) -> None:
            if name not in FIELDS[message]:
                return original(self, name, value)
            _check(name, value)
            _tell(_NO_EFFECT, name, FIELDS[message][name])
            return _write(self, name, value)

        return __setattr__

    return wrap


def _getter(message: str) -> Callable[[Any, str], Any]:
    """Returns `__getattr__`, which Python calls for fields that a message does not have."""

    def __getattr__(self: Any, name: str) -> Any:
        if name in FIELDS[message]:
            return _read(self).get(name, 0)
        if name in MESSAGES[message]:
            _tell(_NO_EFFECT, name, MESSAGES[message][name])
            return IgnoredMessage()
        of_message: Any = type(self)
        return of_message.__getattribute__(self, name)  # raises the message's own error

    return __getattr__


for _message in FIELDS:
    _class = CONFIG_MESSAGES[_message]
    replacements.implements(f"{_class}.__setattr__")(_setter(_message))
    replacements.implements(f"{_class}.__getattr__")(_getter(_message))


def _check(name: str, value: Any) -> None:
    if not isinstance(value, (bool, int)):
        raise TypeError(f"{name} must be a bool or an int, not {value!r}")
    if name == "micro_batch_num" and value > 1:
        raise ValueError(
            f"micro_batch_num = {value} is not supported: a graph cannot be split after it was built. "
            f"DeepRec trains on {value} batches in a step, so give the dataset {value} times the batch size, "
            "and leave the field out; where such a batch does not fit into memory, use more ranks"
        )


@functools.lru_cache(maxsize=None)
def _tell(message: str, *arguments: str) -> None:
    """Logs a warning once."""
    _logger.warning(message, *arguments)


def _write(message: Any, name: str, value: int) -> None:
    carrier = _Carrier()
    carrier.uninterpreted_option.add(identifier_value=name, aggregate_value=str(int(value)))
    message.MergeFromString(carrier.SerializeToString())


def _read(message: Any) -> dict[str, int]:
    """DeepRec's fields that were set in a message; the last value of each."""
    carrier = _Carrier.FromString(message.SerializeToString())
    return {field.identifier_value: int(field.aggregate_value) for field in carrier.uninterpreted_option}


def keep_weights(self: tf.compat.v1.variable_scope, dtype: Any = tf.float32) -> tf.compat.v1.variable_scope:
    """Creates variables that the scope's layers request in a smaller dtype in `dtype`, and casts reads.

    A method of `tf.variable_scope`, to be called before the scope is entered. It does not affect variables
    that are requested in `dtype` or a larger one, nor embedding variables.

    Args:
      dtype: the floating-point dtype of the variables.

    Returns:
      The scope.

    Raises:
      ValueError: `dtype` is not a floating-point dtype.
    """
    kept = tf.dtypes.as_dtype(dtype)
    if not kept.is_floating:
        raise ValueError(f"keep_weights: dtype must be a floating-point dtype, but is {kept.name}")
    self._custom_getter = functools.partial(_get_kept, kept, self._custom_getter)
    return self


def _get_kept(
    kept: tf.DType,
    others: Callable | None,
    getter: Callable,
    name: str,
    shape: Any = None,
    dtype: Any = None,
    initializer: Any = None,
    *args: Any,
    **kwargs: Any,
) -> Any:
    """A custom getter around `others`, the scope's own getter."""
    if others is not None:
        getter = functools.partial(others, getter)
    wanted = tf.dtypes.as_dtype(dtype or tf.float32).base_dtype
    if not wanted.is_floating or wanted.size >= kept.size:
        return getter(name, shape, dtype, initializer, *args, **kwargs)
    if isinstance(initializer, tf.Tensor):
        initializer = tf.cast(initializer, kept)
    elif isinstance(initializer, np.ndarray):
        initializer = initializer.astype(kept.as_numpy_dtype)
    variable = getter(name, shape, kept, initializer, *args, **kwargs)
    return tf.cast(variable, wanted)


_OF_DEEPREC = ("grpc++", "star_server")
_GRPC = (
    "DeepRec's protocol '%s' of servers is grpc here: TensorFlow has no other, and all processes of the "
    "cluster must run this library"
)


@replacements.wraps("tf.compat.v1.train.Server.__init__")
def _with_grpc(
    original: Callable,
    self: Any,
    server_or_cluster_def: Any,
    job_name: str | None = None,
    task_index: int | None = None,
    protocol: str | None = None,
    *args: Any,
    **kwargs: Any,
) -> None:
    chosen = protocol or getattr(server_or_cluster_def, "protocol", None)
    if chosen in _OF_DEEPREC:
        _tell(_GRPC, chosen)
        protocol = "grpc"
    original(self, server_or_cluster_def, job_name, task_index, protocol, *args, **kwargs)
