"""The parts of a table: one in this process, or one on each parameter server.

On servers, part p has the keys and rows that rank p of as many ranks would have. The worker has a description
of the table, without rows, for the ops that send and receive messages about it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import tensorflow as tf

from sparse_operation_kit import native
from sparse_operation_kit.tables.table_device import check_same_device, on_device

if TYPE_CHECKING:
    from sparse_operation_kit.tables.embedding_variable import EmbeddingVariable


class TablePart(NamedTuple):
    """A part of a table in parts.

    Attributes:
      name: The variable's name, a slash, `part_` and the part's number.
      handle: The handle of the part's rows.
    """

    name: str
    handle: tf.Tensor

    @property
    def device(self) -> str:
        """The device of the part's rows."""
        return self.handle.device

    def size(self) -> tf.Tensor:
        """Returns the number of the part's rows, a scalar int64 tensor."""
        with on_device(self.device):
            return native.ops.sok_table_size(self.handle)


def parts_on_servers(name: str, devices: Sequence[str]) -> list[TablePart]:
    """Adds the handles of a table's parts to the graph.

    Args:
      name: The variable's unique name.
      devices: The servers' devices.
    """
    parts = []
    # Without control dependencies: every step runs the handles' ops, and must not run those again.
    with tf.control_dependencies(None):
        for number, device in enumerate(devices):
            part = f"{name}/part_{number}"
            with on_device(device):
                parts.append(TablePart(part, native.ops.sok_table(shared_name=name, name=part)))
    return parts


def beside(handle: tf.Tensor, table: EmbeddingVariable) -> contextlib.AbstractContextManager[Any]:
    """A scope for ops on the rows of a part, on its server."""
    return on_device(handle.device) if table.servers.devices else contextlib.nullcontext()


def on_each(
    processes: Sequence[Sequence[tf.Tensor]],
    table: EmbeddingVariable,
    make: Callable[[Sequence[tf.Tensor]], Any],
) -> list[Any]:
    """Returns what `make` returns for the handles of each process, whose ops are there.

    Args:
      processes: What `by_process` returned.
      table: Any of the tables.
      make: Adds ops for handles of one process.
    """
    made = []
    for handles in processes:
        with beside(handles[0], table):
            made.append(make(handles))
    return made


def all_of(made: Sequence[tf.Operation], name: str | None = None) -> tf.Operation:
    """Returns an op that has run when these ops of several processes have.

    `tf.group` adds an op on the device of each, which fails where new ops are colocated with others.
    """
    if len(made) == 1 and name is None:
        return made[0]
    with tf.control_dependencies(made):
        return tf.no_op(name=name)


def by_process(tables: Sequence[EmbeddingVariable], what: str) -> list[list[tf.Tensor]]:
    """Returns the handles of tables by the process that has the rows: one list, or one for each server.

    Args:
      tables: At least one table.
      what: What is done with them, for the error: see `check_same_device`.

    Raises:
      ValueError: The tables are on different devices or servers.
    """
    check_same_device(tables, what)
    return [list(handles) for handles in zip(*(table.handles for table in tables))]


def track_changes(tables: Sequence[EmbeddingVariable]) -> tf.Operation:
    """Returns an op after which incremental checkpoints of the tables need no full one in the session."""
    processes = by_process(tables, "saved by one Saver")
    return all_of(on_each(processes, tables[0], native.ops.sok_track_changes))
