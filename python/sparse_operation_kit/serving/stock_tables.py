"""Tables in TensorFlow's own ops, for models that load without this library.

A table is a variable with its keys in ascending order, and one with their rows in the same order. A hash
table of TensorFlow, which maps keys to the numbers of rows, is filled from the keys when a model is loaded.
In a frozen graph, which nobody fills, keys are searched instead. docs/serving.md compares the two.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Union

import numpy as np
import tensorflow as tf

from sparse_operation_kit.checkpoint.errors import CheckpointError
from sparse_operation_kit.checkpoint.exporting import MODEL_FILE
from sparse_operation_kit.checkpoint.format import Table
from sparse_operation_kit.checkpoint.rows import row_blocks
from sparse_operation_kit.compat.internals import resource_variable_ops, saved_model_pb2
from sparse_operation_kit.compat.tensors import ascending_order
from sparse_operation_kit.tables.initializers import as_kept

_log = logging.getLogger(__name__)

# What ids without a row read as: "zeros", the value of every column, or a row.
Absent = Union[str, float, "Sequence[float]"]
ROW_DTYPES = (tf.float32, tf.float16, tf.bfloat16, tf.int8)
_LARGEST_INT8 = 127.0
_CHEAPER_READS = "DisableCopyOnRead"
# The largest table that is constants: a graph's file can have 2 GB.
_LARGEST_CONSTANT_MIB = 256


@dataclass(frozen=True)
class StockOptions:
    """How tables become stock ops.

    Attributes:
      absent: What ids without a row read as; a dictionary has it by the names of tables. None, and a table
        that the dictionary lacks: as in the trained model, if stock ops can compute that.
      row_dtype: The type of stored rows, one of ROW_DTYPES; int8 rows have a scale. Lookups give float32.
      as_constants: Whether tables are constants, in a graph without variables.
    """

    absent: Absent | Mapping[str, Absent] | None = None
    row_dtype: tf.DType = tf.float32
    as_constants: bool = False

    def __post_init__(self) -> None:
        """Raises ValueError if an option is none of the possible ones."""
        dtype = tf.as_dtype(self.row_dtype)
        if dtype not in ROW_DTYPES:
            known = ", ".join(one.name for one in ROW_DTYPES)
            raise ValueError(f"row_dtype is {dtype.name}, but rows can be stored as {known}")
        object.__setattr__(self, "row_dtype", dtype)

    def check_names(self, tables: Sequence[StockTable]) -> None:
        """Raises ValueError if `absent` names a table that is none of these."""
        known = [table.name for table in tables]
        for name in self.absent if isinstance(self.absent, Mapping) else ():
            if name not in known:
                raise ValueError(f"absent names '{name}', which is not exported; exported are {known}")


class StockTable:
    """A table of a checkpoint as stock ops in the default graph.

    Attributes:
      name: The table's name.
      largest_error: After `fill`, the largest difference between a stored weight and the trained one.
      largest_weight: After `fill`, the largest absolute value of a weight.
    """

    def __init__(self, table: Table, options: StockOptions) -> None:
        """Adds the variables, named after the table.

        Raises:
          CheckpointError: The table is damaged, or what ids without a row read as must be given.
        """
        self.name = table.name
        self._table, self._options = table, options
        self._is_hashed: bool = table.last.table["hashed"]
        self._absent_rows = _absent_rows(table, options.absent)
        self._places, self._keys = self._order()
        self._variables: dict[str, tf.Variable] = {}
        self._initializers: list[str] = []
        self.largest_error = self.largest_weight = 0.0
        with tf.compat.v1.variable_scope(None, default_name=f"{self.name}/stock"):
            if options.as_constants:
                self._make_constants()
            else:
                self._make_variables()

    def look_up(self, ids: tf.Tensor) -> tf.Tensor:
        """Returns the rows of ids of any integer dtype and shape [...], float32 [..., dim]."""
        numbers = self._row_numbers(tf.cast(ids, tf.int64))
        rows = tf.cast(tf.gather(self._rows, numbers), tf.float32)
        return rows if self._scales is None else rows * tf.gather(self._scales, numbers)[..., tf.newaxis]

    def fill(self, session: tf.compat.v1.Session) -> list[tf.Variable]:
        """Stores the table in its variables in the session's graph, a block of rows at a time; returns them.

        The graph is the one in which the table was made, or has its ops under the same names.
        """
        if self._options.as_constants:
            return []
        with session.graph.as_default():
            kind = resource_variable_ops.ResourceVariable
            found = {name: kind.from_proto(one.to_proto()) for name, one in self._variables.items()}
            session.run([variable.initializer for variable in found.values()])
            if "keys" in found:
                found["keys"].load(self._keys, session)
            positions = tf.compat.v1.placeholder(tf.int64, [None])
            stored = [found[name] for name in ("rows", "scales") if name in found]
            values = [tf.compat.v1.placeholder(one.dtype, [None, *one.shape[1:]]) for one in stored]
            updates = [
                tf.compat.v1.scatter_update(one, positions, value).op for one, value in zip(stored, values)
            ]
        for places, rows in self._blocks():
            session.run(updates, {positions: places, **dict(zip(values, self._encoded(rows)))})
        return list(found.values())

    def initializers_in(self, graph: tf.Graph) -> list[tf.Operation]:
        """Returns the op that fills TensorFlow's hash table from the variables, in a list; [] without one."""
        return [graph.get_operation_by_name(name) for name in self._initializers]

    def report(self) -> str:
        """Returns a line about the table; after `fill`, with what storing its rows has changed."""
        text = f"{self.name}: {len(self._keys):,} rows of {self._table.dim} as {self._options.row_dtype.name}"
        if self._options.row_dtype == tf.float32:
            return text
        return (
            f"{text}, which changes weights by {self.largest_error:.3g} at most; the largest is "
            f"{self.largest_weight:.3g}"
        )

    def _order(self) -> tuple[np.ndarray, np.ndarray]:
        """Returns the place of each of the checkpoint's rows, and the keys in ascending order."""
        blocks = [block.keys for block in row_blocks(self._table, ())]
        keys = np.concatenate([np.zeros([0], np.int64), *blocks])
        if not self._is_hashed:
            return keys, keys
        order = np.argsort(keys)
        places = np.empty(keys.shape, np.int64)
        places[order] = np.arange(len(keys))
        return places, keys[order]

    @property
    def _first_absent(self) -> int:
        """The number of the first row for ids without one, after all others."""
        return len(self._keys)

    @property
    def _num_rows(self) -> int:
        return self._first_absent + len(self._absent_rows)

    def _blocks(self):
        """Yields all rows: their places, and float32 [n, dim]."""
        yield self._first_absent + np.arange(len(self._absent_rows)), self._absent_rows
        begin = 0
        for block in row_blocks(self._table, ("values",)):
            end = begin + len(block.keys)
            yield self._places[begin:end], block.columns["values"]
            begin = end

    def _encoded(self, rows: np.ndarray) -> list[np.ndarray]:
        """Returns rows as they are stored, and the scale of each if they have one."""
        dtype = self._options.row_dtype
        if dtype == tf.int8:
            scales = np.max(np.abs(rows), axis=1, initial=0.0) / np.float32(_LARGEST_INT8)
            divisors = np.where(scales > 0, scales, 1).astype(np.float32)[:, np.newaxis]
            encoded = [np.rint(rows / divisors).astype(np.int8), scales.astype(np.float32)]
            decoded = encoded[0] * encoded[1][:, np.newaxis]
        else:
            encoded = [rows.astype(dtype.as_numpy_dtype)]
            decoded = encoded[0].astype(np.float32)
        self.largest_error = max(self.largest_error, float(np.max(np.abs(rows - decoded), initial=0.0)))
        self.largest_weight = max(self.largest_weight, float(np.max(np.abs(rows), initial=0.0)))
        return encoded

    def _make_variables(self) -> None:
        dim, options = self._table.dim, self._options

        def variable(name: str, shape: list[int], dtype: tf.DType) -> tf.Variable:
            zeros = tf.compat.v1.zeros_initializer()
            made = tf.compat.v1.get_variable(name, shape, dtype, zeros, trainable=False, use_resource=True)
            self._variables[name] = made
            return made

        self._rows: Any = variable("rows", [self._num_rows, dim], options.row_dtype)
        is_scaled = options.row_dtype == tf.int8
        self._scales: Any = variable("scales", [self._num_rows], tf.float32) if is_scaled else None
        # TensorFlow fills no hash table from nothing.
        if not self._is_hashed or not len(self._keys):
            return
        keys = variable("keys", [len(self._keys)], tf.int64)
        default = self._first_absent if len(self._absent_rows) == 1 else -1
        self._hash_table, initializer = _numbered(keys.read_value(), default)
        self._initializers.append(initializer)

    def _make_constants(self) -> None:
        megabytes = self._num_rows * (self._table.dim * self._options.row_dtype.size + 8) >> 20
        if megabytes > _LARGEST_CONSTANT_MIB:
            raise ValueError(
                f"Embedding variable '{self.name}' takes {megabytes} MiB as constants, and at most "
                f"{_LARGEST_CONSTANT_MIB} MiB can be in a graph: export a SavedModel instead, with "
                "sok.serving.export (docs/serving.md)"
            )
        encoded = np.zeros([self._num_rows, self._table.dim], self._options.row_dtype.as_numpy_dtype)
        scales = np.zeros([self._num_rows], np.float32)
        for places, rows in self._blocks():
            encoded[places], *scales_of_rows = self._encoded(rows)
            if scales_of_rows:
                scales[places] = scales_of_rows[0]
        self._rows = tf.constant(encoded, name="rows")
        self._scales = tf.constant(scales, name="scales") if self._options.row_dtype == tf.int8 else None

    def _row_numbers(self, ids: tf.Tensor) -> tf.Tensor:
        if not self._is_hashed:
            return ids
        if not len(self._keys):
            return self._absent(ids)
        if self._options.as_constants:
            return _searched(tf.constant(self._keys, name="keys"), ids, self._absent(ids))
        numbers = self._hash_table.lookup(ids)
        return numbers if len(self._absent_rows) == 1 else tf.where(numbers < 0, self._absent(ids), numbers)

    def _absent(self, ids: tf.Tensor) -> tf.Tensor:
        """Returns the number of the row that each id without one reads."""
        return tf.math.floormod(ids, len(self._absent_rows)) + self._first_absent


class StockVocabulary:
    """The keys of an `IntegerLookup` layer as stock ops in the default graph.

    Attributes:
      initializers: The name of the op that fills TensorFlow's hash table, in a list; [] without one.
    """

    def __init__(self, keys: tf.Tensor, size: tf.Tensor, as_constants: bool) -> None:
        """Adds the ops.

        Args:
          keys: The handle of the layer's variable of keys; the first one stands for no key.
          size: That of the variable with the number of the others.
          as_constants: As of `StockOptions`.
        """
        count = tf.raw_ops.ReadVariableOp(resource=size, dtype=tf.int64) + 1
        self._keys = tf.raw_ops.ReadVariableOp(resource=keys, dtype=tf.int64)[:count]
        self._keys.set_shape([None])
        self.initializers: list[str] = []
        self._hash_table = None
        if not as_constants:
            self._hash_table, initializer = _numbered(self._keys, 0)
            self.initializers.append(initializer)

    def look_up(self, ids: tf.Tensor) -> tf.Tensor:
        """Returns the numbers of int64 ids, 0 for those that are no keys."""
        if self._hash_table is not None:
            return self._hash_table.lookup(ids)
        order = tf.cast(ascending_order(self._keys), tf.int64)
        place = _searched(
            tf.gather(self._keys, order), ids, tf.fill(tf.shape(ids), tf.constant(-1, tf.int64))
        )
        return tf.where(place < 0, tf.zeros_like(ids), tf.gather(order, tf.maximum(place, 0)))


def _numbered(keys: tf.Tensor, default: int) -> tuple[Any, str]:
    """Returns a hash table with the places of keys, at least one, and the name of the op that fills it."""
    filling = tf.lookup.KeyValueTensorInitializer(keys, tf.range(tf.size(keys, out_type=tf.int64)))
    table = tf.lookup.StaticHashTable(filling, default)
    initializers = tf.compat.v1.get_collection_ref(tf.compat.v1.GraphKeys.TABLE_INITIALIZERS)
    return table, initializers[-1].name


def _searched(keys: tf.Tensor, ids: tf.Tensor, absent: tf.Tensor) -> tf.Tensor:
    """Returns the places of ids among ascending keys, at least one; `absent` for others. 1 id a step."""
    # One more id, because version 1.15 refuses to search for none.
    flat = tf.concat([tf.reshape(ids, [-1]), [0]], 0)
    places = tf.minimum(
        tf.searchsorted(keys, flat, out_type=tf.int64)[:-1], tf.size(keys, out_type=tf.int64) - 1
    )
    places = tf.reshape(places, tf.shape(ids))
    return tf.where(tf.equal(tf.gather(keys, places), ids), places, absent)


def session_on_host() -> tf.compat.v1.Session:
    """Returns a session without GPUs, whose memory a model that is only written must not take."""
    return tf.compat.v1.Session(config=tf.compat.v1.ConfigProto(device_count={"GPU": 0}))


def write_model(
    session: tf.compat.v1.Session,
    folder: Path,
    tags: Sequence[str],
    signatures: Mapping[str, Any],
    tables: Sequence[StockTable],
    variables: Sequence[tf.Variable] = (),
    init_ops: Sequence[tf.Operation] = (),
    asset_paths: Sequence[tf.Tensor] = (),
    assets: Sequence[Any] = (),
) -> None:
    """Fills tables and writes the session's graph as a SavedModel.

    Args:
      session: The session, of the default graph.
      folder: The folder to create; it must not exist.
      tags: The tags of the graph.
      signatures: The signatures by name.
      tables: The tables in the graph.
      variables: The other variables, which have values in the session.
      init_ops: Ops to run when the model is loaded, besides those that tables need.
      asset_paths: Tensors with the paths of files to copy into the model.
      assets: `AssetFileDef`s of files that the caller copies into the model.
    """
    saved = list(variables)
    prepared = list(init_ops)
    for table in tables:
        saved += table.fill(session)
        prepared += table.initializers_in(session.graph)
        _log.info("%s", table.report())
    builder = tf.compat.v1.saved_model.Builder(str(folder))
    builder.add_meta_graph_and_variables(
        session,
        tags,
        signature_def_map=signatures,
        assets_collection=list(asset_paths),
        main_op=tf.group(*prepared) if prepared else None,
        strip_default_attrs=True,
        saver=tf.compat.v1.train.Saver(saved) if saved else None,
    )
    builder.save()
    path = folder / MODEL_FILE
    model = saved_model_pb2.SavedModel.FromString(path.read_bytes())
    for meta_graph in model.meta_graphs:
        meta_graph.asset_file_def.extend(assets)
        _make_readable_by_older_versions(meta_graph.graph_def)
    path.write_bytes(model.SerializeToString(deterministic=True))


def _make_readable_by_older_versions(graph: tf.compat.v1.GraphDef) -> None:
    """Removes what older versions of TensorFlow do not know, and a model that is served does without.

    These are names of variables for debuggers, and ops by which a Saver makes later reads cheaper.
    """
    places = [place for place, node in enumerate(graph.node) if node.op == _CHEAPER_READS]
    removed = {f"^{graph.node[place].name}" for place in places}
    for place in reversed(places):
        del graph.node[place]
    for node in graph.node:
        node.attr.pop("debug_name", None)
        node.input[:] = [name for name in node.input if name not in removed]


def _absent_rows(table: Table, absent: Any) -> np.ndarray:
    """Returns the rows that ids without one read, float32 [m, dim]: id k reads row k mod m."""
    description = table.last.table
    if not description["hashed"]:
        return np.zeros([0, table.dim], np.float32)  # Each id has a row.
    given = absent.get(table.name) if isinstance(absent, Mapping) else absent
    if given is not None:
        return _given_rows(table, given)
    admission, initializer = description["admission"], description["initializer"]
    if admission and admission["filter_freq"] > 0:
        return _every_column(table, as_kept(admission["default_value"], table.last.row_dtype))
    if initializer["kind"] == "constant":
        return _every_column(table, as_kept(initializer["a"], table.last.row_dtype))
    if "rows" in initializer:
        return table.initial_rows(np.arange(initializer["rows"]))
    raise CheckpointError(
        f"embedding variable '{table.name}'",
        "gives ids without a row random initial rows, which TensorFlow's own ops cannot compute: say what "
        'they read as in an export, such as absent="zeros" (in the command line --absent zeros)',
    )


def _given_rows(table: Table, given: Absent) -> np.ndarray:
    who = f"Embedding variable '{table.name}'"
    if isinstance(given, str):
        if given != "zeros":
            raise ValueError(f"{who}: absent is {given!r}, not 'zeros', a number or a row")
        given = 0.0
    row = np.asarray(given, np.float32)
    if row.shape == ():
        return _every_column(table, float(row))
    if row.shape != (table.dim,):
        raise ValueError(f"{who}: absent has the shape {list(row.shape)}, but a row is [{table.dim}]")
    return row[np.newaxis]


def _every_column(table: Table, value: float) -> np.ndarray:
    return np.full([1, table.dim], value, np.float32)
