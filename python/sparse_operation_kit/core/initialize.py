"""sok.Init: readies a session for embedding variables."""

from __future__ import annotations

import contextlib
import dataclasses
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
# The attribute of a graph that holds its `_GraphState`.
_GRAPH_ATTRIBUTE = "_sok_init"


@dataclasses.dataclass
class _GraphState:
    """What a graph knows of Init.

    Attributes:
      status: What readies its sessions; None while there is nothing.
      arguments: What `status` tells the ranks.
      makers: Ops that make tables, for an Init that comes after them.
    """

    status: tf.Tensor | None = None
    arguments: list[int] = dataclasses.field(default_factory=list)
    makers: list[tf.Operation] = dataclasses.field(default_factory=list)


def Init(**kwargs: Any) -> tf.Tensor:  # noqa: N802 - the name is SOK's
    """Readies the session that runs the returned tensor for embedding variables.

    Initializers of the graph's embedding variables, and restores of them, run it by themselves where it has
    not run in the session. Running it before is optional::

        sok_init = sok.Init(global_batch_size=4096)
        with tf.compat.v1.Session() as sess:
            sess.run(sok_init)
            sess.run(tf.compat.v1.global_variables_initializer())

    The first call decides which ranks there are: call `hvd.init()` before it, or leave that to it in
    processes that `horovodrun` or `mpirun` has started. Where it runs for the first time in a session, by
    itself or through initializers, it compares what the ranks were told, so all ranks run it. Later it tells
    the other ranks nothing. Calling Init again with the same arguments is harmless.

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
    known = _state_of(graph).status
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


def ready_graph() -> None:
    """Has the initializers of the default graph's tables run `graph_init`, for programs that know of no Init.

    Where TensorFlow is eager it does nothing, and embedding variables refuse to be made.
    """
    if not tf.executing_eagerly():
        graph_init()


@contextlib.contextmanager
def making_table() -> Iterator[list[tf.Operation]]:
    """Inside it, ops are made that need the graph's Init to have run, and put into the list that it gives.

    They run it by themselves, also where it comes after them in the graph.
    """
    state = _state_of(tf.compat.v1.get_default_graph())
    made: list[tf.Operation] = []
    with tf.control_dependencies([] if state.status is None else [state.status]):
        yield made
    state.makers += made


def _state_of(graph: tf.Graph) -> _GraphState:
    state = getattr(graph, _GRAPH_ATTRIBUTE, None)
    if state is None:
        state = _GraphState()
        setattr(graph, _GRAPH_ATTRIBUTE, state)
    return state


def _init_op(configuration: _Configuration, seed: int) -> tf.Tensor:
    words = [configuration.global_batch_size, seed, configuration.gradient_dtype.as_datatype_enum]
    if tf.executing_eagerly():
        return _told_to_ranks(tf.constant(words, tf.int64), words)
    state = _state_of(tf.compat.v1.get_default_graph())
    if state.status is not None and state.arguments == words:
        return state.status
    ranks = communicator()
    # One after the other, so that all ranks find that the second has other arguments than the first.
    with tf.control_dependencies([] if state.status is None else [state.status]):
        arguments = tf.constant(words, tf.int64)
        has_run = native.ops.sok_init_has_run(arguments, rank=ranks.rank, ranks=ranks.size)
    # Of the two sides of a switch one does not run, and so ranks exchange nothing where it has run.
    first = _told_to_ranks(tf.raw_ops.Switch(data=arguments, pred=has_run).output_false, words)
    again = tf.raw_ops.Switch(data=tf.constant("OK"), pred=has_run).output_true
    status = tf.raw_ops.Merge(inputs=[first, again], name="SokInit").output
    for maker in state.makers:
        maker._add_control_input(status.op)
    state.status, state.arguments = status, words
    return status


def _told_to_ranks(arguments: tf.Tensor, words: list[int]) -> tf.Tensor:
    """The op that readies the session with what all ranks tell: `arguments`, whose value is `words`."""
    ranks = communicator()
    with tf.name_scope(""):
        # One step may run several.
        name = tf.compat.v1.get_default_graph().unique_name("sok.Init")
    # Every rank tells every rank, so that all of them see who disagrees.
    told, _ = ranks.exchange(
        tf.tile(arguments, [ranks.size]), tf.constant([len(words)] * ranks.size, tf.int32), name
    )
    return native.ops.sok_init(told, rank=ranks.rank, ranks=ranks.size)


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
    if not -(2**63) <= int(value) < 2**64:
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
