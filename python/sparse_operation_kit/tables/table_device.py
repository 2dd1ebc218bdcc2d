"""Where tables are: on the device of `tf.device`; otherwise on a GPU if there is one.

TensorFlow places the ops of a table together. Without a device of the program's own it takes the GPU if there
is one and the op library has kernels for GPUs. The environment variable `SOK_DEVICE`, "cpu" or "gpu", chooses
for such tables. With several ranks each rank does so for itself: ranks may be on different devices.

In a program with parameter servers a table is in parts on all of them, and its ops on the worker run where
other ops of the worker do.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import tensorflow as tf

from sparse_operation_kit.compat.internals import kernels, node_def_pb2
from sparse_operation_kit.graphs import graph_ops
from sparse_operation_kit.ranks.communicator import is_alone

if TYPE_CHECKING:
    from sparse_operation_kit.tables.embedding_variable import EmbeddingVariable

_VARIABLE = "SOK_DEVICE"
_TYPES = ("cpu", "gpu")


def _has_gpu_kernels() -> bool:
    registered = kernels.get_registered_kernels_for_op(graph_ops.TABLE).kernel
    return any(kernel.device_type == "GPU" for kernel in registered)


def _device_type(device: str) -> str | None:
    return tf.DeviceSpec.from_string(device or "").device_type


class _Probe:
    """Stands in for a new op, and takes the device that the op would get."""

    type = "NoOp"
    node_def = node_def_pb2.NodeDef(op="NoOp")
    device = ""

    def _set_device_from_string(self, device: str) -> None:
        self.device = device

    def _set_device(self, device: Any) -> None:
        self.device = device if isinstance(device, str) else device.to_string()


def _current_device() -> str:
    probe = _Probe()
    tf.compat.v1.get_default_graph()._apply_device_functions(probe)
    return probe.device


def _may_have_a_gpu(device: str) -> bool:
    """Whether the device's task may have a GPU. Only this process is asked; a task of a named job may."""
    is_elsewhere = tf.DeviceSpec.from_string(device).job is not None
    return is_elsewhere or bool(tf.config.experimental.list_physical_devices("GPU"))


def table_device() -> contextlib.AbstractContextManager[None]:
    """Returns the scope in which to create a table that may be inside the program's own `tf.device`.

    DeepRec programs place their models, and with them their tables, on a GPU. If tables can be on CPUs only,
    because the op library has no kernels for GPUs or there is no GPU, the scope places the table on the CPU
    of the same job and task; otherwise it leaves the program's device.
    """
    if not _has_gpu_kernels() or not _may_have_a_gpu(_current_device()):
        return tf.device("/device:CPU:0")
    return contextlib.nullcontext()


class Servers(NamedTuple):
    """The parameter servers of a program.

    Attributes:
      devices: The device of part p of each table, by p. Empty without parameter servers.
      worker: The device of the worker that builds the graph, where tables are described.
      missed: In words, the servers on which the program does not make the table. It may look up rows that a
        checkpoint has, but must not train them.
    """

    devices: tuple[str, ...] = ()
    worker: str = ""
    missed: str = ""


def servers_of_program(name: str) -> Servers:
    """Returns the parameter servers that hold a table which is made here.

    They are those of the `replica_device_setter` whose scope this is; Estimator makes models in one too. In a
    scope of `tf.device("/job:ps/...")` without one, they are those of `TF_CONFIG`. Elsewhere the table is of
    this process: also in a cluster, programs evaluate and export checkpoints in sessions of their own.

    Args:
      name: The variable's name, for errors.

    Raises:
      ValueError: The table would be on a server, and the program does not say how many there are.
    """
    if is_alone():
        return Servers()
    here = _current_device()
    is_on_servers = tf.DeviceSpec.from_string(here).job == "ps"
    setter = _device_setter()
    if setter is not None:
        worker = setter._worker_device if is_on_servers else here
        return Servers(_server_devices(setter._ps_device, setter._ps_tasks), _text_of(worker))
    count = servers_of_config()
    if is_on_servers and count:
        return Servers(_server_devices("/job:ps", count))
    if is_on_servers:
        raise ValueError(_missed(name, here))
    return Servers(missed=f"the {count} of TF_CONFIG" if count else "")


def check_trained_on_servers(table: EmbeddingVariable) -> None:
    """Raises ValueError if the program has parameter servers, and the table that it trains is not on them."""
    if table.servers.missed:
        raise ValueError(_missed(table.m_var_name, table.servers.missed))


def _missed(name: str, servers: str) -> str:
    return (
        f"Embedding variable '{name}': with parameter servers ({servers}) a table that is trained is made in "
        "the scope of tf.compat.v1.train.replica_device_setter, which says how many they are, as Estimator's "
        "models are; without it each worker would train a table of its own"
    )


def first_server() -> str:
    """Returns the device of what all workers share beside tables; "" without parameter servers.

    It is the first server of the `replica_device_setter` whose scope this is, or else of `TF_CONFIG`.
    """
    setter = None if is_alone() else _device_setter()
    if setter is not None:
        return _server_devices(setter._ps_device, 1)[0]
    return _server_devices("/job:ps", 1)[0] if not is_alone() and servers_of_config() else ""


def _device_setter() -> Any:
    """Returns the innermost `replica_device_setter` in whose scope this is; None if there is none."""
    functions = tf.compat.v1.get_default_graph()._device_functions_outer_to_inner
    setters = (getattr(function, "__self__", None) for function in reversed(functions))
    return next((setter for setter in setters if getattr(setter, "_ps_tasks", 0)), None)


def _server_devices(servers: Any, count: int) -> tuple[str, ...]:
    """Returns the devices of the tables on `count` servers: their CPUs, unless the program says otherwise."""
    device = tf.DeviceSpec.from_string(_text_of(servers) or "/job:ps")
    if device.device_type is None:
        device = device.replace(device_type="CPU", device_index=0)
    return tuple(device.replace(task=task).to_string() for task in range(count))


def _text_of(device: Any) -> str:
    return device if isinstance(device, str) else "" if device is None else device.to_string()


def servers_of_config() -> int:
    """Returns the number of parameter servers in `TF_CONFIG`. An evaluator has no part in the cluster."""
    try:
        config = json.loads(os.environ.get("TF_CONFIG") or "{}")
        count, task = len(config.get("cluster", {}).get("ps", ())), config.get("task", {}).get("type")
    except (ValueError, AttributeError, TypeError):
        return 0  # TensorFlow reports it
    return 0 if task == "evaluator" else count


def place_table(table: tf.Operation, name: str) -> None:
    """Places a new table whose device the program has left open.

    Args:
      table: The op of the table's handle.
      name: The variable's name, for errors.

    Raises:
      ValueError: `SOK_DEVICE` is neither "cpu" nor "gpu", or it is "gpu", but the op library has no kernels
        for GPUs.
    """
    who = f"Embedding variable '{name}'"
    setting = os.environ.get(_VARIABLE, "")
    if setting and setting not in _TYPES:
        raise ValueError(f"{who}: {_VARIABLE} must be 'cpu' or 'gpu', not {setting!r}")
    if not setting or _device_type(table.device) is not None:
        return
    if not _has_gpu_kernels():
        if setting == "gpu":
            raise ValueError(f"{who}: {_VARIABLE} is 'gpu', but the op library was built without CUDA")
        return
    place = tf.DeviceSpec.from_string(table.device or "").replace(device_type=setting.upper(), device_index=0)
    table._set_device(place.to_string())


def may_be_on_gpu(table: EmbeddingVariable) -> bool:
    """Whether the table is on a GPU, or TensorFlow may still place it there."""
    placed = _device_type(table.handle.device)
    if placed is not None:
        return placed == "GPU"
    return _has_gpu_kernels() and _may_have_a_gpu(table.handle.device)


@contextlib.contextmanager
def on_device(device: str) -> Iterator[None]:
    """A scope for ops on a device, whatever else the program has said about their place."""
    graph = tf.compat.v1.get_default_graph()
    with graph.colocate_with(None, ignore_existing=True), tf.device(None), tf.device(device):
        yield


def on_host_of(tensor: tf.Tensor) -> contextlib.AbstractContextManager[None]:
    """A scope for ops on the CPU of the job and task that a tensor of a graph is placed on."""
    place = tf.DeviceSpec.from_string(tensor.device or "").replace(device_type="CPU", device_index=0)
    return on_device(place.to_string())


def on_host(table: EmbeddingVariable) -> contextlib.AbstractContextManager[None]:
    """A scope for ops on numbers that kernels need on the host: the CPU of the table's job and task.

    TensorFlow colocates the ops of an update with the variable. On a GPU, each step would have to wait until
    their results are copied to the host.
    """
    return on_host_of(table.handle)


def beside_rows(tables: Sequence[EmbeddingVariable]) -> contextlib.AbstractContextManager[None]:
    """A scope for variables that steps on the tables read: with servers on the first, for all workers."""
    devices = next((table.servers.devices for table in tables if table.servers.devices), ())
    return on_device(devices[0]) if devices else on_host(tables[0])


def host_input(table: EmbeddingVariable, value: Any) -> tf.Tensor:
    """Returns an input that kernels need on the host. A constant gets a place on the CPU.

    TensorFlow places a constant with the only op that reads it. On a GPU, each step would begin with a copy
    to the host, and wait for it.

    Args:
      table: A table of the op that reads the input.
      value: What `tf.convert_to_tensor` takes.
    """
    op = getattr(value, "op", None)  # a tensor of eager execution has none
    known = tf.get_static_value(value) if op is not None and op.type == "Const" else None
    if tf.executing_eagerly() or (tf.is_tensor(value) and known is None):
        return tf.convert_to_tensor(value)
    with on_host(table):
        return tf.convert_to_tensor(value) if known is None else tf.constant(known, value.dtype)


def _differ(one: str, other: str) -> bool:
    """Whether two devices with known types cannot be the same. A number that is left open may be any."""
    first, second = tf.DeviceSpec.from_string(one), tf.DeviceSpec.from_string(other)
    if first.device_type != second.device_type:
        return True
    numbers = first.device_index, second.device_index
    return None not in numbers and numbers[0] != numbers[1]


def check_same_device(tables: Sequence[EmbeddingVariable], what: str) -> None:
    """Raises ValueError, with the names of two tables, if tables that one op takes are on different devices.

    Args:
      tables: The tables.
      what: What cannot be done with them, a participle: "looked up in one group".
    """
    for table in tables:
        if table.servers.devices != tables[0].servers.devices:
            raise ValueError(
                f"Embedding variables '{tables[0].m_var_name}' and '{table.m_var_name}' cannot be {what}: "
                f"their parts are on {_in_words(tables[0])} and on {_in_words(table)}"
            )
    placed = [table for table in tables if _device_type(table.handle.device)]
    for table in placed:
        if _differ(table.handle.device, placed[0].handle.device):
            raise ValueError(
                f"Embedding variables '{placed[0].m_var_name}' and '{table.m_var_name}' cannot be {what}: "
                f"one is on {placed[0].handle.device}, the other on {table.handle.device}"
            )


def _in_words(table: EmbeddingVariable) -> str:
    return ", ".join(table.servers.devices) or "one process"
