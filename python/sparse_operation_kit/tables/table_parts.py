"""The parts of a table: one in this process, or one on each parameter server.

On servers, part p has the keys and rows that rank p of as many ranks would have. The worker has a description
of the table, without rows, for the ops that send and receive messages about it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import tensorflow as tf

from sparse_operation_kit import native
from sparse_operation_kit.tables.table_device import check_same_device, on_device

if TYPE_CHECKING:
    from sparse_operation_kit.tables.embedding_variable import EmbeddingVariable


class TablePart:
    """A part of a table in parts. A program that looks up ids in the list of all parts uses the table.

    Attributes:
      table: The variable.
      name: The variable's name, a slash, `part_` and the part's number.
      handle: The handle of the part's rows.
      dtype: That of the rows.
    """

    dtype = tf.float32

    def __init__(self, table: EmbeddingVariable, name: str, handle: tf.Tensor) -> None:
        """Made by `parts_on_servers`."""
        self.table = table
        self.name = name
        self.handle = handle

    @property
    def device(self) -> str:
        """The device of the part's rows."""
        return self.handle.device

    def size(self) -> tf.Tensor:
        """Returns the number of the part's rows, a scalar int64 tensor."""
        with on_device(self.device):
            return native.ops.sok_table_size(self.handle)

    def refuse(self) -> NoReturn:
        """Raises TypeError: a part is used like a variable."""
        raise TypeError(
            f"Embedding variable '{self.table.m_var_name}' is in {len(self.table.handles)} parts on "
            f"parameter servers, and '{self.name}' is one of them, without lookups and a value of its own: "
            "look ids up in the variable, or in the list of all parts in their order"
        )


def _refuse_value(part: TablePart, *args: Any, **kwargs: Any) -> NoReturn:
    del args, kwargs
    part.refuse()


tf.register_tensor_conversion_function(TablePart, _refuse_value)


def parts_on_servers(table: EmbeddingVariable) -> list[TablePart]:
    """Adds the handles of a table's parts to the graph: one for each of its servers."""
    parts = []
    # Without control dependencies: every step runs the handles' ops, and must not run those again.
    with tf.control_dependencies(None):
        for number, device in enumerate(table.servers.devices):
            name = f"{table.m_var_name}/part_{number}"
            with on_device(device):
                handle = native.ops.sok_table(shared_name=table.m_var_name, name=name)
            parts.append(TablePart(table, name, handle))
    return parts


def joined(params: Any) -> Any:
    """Returns the table whose parts a lookup gets; what else it gets, as it is.

    Args:
      params: What a program looks ids up in.

    Raises:
      TypeError: Only some of a table's parts are given, or in another order, or with something else.
    """
    given = list(params) if isinstance(params, (list, tuple)) else [params]
    part = next((one for one in given if isinstance(one, TablePart)), None)
    if part is None:
        return params
    if [*map(id, given)] != [*map(id, part.table)]:
        part.refuse()
    return part.table


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


def of_parts(table: EmbeddingVariable, make: Callable[[tf.Tensor], Any]) -> list[Any]:
    """Returns what `make` returns for the handle of each part, whose ops are on its device."""
    return on_each([[handle] for handle in table.handles], table, lambda one: make(one[0]))


def on_all_parts(
    table: EmbeddingVariable, make: Callable[[tf.Tensor], tf.Tensor], name: str | None = None
) -> tf.Tensor:
    """Returns what `make` returns for the handle; on servers b'OK', after it has run for all parts."""
    if not table.servers.devices:
        return make(table.handle)
    with on_device(table.servers.worker), tf.control_dependencies(of_parts(table, make)):
        return tf.constant("OK", name=name)


def sum_of_parts(table: EmbeddingVariable, make: Callable[..., tf.Tensor], name: str | None) -> tf.Tensor:
    """Returns the sum of what `make(handle, name=...)` returns for the parts."""
    if not table.servers.devices:
        return make(table.handle, name=name)
    with on_device(table.servers.worker):
        return tf.add_n(of_parts(table, lambda handle: make(handle, name=None)), name=name)


def concatenated(table: EmbeddingVariable, make: Callable[[tf.Tensor], Any]) -> Any:
    """Returns the outputs of the op that `make` adds, those of all parts one after another."""
    found = of_parts(table, make)
    if not table.servers.devices:
        return found[0]
    with on_device(table.servers.worker):
        return type(found[0])(*(tf.concat(column, 0) for column in zip(*found)))


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
