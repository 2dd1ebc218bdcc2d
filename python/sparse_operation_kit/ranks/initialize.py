"""sok.Init: prepares a session for embedding variables."""

from __future__ import annotations

import contextlib
import dataclasses
import numbers
import random
import threading
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from sparse_operation_kit import native
from sparse_operation_kit.arguments import as_signed, whole_number
from sparse_operation_kit.graphs import graph_ops
from sparse_operation_kit.ranks.communicator import communicator, is_alone

_ARGUMENTS = ("global_batch_size", "seed", "gradient_exchange_dtype")
_GRADIENT_DTYPES = (tf.float32, tf.float16, tf.bfloat16)


class _Configuration(NamedTuple):
    global_batch_size: int
    seed: int | None  # the user's argument
    gradient_dtype: tf.DType

    def __str__(self) -> str:
        return (
            f"global_batch_size={self.global_batch_size}, seed={self.seed}, "
            f"gradient_exchange_dtype={self.gradient_dtype.name}"
        )


_lock = threading.Lock()
_configuration: _Configuration | None = None
# The seed of initial rows that this rank proposes; set together with `_configuration`.
_resolved_seed = 0
# The seed that `graph_init` uses for graphs without a seed.
_seed_of_graphs: int | None = None
# The attribute of a graph that holds its `_GraphState`.
_GRAPH_ATTRIBUTE = "_sok_init"


@dataclasses.dataclass
class _GraphState:
    """The state of Init in one graph.

    Attributes:
      status: The tensor that prepares the graph's sessions; None if there is none yet.
      arguments: The words that `status` sends to the ranks.
      makers: Ops that create tables; an Init that is added later makes them wait for it.
      imported: The constant with the words, if `status` came with a MetaGraph.
      devices: Those of parameter servers that hold tables.
      describers: Ops that describe tables on servers, and have the dtype of gradients.
    """

    status: tf.Tensor | None = None
    arguments: list[int] = dataclasses.field(default_factory=list)
    makers: list[tf.Operation] = dataclasses.field(default_factory=list)
    imported: tf.Operation | None = None
    devices: list[str] = dataclasses.field(default_factory=list)
    describers: list[tf.Operation] = dataclasses.field(default_factory=list)


def Init(**kwargs: Any) -> tf.Tensor:  # noqa: N802 - the name is SOK's
    """Prepares the session that runs the returned tensor for embedding variables.

    Initializing or restoring the graph's embedding variables runs the tensor if it has not run in the
    session. Running it first is optional::

        sok_init = sok.Init(global_batch_size=4096)
        with tf.compat.v1.Session() as sess:
            sess.run(sok_init)
            sess.run(tf.compat.v1.global_variables_initializer())

    The first call determines the ranks. Call `hvd.init()` before it; in processes started by `horovodrun` or
    `mpirun` the call does that itself. When the tensor first runs in a session, directly or through an
    initializer, it exchanges the arguments with the other ranks and compares them, so all ranks must run it.
    Later runs exchange nothing. Init may be called again, also for other graphs, and with another batch size,
    on which no result depends. In the same graph, a later call returns the first one's tensor.

    Args:
      **kwargs: `global_batch_size`, required: samples per step over all ranks, a multiple of their number.
        `seed`: an int. Initial rows depend only on (seed, variable, key). The default is the graph's seed
        (`tf.compat.v1.set_random_seed`) or, without one, a random seed. All ranks use rank 0's seed.
        `gradient_exchange_dtype`: the dtype in which gradients of rows are sent to the ranks that own the
        rows: tf.float32 (the default), tf.float16 or tf.bfloat16. The 16-bit dtypes halve the bytes and round
        each rank's gradient of a row once. Gradients are summed in float32. It has no effect with one rank.

    Returns:
      A scalar string tensor with the value `b'OK'`. Running it raises InvalidArgumentError on all ranks if
      they disagree about an argument other than the seed.

    Raises:
      TypeError: An argument is unknown or of the wrong type.
      ValueError: `global_batch_size` is missing, below 1 or not a multiple of the number of ranks, `seed`
        does not fit 64 bits, or Init was called before with another `seed` or `gradient_exchange_dtype`.
      RuntimeError: A launcher started several processes, and they cannot find each other; or Horovod was
        initialized or shut down after the first call.
      ImportError: Horovod has several ranks, and there is no exchange library that fits it.
    """
    unknown = sorted(set(kwargs) - set(_ARGUMENTS))
    if unknown:
        raise TypeError(f"sok.Init does not know the arguments {unknown}; it takes {', '.join(_ARGUMENTS)}")
    if "global_batch_size" not in kwargs:
        raise ValueError("sok.Init needs global_batch_size, the number of samples of a step over all ranks")
    wanted = _Configuration(
        whole_number(kwargs["global_batch_size"], "sok.Init: global_batch_size"),
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
    """Returns the tensor that prepares sessions of the default graph, for programs that do not call `Init`.

    If the graph has an Init, it returns that. Otherwise it creates one with the arguments of the process's
    `Init` call or, without such a call, with default arguments: one sample per rank (nothing depends on the
    batch size), float32 gradients, and the graph's seed or, for graphs without one, a random seed that is the
    same in the whole process. The process may still call `Init` with any arguments for other graphs.

    All graphs that one rank exports (`communicator.alone`) have the same arguments.

    Raises:
      RuntimeError, ImportError: As for `Init`.
    """
    graph = tf.compat.v1.get_default_graph()
    known = _state_of(graph).status
    if known is not None:
        return known
    with _lock:
        configuration, seed = _configuration, _resolved_seed
    if is_alone():
        # The same for all exported graphs, since a process may load several of them. The seed does not
        # matter, as it is restored with the rows.
        configuration, seed = _Configuration(1, None, tf.float32), 0
    elif configuration is None:
        configuration = _Configuration(communicator().size, None, tf.float32)
        seed = as_signed(_seed_of(graph))
    return _init_op(configuration, seed)


def ready_graph() -> None:
    """Makes the initializers of the default graph's tables run `graph_init`, so that Init is not needed.

    In eager execution it does nothing; embedding variables cannot be created there.
    """
    if not tf.executing_eagerly():
        graph_init()


@contextlib.contextmanager
def making_table(servers: Sequence[str] = ()) -> Iterator[list[tf.Operation]]:
    """Returns a context for creating ops that need the graph's Init; the caller appends them to its list.

    Running such an op runs Init first, also if Init is added to the graph later, and with it the Init of the
    devices `servers`, parameter servers on which ops need it.
    """
    state = _state_of(tf.compat.v1.get_default_graph())
    new = [device for device in servers if device not in state.devices]
    state.devices += new
    if state.status is not None:
        state.status = _with_servers(state.status, state.arguments, new)
    made: list[tf.Operation] = []
    with tf.control_dependencies([] if state.status is None else [state.status]):
        yield made
    state.makers += made


def gradient_dtype(describer: tf.Operation | None = None) -> tf.DType:
    """Returns the dtype in which the default graph's gradients are sent, as far as Init has been called.

    A later Init sets the attribute `gradient_dtype` of the `describer`.
    """
    state = _state_of(tf.compat.v1.get_default_graph())
    if describer is not None:
        state.describers.append(describer)
    return tf.as_dtype(state.arguments[2]) if state.arguments else tf.float32


def adopt(maker: tf.Operation) -> None:
    """Records an op of an imported MetaGraph that creates a table, and the Init that it waits for.

    A session has one Init, so the imported one gets the arguments of the graph's own, or those of the next
    call of `Init`. Without either it keeps those that it was exported with. A MetaGraph of a scope may have
    no Init: then the op waits for the graph's, or for one with default arguments until `Init` is called.
    """
    state = _state_of(maker.graph)
    found = [*filter(None, map(graph_ops.init_of, maker.control_inputs))]
    if not found:
        is_new = state.status is None
        status = graph_init()
        maker._add_control_input(status.op)
        if is_new:
            _, state.imported = graph_ops.init_of(status.op) or (None, None)
    state.makers.append(maker)
    for status, words in found:
        if status is state.status:
            continue
        if state.status is None:
            state.status, state.imported = status, words
            state.arguments = tf.make_ndarray(words.get_attr("value")).tolist()
        elif state.imported is not words:
            _set_words(words, state.arguments)


def _set_words(constant: tf.Operation, words: list[int]) -> None:
    value = tf.compat.v1.AttrValue(tensor=tf.make_tensor_proto(words, tf.int64))
    constant._set_attr("value", value)


def _state_of(graph: tf.Graph) -> _GraphState:
    state = getattr(graph, _GRAPH_ATTRIBUTE, None)
    if state is None:
        state = _GraphState()
        setattr(graph, _GRAPH_ATTRIBUTE, state)
    return state


def _init_op(configuration: _Configuration, seed: int) -> tf.Tensor:
    words = [configuration.global_batch_size, seed, configuration.gradient_dtype.as_datatype_enum]
    if tf.executing_eagerly():
        return _exchanged(tf.constant(words, tf.int64))
    state = _state_of(tf.compat.v1.get_default_graph())
    if state.status is not None and state.imported is not None:
        _set_words(state.imported, words)
        state.arguments, state.imported = words, None
    # Nothing depends on the first word, the batch size.
    if state.status is not None and state.arguments[1:] == words[1:]:
        return state.status
    # On the CPU, also if the program places its model elsewhere. Runs after the graph's earlier Init, so that
    # all ranks notice if the arguments differ.
    with tf.device("/device:CPU:0"):
        status = _unless_it_has_run(words, [] if state.status is None else [state.status])
    status = _with_servers(status, words, state.devices)
    dtype = tf.compat.v1.AttrValue(type=configuration.gradient_dtype.as_datatype_enum)
    for describer in state.describers:
        describer._set_attr("gradient_dtype", dtype)
    for maker in state.makers:
        maker._add_control_input(status.op)
    state.status, state.arguments = status, words
    return status


def _with_servers(status: tf.Tensor, words: list[int], devices: Sequence[str]) -> tf.Tensor:
    """Returns `status` after Init has run on the devices of parameter servers, too."""
    if not devices:
        return status
    on_servers = []
    for device in devices:
        with tf.control_dependencies(None), tf.device(None), tf.device(device):
            on_servers.append(_unless_it_has_run(words, []))
    with tf.control_dependencies(on_servers), tf.device(None), tf.device(status.device):
        return tf.identity(status, name="SokInitWithServers")


def _unless_it_has_run(words: list[int], after: list[tf.Tensor]) -> tf.Tensor:
    ranks = communicator()
    with tf.control_dependencies(after):
        arguments = tf.constant(words, tf.int64)
        has_run = native.ops.sok_init_has_run(arguments, rank=ranks.rank, ranks=ranks.size)
    # Only one side of the switch runs, so ranks exchange nothing if Init has run already.
    first = _exchanged(tf.raw_ops.Switch(data=arguments, pred=has_run).output_false)
    again = tf.raw_ops.Switch(data=tf.constant("OK"), pred=has_run).output_true
    return tf.raw_ops.Merge(inputs=[first, again], name="SokInit").output


def _exchanged(arguments: tf.Tensor) -> tf.Tensor:
    """Returns the op that exchanges the arguments and prepares the session."""
    ranks = communicator()
    with tf.name_scope(""):
        # A unique name, because one step may run several of these exchanges.
        name = tf.compat.v1.get_default_graph().unique_name("sok.Init")
    # All ranks get the arguments of all ranks, so that each can name those that disagree.
    received, _ = ranks.send_to_all(arguments, name)
    return native.ops.sok_init(received, rank=ranks.rank, ranks=ranks.size)


def _seed_of(graph: tf.Graph) -> int:
    global _seed_of_graphs
    if graph.seed is not None:
        return graph.seed
    with _lock:
        if _seed_of_graphs is None:
            _seed_of_graphs = random.SystemRandom().getrandbits(63)
        return _seed_of_graphs


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
    """Sets the process's configuration, or checks that it is the one set before; returns its seed.

    The batch size may differ.
    """
    global _configuration, _resolved_seed
    with _lock:
        if _configuration is None:
            _configuration, _resolved_seed = wanted, as_signed(_resolve_seed(wanted.seed))
        elif _configuration[1:] != wanted[1:]:
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


def _reset() -> None:
    """Forgets the configuration, for tests that need several in one process."""
    global _configuration
    with _lock:
        _configuration = None
