"""The ranks that train together, and their collectives.

A rank is a process. If Horovod is initialized, or `horovodrun` or an MPI launcher started the process, the
ranks are Horovod's global ranks. A single process is one rank and does not need Horovod.
"""

from __future__ import annotations

import contextlib
import contextvars
import os
import re
import sys
import threading
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from sparse_operation_kit import native
from sparse_operation_kit.graphs import graph_ops
from sparse_operation_kit.newer_python import set_within

# The environment variables in which launchers pass the number of processes, and the launchers' names.
_LAUNCHER_SIZES = {
    "HOROVOD_SIZE": "horovodrun",
    "OMPI_COMM_WORLD_SIZE": "mpirun",
    "PMI_SIZE": "mpiexec or srun",
}
# Dtypes that Horovod does not support, with a supported dtype of the same size.
_CARRIERS = {
    tf.bfloat16: tf.uint16,
    tf.uint32: tf.int32,
    tf.uint64: tf.int64,
    tf.complex64: tf.int64,
}
# Those for which `SokOpaque` has kernels on GPUs.
_OPAQUE_ON_GPUS = (tf.float16, tf.float32, tf.float64)

_lock = threading.Lock()
_communicator: Communicator | None = None


class Communicator:
    """A single rank: every collective returns its input. It is also the interface of other communicators.

    All ranks build the same collectives, and a step of the graph runs the same ones on every rank.
    Collectives are matched by name, so ranks may build them in any order.

    Attributes:
      rank: this process's number, from 0.
      size: the number of ranks.
    """

    rank = 0
    size = 1

    def exchange(
        self, words: tf.Tensor, splits: tf.Tensor, name: str, beside: tf.Operation | None = None
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Sends each rank its part of `words`.

        Args:
          words: int64 [w], the part for rank 0, then the part for rank 1 and so on. Words after the last part
            are not sent.
          splits: int32 [size], the lengths of the parts.
          name: identifies the exchange on all ranks and in error messages.
          beside: the op on whose device the words are sent and arrive; None for the CPU.

        Returns:
          `(received, received_splits)`: int64 [r], the parts from all ranks in the order of ranks, and
          int32 [size], their lengths.
        """
        del name, beside
        return tf.convert_to_tensor(words, tf.int64)[: splits[0]], tf.convert_to_tensor(splits, tf.int32)

    def send_to_all(self, words: tf.Tensor, name: str) -> tuple[tf.Tensor, tf.Tensor]:
        """Sends int64 words [w] to every rank; returns what `exchange` returns.

        An exchange reports which ranks wait for which others; an allgather does not.
        """
        words = tf.convert_to_tensor(words, tf.int64)
        return self.exchange(tf.tile(words, [self.size]), tf.fill([self.size], tf.size(words)), name)

    def allreduce(self, tensor: tf.Tensor, average: bool, name: str) -> tf.Tensor:
        """Returns the sum or the average of a numeric tensor that has one shape and dtype on all ranks."""
        del average, name
        return tensor

    def allgather(self, tensor: tf.Tensor, name: str) -> tf.Tensor:
        """Returns all ranks' tensors concatenated along dimension 0, whose length may differ."""
        del name
        return tensor

    def broadcast(self, tensor: tf.Tensor, root_rank: int, name: str) -> tf.Tensor:
        """Returns the tensor of rank `root_rank`; all ranks pass a tensor of the same shape and dtype."""
        del name
        self.check_rank(root_rank)
        return tensor

    def all(self, condition: tf.Tensor, name: str) -> tf.Tensor:
        """Returns whether a scalar bool is true on every rank."""
        failures = self.allreduce(tf.cast(tf.logical_not(condition), tf.int32), average=False, name=name)
        return tf.equal(failures, 0)

    def check_rank(self, rank: int) -> None:
        """Raises ValueError unless `rank` is one of the ranks."""
        if not 0 <= rank < self.size:
            raise ValueError(f"Rank {rank} is not one of the {self.size} ranks, which are numbered from 0")


_ALONE = Communicator()
_is_alone = contextvars.ContextVar("sok_is_alone", default=False)


class _HorovodCommunicator(Communicator):
    """Horovod's global ranks.

    Horovod's collective ops are not stateful, so TensorFlow's graph optimizer could fold a collective of a
    constant, or merge two collectives of the same tensor, on some ranks only. To prevent that, every input
    goes through the stateful op `SokOpaque`.
    """

    def __init__(self, hvd: Any):
        self._hvd = hvd
        self._ops = native.horovod_ops()
        self.rank = hvd.rank()
        self.size = hvd.size()

    def exchange(
        self, words: tf.Tensor, splits: tf.Tensor, name: str, beside: tf.Operation | None = None
    ) -> tuple[tf.Tensor, tf.Tensor]:
        place = tf.device("/device:CPU:0") if beside is None else beside.graph.colocate_with(beside)
        with place:
            received, received_splits = self._ops.sok_exchange(words=words, splits=splits, exchange_name=name)
        return received, received_splits

    def allreduce(self, tensor: tf.Tensor, average: bool, name: str) -> tf.Tensor:
        tensor = tf.convert_to_tensor(tensor)
        if tensor.dtype == tf.bfloat16:
            return tf.cast(self.allreduce(tf.cast(tensor, tf.float32), average, name), tf.bfloat16)
        op = self._hvd.Average if average else self._hvd.Sum
        with _root_scope():
            return self._hvd.allreduce(self._opaque(tensor), op=op, name=_op_name("allreduce", name))

    def allgather(self, tensor: tf.Tensor, name: str) -> tf.Tensor:
        def gather(carrier: tf.Tensor) -> tf.Tensor:
            return self._hvd.allgather(carrier, name=_op_name("allgather", name))

        return self._carried(tensor, gather)

    def broadcast(self, tensor: tf.Tensor, root_rank: int, name: str) -> tf.Tensor:
        def send(carrier: tf.Tensor) -> tf.Tensor:
            return self._hvd.broadcast(carrier, root_rank, name=_op_name("broadcast", name))

        self.check_rank(root_rank)
        return self._carried(tensor, send)

    def _carried(self, tensor: tf.Tensor, move: Callable[[tf.Tensor], tf.Tensor]) -> tf.Tensor:
        """Returns `move(tensor)`, bitcast to a dtype that Horovod supports and back."""
        tensor = tf.convert_to_tensor(tensor)
        carrier = _CARRIERS.get(tensor.dtype, tensor.dtype)
        with _root_scope():
            if carrier == tensor.dtype:
                return move(self._opaque(tensor))
            return tf.bitcast(move(self._opaque(tf.bitcast(tensor, carrier))), tensor.dtype)

    def _opaque(self, tensor: tf.Tensor) -> tf.Tensor:
        """Returns the tensor through `SokOpaque`, floats on the device where they are.

        A Horovod built with GPU operations then takes them from there. TensorFlow would place the op on a GPU
        wherever its input is.
        """
        graph = tf.compat.v1.get_default_graph()
        is_here = not tf.executing_eagerly() and tensor.graph is graph
        stays = is_here and tensor.dtype in _OPAQUE_ON_GPUS
        with graph.colocate_with(tensor.op) if stays else contextlib.nullcontext():
            return self._ops.sok_opaque(tensor)


def communicator() -> Communicator:
    """Returns the communicator of this process, the same object on every call. Thread-safe.

    The first call determines the ranks. If Horovod is imported and initialized, they are Horovod's. If a
    launcher started several processes, the call runs `hvd.init()` and uses its ranks. Otherwise there is one
    rank.

    Raises:
      RuntimeError: A launcher started several processes, but Horovod or the exchange library is missing, or
        Horovod does not support the launcher. Or Horovod was initialized or shut down since the first call,
        so that the ranks have changed.
      ImportError: Horovod has several ranks, but the exchange library is missing or does not fit it.
    """
    global _communicator
    if _is_alone.get():
        return _ALONE
    with _lock:
        if _communicator is None:
            _communicator = _resolve()
        else:
            _check_unchanged(_communicator)
        return _communicator


def alone() -> contextlib.AbstractContextManager[None]:
    """Returns a context in which this process is the only rank, for a graph that it builds and runs alone."""
    return set_within(_is_alone, True)


def is_alone() -> bool:
    """Returns whether the caller is in the context of `alone`."""
    return _is_alone.get()


def _resolve() -> Communicator:
    hvd = _initialized_horovod()
    if hvd is None:
        launched, launcher = _launched_size()
        if launched == 1:
            return Communicator()
        hvd = _initialize_horovod(launched, launcher)
    return _HorovodCommunicator(hvd) if hvd.size() > 1 else Communicator()


def _initialized_horovod() -> Any:
    hvd = sys.modules.get("horovod.tensorflow")
    return hvd if hvd is not None and hvd.is_initialized() else None


def _launched_size() -> tuple[int, str]:
    """Returns the number of processes that a launcher started, and a description of the launcher."""
    for variable, launcher in _LAUNCHER_SIZES.items():
        value = os.environ.get(variable, "")
        if value.isdigit():
            return int(value), f"{launcher} ({variable}={value})"
    return 1, ""


def _initialize_horovod(launched: int, launcher: str) -> Any:
    try:
        native.horovod_ops()
    except ImportError as error:
        raise RuntimeError(f"This process is one of {launched} that {launcher} started. {error}") from error
    import horovod.tensorflow as hvd

    hvd.init()
    if hvd.size() != launched:
        raise RuntimeError(
            f"This process is one of {launched} that {launcher} started, but Horovod found {hvd.size()}. "
            "`horovodrun --check-build` shows which launchers it is built for"
        )
    return hvd


def _check_unchanged(known: Communicator) -> None:
    hvd = _initialized_horovod()
    if hvd is None:
        if known.size > 1:
            raise RuntimeError(f"Horovod was shut down, but its {known.size} ranks are still in use")
    elif (hvd.rank(), hvd.size()) != (known.rank, known.size):
        raise RuntimeError(
            f"Horovod is initialized as rank {hvd.rank()} of {hvd.size()}, but the library was used before "
            f"as rank {known.rank} of {known.size}. Call hvd.init() before sok.Init and other calls"
        )


@tf.RegisterGradient(graph_ops.OPAQUE)
def _opaque_gradient(op: tf.Operation, gradient: tf.Tensor) -> tf.Tensor:
    del op
    return gradient


def _root_scope() -> tf.name_scope:
    # Horovod matches collectives by op name, which must not depend on the caller's name scope.
    return tf.name_scope("")


def _op_name(kind: str, name: str) -> str:
    # TensorFlow appends a number if the name exists.
    return f"sok.{kind}." + re.sub(r"[^A-Za-z0-9_.-]", ".", name)


def _reset() -> None:
    """Forgets the ranks, for tests that use several communicators in one process."""
    global _communicator
    with _lock:
        _communicator = None
