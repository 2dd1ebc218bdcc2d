"""sok.Init: readies a session for embedding variables."""

import contextlib
import numbers
import random
import threading
from collections.abc import Iterator
from typing import Any, NamedTuple

import tensorflow as tf

from sparse_operation_kit import native
from sparse_operation_kit.core.communicator import communicator, is_alone

_ARGUMENTS = ("global_batch_size", "seed", "gradient_exchange_dtype")
_GRADIENT_DTYPES = (tf.float32, tf.float16, tf.bfloat16)


class _Configuration(NamedTuple):
    global_batch_size: int
    seed: int | None  # as the user gave it
    gradient_dtype: tf.DType

    def __str__(self) -> str:
        return (
            f"global_batch_size={self.global_batch_size}, seed={self.seed}, "
            f"gradient_exchange_dtype={self.gradient_dtype.name}"
        )


_lock = threading.Lock()
_configuration: _Configuration | None = None
# What rows are drawn from where this rank decides: fixed together with the configuration.
_resolved_seed = 0
# The same for graphs without a seed that `graph_init` readies.
_seed_of_graphs: int | None = None
# The attribute of a graph that holds what readies its sessions.
_GRAPH_ATTRIBUTE = "_sok_init"


def Init(**kwargs: Any) -> tf.Tensor:  # noqa: N802 - the name is SOK's
    """Readies the session that runs the returned tensor for embedding variables.

    It comes before any variable initializer::

        sok_init = sok.Init(global_batch_size=4096)
        with tf.compat.v1.Session() as sess:
            sess.run(sok_init)
            sess.run(tf.compat.v1.global_variables_initializer())

    The first call decides which ranks there are: call `hvd.init()` before it, or leave that to it in
    processes that `horovodrun` or `mpirun` has started. Every rank runs the returned tensor equally often;
    it compares what the ranks were told. Calling Init again with the same arguments, for another graph or
    session of the process, is harmless.

    Args:
      **kwargs: `global_batch_size`, required: samples per step over all ranks, a multiple of their number.
        `seed`: an int; initial rows are a function of (seed, variable, key) alone. Without it the graph's
        seed (`tf.compat.v1.set_random_seed`) is taken, and without that a random one. Rank 0's seed is
        taken on all ranks.
        `gradient_exchange_dtype`: what gradients of rows are sent to the ranks that own the rows in:
        tf.float32, the default, or tf.float16 or tf.bfloat16, which halve the bytes and round each rank's
        gradient of a row once. They are summed in float32. It makes no difference at one rank.

    Returns:
      A scalar string tensor; running it gives `b'OK'`. It raises InvalidArgumentError on all ranks where they
      disagree about an argument other than the seed.

    Raises:
      TypeError: An argument is unknown or of the wrong type.
      ValueError: `global_batch_size` is missing, below 1 or not a multiple of the number of ranks, or Init
        was called before with other arguments.
      RuntimeError: The process is one of several that a launcher has started, and they cannot find each
      other.
    """
    unknown = sorted(set(kwargs) - set(_ARGUMENTS))
    if unknown:
        raise TypeError(f"sok.Init does not know the arguments {unknown}; it takes {', '.join(_ARGUMENTS)}")
    if "global_batch_size" not in kwargs:
        raise ValueError("sok.Init needs global_batch_size, the number of samples of a step over all ranks")
    wanted = _Configuration(
        _check_batch_size(kwargs["global_batch_size"]),
        _check_seed(kwargs.get("seed")),
        _check_gradient_dtype(kwargs.get("gradient_exchange_dtype")),
    )
    ranks = communicator()
    if wanted.global_batch_size % ranks.size:
        raise ValueError(
            f"sok.Init: global_batch_size={wanted.global_batch_size} is not a multiple of the "
            f"{ranks.size} ranks"
        )
    return _init_op(wanted, _configure(wanted))


def graph_init() -> tf.Tensor:
    """Returns what readies sessions of the default graph, for tables whose initializers run it themselves.

    It is what `Init` has made in the graph, or else one with what `Init` was called with in the process, or
    else one with arguments that bind nothing: any batch size, float32 gradients, and the graph's seed or, for
    graphs without one, a seed that is the process's. `Init` may be called after it with any arguments, for
    other graphs.

    A graph that one rank exports (`communicator.alone`) has arguments that all such graphs have.

    Raises:
      RuntimeError: As `Init`.
    """
    graph = tf.compat.v1.get_default_graph()
    known = getattr(graph, _GRAPH_ATTRIBUTE, None)
    if known is not None:
        return known
    with _lock:
        configuration, seed = _configuration, _resolved_seed
    if is_alone():
        # The same for all graphs that are exported, since a process may load several of them. Seeds come with
        # the rows.
        configuration, seed = _Configuration(1, None, tf.float32), 0
    elif configuration is None:
        configuration = _Configuration(communicator().size, None, tf.float32)
        seed = _as_signed(_seed_of(graph))
    return _init_op(configuration, seed)


@contextlib.contextmanager
def with_graph_init() -> Iterator[None]:
    """Inside it, the initializers of embedding variables that are made run `graph_init` by themselves."""
    if tf.executing_eagerly():
        # Where embedding variables refuse to be made.
        yield
        return
    with tf.control_dependencies([graph_init()]):
        yield


def _init_op(configuration: _Configuration, seed: int) -> tf.Tensor:
    ranks = communicator()
    graph = tf.compat.v1.get_default_graph()
    # Every rank tells every rank, so that all of them see who disagrees.
    words = [configuration.global_batch_size, seed, configuration.gradient_dtype.as_datatype_enum]
    with tf.name_scope(""):
        # One step may run several.
        name = graph.unique_name("sok.Init")
    arguments, _ = ranks.exchange(
        tf.constant(words * ranks.size, tf.int64), tf.constant([len(words)] * ranks.size, tf.int32), name
    )
    status = native.ops.sok_init(arguments, rank=ranks.rank, ranks=ranks.size, name="SokInit")
    if not tf.executing_eagerly():
        setattr(graph, _GRAPH_ATTRIBUTE, status)
    return status


def _seed_of(graph: tf.Graph) -> int:
    global _seed_of_graphs
    if graph.seed is not None:
        return graph.seed
    with _lock:
        if _seed_of_graphs is None:
            _seed_of_graphs = random.SystemRandom().getrandbits(63)
        return _seed_of_graphs


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


def _check_gradient_dtype(value: Any) -> tf.DType:
    try:
        dtype = tf.float32 if value is None else tf.as_dtype(value)
    except TypeError:
        dtype = None
    if dtype not in _GRADIENT_DTYPES:
        names = ", ".join(f"tf.{dtype.name}" for dtype in _GRADIENT_DTYPES)
        raise TypeError(f"sok.Init: gradient_exchange_dtype must be one of {names} or None, not {value!r}")
    return dtype


def _configure(wanted: _Configuration) -> int:
    """Fixes the process's configuration, or checks that it is the one fixed before; returns its seed."""
    global _configuration, _resolved_seed
    with _lock:
        if _configuration is None:
            _configuration, _resolved_seed = wanted, _as_signed(_resolve_seed(wanted.seed))
        elif _configuration != wanted:
            raise ValueError(
                f"sok.Init was called before with {_configuration}, and cannot be called with {wanted} "
                "in one process"
            )
        return _resolved_seed


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
