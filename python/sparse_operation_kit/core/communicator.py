"""The ranks that train together, and what they tell each other.

A rank is a process. With Horovod initialized, or in processes that its launcher or MPI's has started, the
ranks are Horovod's global ones; a process by itself is the one rank there is, and needs no Horovod.
"""

from __future__ import annotations

import contextlib
import contextvars
import os
import re
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from sparse_operation_kit import native
from sparse_operation_kit.core import graph_ops

# What launchers tell the processes that they start, by the variable's name.
_LAUNCHER_SIZES = {
    "HOROVOD_SIZE": "horovodrun",
    "OMPI_COMM_WORLD_SIZE": "mpirun",
    "PMI_SIZE": "mpiexec or srun",
}
# Dtypes that Horovod does not move, and ones of the same size that it does.
_CARRIERS = {
    tf.bfloat16: tf.uint16,
    tf.uint32: tf.int32,
    tf.uint64: tf.int64,
    tf.complex64: tf.int64,
}

_lock = threading.Lock()
_communicator: Communicator | None = None


class Communicator:
    """One rank by itself: every collective gives back what it got. Other communicators have this interface.

    All ranks build the same collectives, and a step of the graph runs the same ones on every rank. They are
    told apart by name: ranks may build them in any order.

    Attributes:
      rank: this process's number, from 0.
      size: the number of ranks.
    """

    rank = 0
    size = 1

    def exchange(self, words: tf.Tensor, splits: tf.Tensor, name: str) -> tuple[tf.Tensor, tf.Tensor]:
        """Sends each rank its part of `words`.

        Args:
          words: int64 [w], the part for rank 0, then the one for rank 1 and so on. What lies beyond them is
            not sent.
          splits: int32 [size], the lengths of the parts.
          name: names the exchange on all ranks and in messages.

        Returns:
          `(received, received_splits)`: int64 [r], what each rank sent to this one in the order of ranks, and
          int32 [size], the lengths.
        """
        del name
        return tf.convert_to_tensor(words, tf.int64)[: splits[0]], tf.convert_to_tensor(splits, tf.int32)

    def allreduce(self, tensor: tf.Tensor, average: bool, name: str) -> tf.Tensor:
        """The sum, or the average, of a numeric tensor of the same shape and dtype on all ranks."""
        del average, name
        return tensor

    def allgather(self, tensor: tf.Tensor, name: str) -> tf.Tensor:
        """The tensors of all ranks, one behind the other along dimension 0, whose length may differ."""
        del name
        return tensor

    def broadcast(self, tensor: tf.Tensor, root_rank: int, name: str) -> tf.Tensor:
        """The tensor of rank `root_rank`; all ranks give one of the same shape and dtype."""
        del name
        self.check_rank(root_rank)
        return tensor

    def all(self, condition: tf.Tensor, name: str) -> tf.Tensor:
        """Whether a scalar bool is true on every rank."""
        failures = self.allreduce(tf.cast(tf.logical_not(condition), tf.int32), average=False, name=name)
        return tf.equal(failures, 0)

    def check_rank(self, rank: int) -> None:
        """Raises ValueError unless `rank` is one of the ranks."""
        if not 0 <= rank < self.size:
            raise ValueError(f"Rank {rank} is not one of the {self.size} ranks, which count from 0")


_ALONE = Communicator()
_is_alone = contextvars.ContextVar("sok_is_alone", default=False)


class _HorovodCommunicator(Communicator):
    """Horovod's global ranks.

    Its collectives are not stateful. Each gets its tensor through an op of ours that is, so that TensorFlow's
    optimizers neither fold one of a constant nor merge two of the same tensor, as they would on some ranks
    only.
    """

    def __init__(self, hvd: Any):
        self._hvd = hvd
        self._ops = native.horovod_ops()
        self.rank = hvd.rank()
        self.size = hvd.size()

    def exchange(self, words: tf.Tensor, splits: tf.Tensor, name: str) -> tuple[tf.Tensor, tf.Tensor]:
        received, received_splits = self._ops.sok_exchange(words=words, splits=splits, exchange_name=name)
        return received, received_splits

    def allreduce(self, tensor: tf.Tensor, average: bool, name: str) -> tf.Tensor:
        tensor = tf.convert_to_tensor(tensor)
        if tensor.dtype == tf.bfloat16:
            return tf.cast(self.allreduce(tf.cast(tensor, tf.float32), average, name), tf.bfloat16)
        op = self._hvd.Average if average else self._hvd.Sum
        with _root_scope():
            return self._hvd.allreduce(self._ops.sok_opaque(tensor), op=op, name=_op_name("allreduce", name))

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
        """`move(tensor)`, by way of a dtype that Horovod moves."""
        tensor = tf.convert_to_tensor(tensor)
        carrier = _CARRIERS.get(tensor.dtype, tensor.dtype)
        with _root_scope():
            if carrier == tensor.dtype:
                return move(self._ops.sok_opaque(tensor))
            return tf.bitcast(move(self._ops.sok_opaque(tf.bitcast(tensor, carrier))), tensor.dtype)


def communicator() -> Communicator:
    """The communicator of this process, the same one on every call. Thread-safe.

    The first call decides: where Horovod is imported and initialized, its ranks; where a launcher has started
    several processes, Horovod's after `hvd.init()`; else one rank.

    Raises:
      RuntimeError: A launcher has started several processes, and Horovod or the library that exchanges
        between ranks is missing, or does not fit the launcher; or Horovod has been initialized or shut down
        since the first call, so that the ranks are others now.
      ImportError: Horovod has several ranks, and the library that exchanges between them is missing.
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


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """Inside it, this process is the one rank there is: for a graph that it builds and runs by itself."""
    token = _is_alone.set(True)
    try:
        yield
    finally:
        _is_alone.reset(token)


def is_alone() -> bool:
    """Whether it is inside of `alone`."""
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
    """(the number of processes that a launcher has started, what tells so)."""
    for variable, launcher in _LAUNCHER_SIZES.items():
        value = os.environ.get(variable, "")
        if value.isdigit():
            return int(value), f"{launcher} ({variable}={value})"
    return 1, ""


def _initialize_horovod(launched: int, launcher: str) -> Any:
    try:
        native.horovod_ops()
    except ImportError as error:
        raise RuntimeError(
            f"This process is one of {launched} that {launcher} has started. {error}"
        ) from error
    import horovod.tensorflow as hvd

    hvd.init()
    if hvd.size() != launched:
        raise RuntimeError(
            f"This process is one of {launched} that {launcher} has started, and Horovod knows of "
            f"{hvd.size()}. `horovodrun --check-build` tells which launchers it is built for"
        )
    return hvd


def _check_unchanged(known: Communicator) -> None:
    hvd = _initialized_horovod()
    if hvd is None:
        if known.size > 1:
            raise RuntimeError(f"Horovod was shut down; its {known.size} ranks cannot go on without it")
    elif (hvd.rank(), hvd.size()) != (known.rank, known.size):
        raise RuntimeError(
            f"Horovod is initialized as rank {hvd.rank()} of {hvd.size()}, and the library was used before "
            f"as rank {known.rank} of {known.size}. Call hvd.init() before sok.Init and anything else"
        )


@tf.RegisterGradient(graph_ops.OPAQUE)
def _opaque_gradient(op: tf.Operation, gradient: tf.Tensor) -> tf.Tensor:
    del op
    return gradient


def _root_scope() -> tf.name_scope:
    # Horovod tells collectives apart by their ops' names, which must not depend on the scope they are built
    # in.
    return tf.name_scope("")


def _op_name(kind: str, name: str) -> str:
    # TensorFlow numbers what comes again under the same name.
    return f"sok.{kind}." + re.sub(r"[^A-Za-z0-9_.-]", ".", name)


def _reset() -> None:
    """Forgets which ranks there are, for tests of several in one process."""
    global _communicator
    with _lock:
        _communicator = None
