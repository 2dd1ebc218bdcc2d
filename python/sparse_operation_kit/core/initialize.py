"""sok.Init: readies a session for embedding variables."""

import numbers
import os
import random
import sys
import threading
from typing import Any, NamedTuple

import tensorflow as tf

from sparse_operation_kit import native


class _Configuration(NamedTuple):
    global_batch_size: int
    seed: int | None  # as the user gave it
    resolved_seed: int  # what rows are drawn from


_lock = threading.Lock()
_configuration: _Configuration | None = None


def Init(**kwargs: Any) -> tf.Tensor:  # noqa: N802 - the name is SOK's
    """Readies the session that runs the returned tensor for embedding variables.

    It comes before any variable initializer::

        sok_init = sok.Init(global_batch_size=4096)
        with tf.compat.v1.Session() as sess:
            sess.run(sok_init)
            sess.run(tf.compat.v1.global_variables_initializer())

    Calling it again with the same arguments, for another graph or session of the process, is harmless.

    Args:
      **kwargs: `global_batch_size`, required: samples per step over all ranks, a multiple of their number.
        `seed`: an int; initial rows are a function of (seed, variable, key) alone. Without it the graph's
        seed (`tf.compat.v1.set_random_seed`) is taken, and without that a random one.

    Returns:
      A scalar string tensor; running it gives `b'OK'`.

    Raises:
      TypeError: An argument is unknown or of the wrong type.
      ValueError: `global_batch_size` is missing or below 1, or Init was called before with other arguments.
      RuntimeError: The process is one of several ranks: tables are not sharded yet, and separate ones would
        be trained without a word.
    """
    unknown = sorted(set(kwargs) - {"global_batch_size", "seed"})
    if unknown:
        raise TypeError(
            f"sok.Init does not know the arguments {unknown}; it takes global_batch_size and seed"
        )
    if "global_batch_size" not in kwargs:
        raise ValueError("sok.Init needs global_batch_size, the number of samples of a step over all ranks")
    batch_size = _check_batch_size(kwargs["global_batch_size"])
    ranks = _number_of_ranks()
    if ranks > 1:
        raise RuntimeError(
            f"sok.Init: this process is one of {ranks} ranks, and this version of the library "
            "trains in one process"
        )
    configuration = _configure(batch_size, _check_seed(kwargs.get("seed")))
    return native.ops.sok_init(
        global_batch_size=configuration.global_batch_size, seed=configuration.resolved_seed, name="SokInit"
    )


def _number_of_ranks() -> int:
    """The number of processes that train together, as Horovod or its launcher knows it."""
    horovod = sys.modules.get("horovod.tensorflow")
    if horovod is not None and horovod.is_initialized():
        return horovod.size()
    for variable in ("HOROVOD_SIZE", "OMPI_COMM_WORLD_SIZE"):
        if os.environ.get(variable, "").isdigit():
            return int(os.environ[variable])
    return 1


def _check_batch_size(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise TypeError(f"sok.Init: global_batch_size must be an int, not {value!r}")
    if value < 1:
        raise ValueError(f"sok.Init: global_batch_size must be at least 1, not {value}")
    return int(value)


def _check_seed(value: Any) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise TypeError(f"sok.Init: seed must be an int or None, not {value!r}")
    if not -(2**63) <= value < 2**64:
        raise ValueError(f"sok.Init: seed must fit 64 bits, and {value} does not")
    return int(value)


def _configure(batch_size: int, seed: int | None) -> _Configuration:
    """Fixes the process's configuration, or checks that it is the one that was fixed before."""
    global _configuration
    with _lock:
        if _configuration is None:
            _configuration = _Configuration(batch_size, seed, _as_signed(_resolve_seed(seed)))
        elif (_configuration.global_batch_size, _configuration.seed) != (batch_size, seed):
            raise ValueError(
                f"sok.Init was called before with global_batch_size={_configuration.global_batch_size}, "
                f"seed={_configuration.seed}, and cannot be called with "
                f"global_batch_size={batch_size}, seed={seed} in one process"
            )
        return _configuration


def _resolve_seed(seed: int | None) -> int:
    if seed is not None:
        return seed
    graph_seed = tf.compat.v1.get_default_graph().seed
    return graph_seed if graph_seed is not None else random.SystemRandom().getrandbits(63)


def _as_signed(value: int) -> int:
    """The 64-bit word of `value` as the int64 that an attribute holds."""
    value &= 2**64 - 1
    return value - 2**64 if value >= 2**63 else value


def _reset() -> None:
    """Forgets the configuration, for tests that need several in one process."""
    global _configuration
    with _lock:
        _configuration = None
