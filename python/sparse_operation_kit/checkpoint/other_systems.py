"""Writes tables, and the ordinary variables of their checkpoint, in the forms of other systems' checkpoints.

Each `write` function writes tables of one checkpoint into a new folder, and returns a line for each table
that has something for which the form has no place. docs/checkpoints.md describes the forms.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import string
import struct
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import tensorflow as tf

from sparse_operation_kit.checkpoint import reader
from sparse_operation_kit.checkpoint.errors import CheckpointError
from sparse_operation_kit.checkpoint.format import BLOOM, WAITING, Table
from sparse_operation_kit.checkpoint.reader import Bundle, SavedCheckpoint
from sparse_operation_kit.checkpoint.rows import RowBlock, columns_of, in_order, row_blocks, waiting_ids

_ADAM = "Adam"
_ADAM_ASYNC = "AdamAsync"
# DeepRec orders keys by their remainder of this.
_REMAINDERS = 1000
_DEEPREC_COLUMNS = {"freqs": "frequency", "versions": "last_step"}
# Those that SOK 2.x takes, and its numbers of types.
_SOK2_OPTIMIZERS = ("Adadelta", "Adagrad", "Adam", "Ftrl")
_SOK2 = "SOK 2"
_SOK2_TYPES = {"int32": 0, "int64": 1, "uint32": 2, "float32": 5}
_MAX_ROWS = 1 << 40


def write_deeprec(tables: Sequence[Table], folder: Path) -> list[str]:
    """Writes DeepRec's checkpoint. A table of several shards is in as many parts.

    Raises:
      CheckpointError: A table or a variable is damaged, or nothing can be written.
    """
    folder.mkdir()
    bundle, saved = new_bundle(tables, folder), _opened(tables[0].last.prefix)
    for table in tables:
        # This library and DeepRec have the powers of AdamAsync for each table.
        ours = saved.has_tensor(power_of_async(table.name, "beta1"))
        is_async = ours or table.last.slots_of == _ADAM_ASYNC
        shards = len(table.last.shards)
        for shard in range(shards):
            name = f"{table.name}/part_{shard}" if shards > 1 else table.name
            names = _tensor_names(table, name, _ADAM_ASYNC if is_async else "")
            _write_deeprec_table(table, shard, names, folder, bundle)
            for number, power in enumerate(_beta_powers([table]).values() if is_async else (), start=2):
                bundle.add(_numbered(f"{name}/{_ADAM_ASYNC}", number), power.reshape([1]))
    finish(bundle, tables, folder)
    return left_out("DeepRec's checkpoint", tables, [*_DEEPREC_COLUMNS.values(), *WAITING])


def write_sok2(tables: Sequence[Table], folder: Path) -> list[str]:
    """Writes what `sok.dump` of SOK 2.x writes, and a checkpoint of the ordinary variables beside it.

    SOK calls the variable "items" items:0, so each file has two names: items-key and items_0-key.

    Raises:
      CheckpointError: A table or a variable is damaged, two tables get the same name, a name is too long, or
        nothing can be written.
    """
    folder.mkdir()
    bundle = new_bundle(tables, folder)
    taken: dict[str, str] = {}
    facts = []
    for table in tables:
        name = table.name.translate(dict.fromkeys(map(ord, string.punctuation), "_"))
        for one in (name, f"{name}_0"):
            if one in taken:
                raise CheckpointError(
                    table.last.path,
                    f"and '{taken[one]}' would both have files '{one}': SOK has no punctuation in names",
                )
            taken[one] = table.name
        facts.append(_write_sok2_table(table, name, folder))
    # Each fact of all tables, and then the next one.
    columns = b"".join(itertools.chain(*zip(*facts)))
    (folder / "meta_info").write_bytes(struct.pack(">I", len(tables)) + columns)
    finish(bundle, tables, folder)
    return left_out("SOK 2.x", tables, [], _SOK2_OPTIMIZERS)


def _write_sok2_table(table: Table, name: str, folder: Path) -> tuple[bytes, ...]:
    """Writes the files of a table; returns the facts about it."""
    keys, key_type = "keys", table.last.table["key_dtype"]
    optimizer, slots = _slots(table, _SOK2_OPTIMIZERS)
    # Of each column: the end of its file's name, and its kind, slot and type.
    files = {keys: ("key", 0, "", key_type), "values": ("weight", 1, "", "float32")}
    files.update({column: (f"{optimizer}-{slot}", 2, slot, "float32") for column, slot in slots.items()})
    rows = 0
    with contextlib.ExitStack() as opened:
        streams = {}
        for column, (suffix, kind, slot, dtype) in files.items():
            head = _justified(table, name, 256) + struct.pack(">I", kind) + _justified(table, slot, 32)
            streams[column] = opened.enter_context(open(folder / f"{name}-{suffix}", "xb"))
            streams[column].write(head + struct.pack(">I", _SOK2_TYPES[dtype]))
        columns = [column for column in files if column != keys]
        # SOK takes the rows of a table without hashing in the order of its keys.
        is_hashed, all_rows = table.last.table["hashed"], table.last.static_keys
        for block in (
            row_blocks(table, columns) if is_hashed else _in_order_of_keys(table, columns, all_rows, folder)
        ):
            rows += len(block.keys)
            for column, stream in streams.items():
                array = block.keys.astype(key_type) if column == keys else block.columns[column]
                stream.write(array.tobytes())
    for suffix, *_ in files.values():
        path, other = (folder / f"{one}-{suffix}" for one in (name, f"{name}_0"))
        try:
            os.link(path, other)
        except OSError:  # not all file systems have links
            shutil.copyfile(path, other)
    numbers = (_SOK2_TYPES[key_type], _SOK2_TYPES["float32"], table.dim)
    facts = [struct.pack(">I", number) for number in numbers] + [struct.pack(">Q", rows)]
    return (*facts, _justified(table, name, 256), _justified(table, optimizer or "None", 32))


def write_variable(
    tables: Sequence[Table], folder: Path, rows: int | Mapping[str, int] | None = None
) -> list[str]:
    """Writes a checkpoint of ordinary variables, in which key k is row k.

    Args:
      tables: The tables.
      folder: The folder to make.
      rows: The rows of the variables, or of each by its name. Keys without a row get their initial row. None,
        and for tables that are not named: the number of keys of a table without hashing.

    Raises:
      CheckpointError: A key is not a row, or the number of rows is not known; a table or a variable is
        damaged, or nothing can be written.
    """
    folder.mkdir()
    bundle = new_bundle(tables, folder)
    for table in tables:
        _write_variable(table, _number_of_rows(table, rows), folder, bundle)
    finish(bundle, tables, folder)
    lines = [
        f"embedding variable '{table.name}': keys without a row read as zeros: {table.last.system} does not "
        "tell their initial rows"
        for table in tables
        if table.last.system
    ]
    return [*lines, *left_out("a variable", tables, [])]


def _slots(table: Table, among: Collection[str] | None = None) -> tuple[str, dict[str, str]]:
    """Returns TensorFlow's name of the optimizer with a table's slots, and its names of their columns.

    They are empty if there is none, or none of `among`.
    """
    optimizer = table.last.optimizer
    if optimizer is None:
        return "", {}
    known = reader.slots_of_rules().get(optimizer.name, {"optimizer": "", "slots": {}})
    name, slots = known["optimizer"], known["slots"]
    has_same = slots.keys() == {slot.name for slot in optimizer.slots}
    if not has_same or (among is not None and name not in among):
        return "", {}
    return name, {f"slot-{ours}": theirs for ours, theirs in slots.items()}


def _tensor_names(table: Table, name: str, optimizer: str = "") -> dict[str, str]:
    """Returns the names of TensorFlow's variables for the values and slots of a table, by column.

    Args:
      table: The table.
      name: The variable's name.
      optimizer: The optimizer's; by default TensorFlow's name of it.
    """
    known, slots = _slots(table)
    numbered = [_numbered(f"{name}/{optimizer or known}", number) for number in range(len(slots))]
    return {"values": name, **dict(zip(slots, numbered))}


def _numbered(name: str, number: int) -> str:
    """Returns the name that TensorFlow gives another variable of the same name."""
    return f"{name}_{number}" if number else name


def _write_deeprec_table(
    table: Table, shard: int, names: Mapping[str, str], folder: Path, bundle: Bundle
) -> None:
    """Writes one of DeepRec's tables, or a part of one, with its slots' tables: `names` by column."""
    counts = np.zeros([_REMAINDERS], np.int64)
    for block in row_blocks(table, (), shard):
        counts += np.bincount(block.keys % _REMAINDERS, minlength=_REMAINDERS)
    offsets = _offsets(table, counts)
    rows, present = int(offsets[-1]), columns_of(table)
    small = {"partition_offset": offsets, **_deeprec_waiting(table, shard)}
    arrays: dict[str, list[int]] = {}
    for column, of_column in names.items():
        tensors: list[tuple[str, str, type, tuple[int, ...]]] = [
            ("values", column, np.float32, (rows, table.dim)),
            ("keys", "key", _deeprec_keys(table), (rows,)),
        ]
        for suffix, count in _DEEPREC_COLUMNS.items():
            tensors.append((suffix, count, np.int64, (rows if count in present else 0,)))
        for suffix, one, dtype, shape in tensors:
            arrays.setdefault(one, []).append(bundle.new_array(f"{of_column}-{suffix}", dtype, shape))
        for suffix, numbers in small.items():
            bundle.add(f"{of_column}-{suffix}", numbers)
    columns = [column for column in arrays if column in present]
    pieces = _by_remainder(table, shard, columns, offsets)
    for _, _, places, found in in_order(folder, rows, pieces):
        for column, unordered in found.items():
            ordered = np.empty(unordered.shape, unordered.dtype)
            ordered[places] = unordered
            if ordered.ndim == 2:  # DeepRec has as many numbers as the row has where one would do
                ordered = np.repeat(ordered, table.dim // ordered.shape[1], axis=1)
            for array in arrays[column]:
                bundle.write(array, ordered)


def _by_remainder(
    table: Table, shard: int, columns: Sequence[str], offsets: np.ndarray
) -> Iterator[tuple[np.ndarray, dict[str, np.ndarray]]]:
    """Yields the places of keys in DeepRec's order, and their columns with the keys themselves."""
    next_places = offsets[:-1].astype(np.int64)
    for block in row_blocks(table, columns, shard):
        remainders = block.keys % _REMAINDERS
        order = np.argsort(remainders, kind="stable")
        counts = np.bincount(remainders, minlength=_REMAINDERS)
        before = np.cumsum(counts) - counts
        places = np.empty([len(order)], np.int64)
        places[order] = np.arange(len(order)) + (next_places - before)[remainders[order]]
        next_places += counts
        yield places, {"key": block.keys.astype(_deeprec_keys(table)), **block.columns}


def _deeprec_waiting(table: Table, shard: int | None) -> dict[str, np.ndarray]:
    """Returns DeepRec's tensors of the ids that wait for admission."""
    keys, counts, last_steps = waiting_ids(table, shard)
    order = np.argsort(keys % _REMAINDERS, kind="stable")
    of_remainders = np.bincount(keys % _REMAINDERS, minlength=_REMAINDERS)
    return {
        "keys_filtered": keys[order].astype(_deeprec_keys(table)),
        "freqs_filtered": counts[order],
        "versions_filtered": last_steps[order],
        "partition_filter_offset": _offsets(table, of_remainders),
    }


def _deeprec_keys(table: Table) -> type:
    return np.int32 if table.last.table["key_dtype"] == "int32" else np.int64


def _offsets(table: Table, counts: np.ndarray) -> np.ndarray:
    """Returns where the keys of each remainder begin, and where the last one's end."""
    offsets = np.concatenate([[0], np.cumsum(counts)])
    if offsets[-1] >= 2**31:
        raise CheckpointError(
            table.last.path, f"has {offsets[-1]:,} keys, and DeepRec's offsets in one part end at 2^31"
        )
    return offsets.astype(np.int32)


def _number_of_rows(table: Table, rows: int | Mapping[str, int] | None) -> int:
    given = rows.get(table.name) if isinstance(rows, Mapping) else rows
    if given is None and not table.last.table["hashed"]:
        return table.last.static_keys
    if given is None:
        raise CheckpointError(table.last.path, "needs the number of rows of its variable (--rows)")
    if not 0 <= given <= _MAX_ROWS:
        raise CheckpointError(table.last.path, f"{given} rows of its variable are not in [0, 2^40]")
    return given


def _write_variable(table: Table, rows: int, folder: Path, bundle: Bundle) -> None:
    """Writes the variable of a table, and its slots."""
    names = _tensor_names(table, table.name)
    arrays = {column: bundle.new_array(name, np.float32, (rows, table.dim)) for column, name in names.items()}
    for block in _in_order_of_keys(table, list(names), rows, folder):
        for column, array in arrays.items():
            bundle.write(array, block.columns[column])


def _in_order_of_keys(table: Table, columns: Sequence[str], rows: int, folder: Path) -> Iterator[RowBlock]:
    """Yields the rows of the keys 0, 1, … below `rows`: new rows for keys that have none.

    Raises:
      CheckpointError: Another key has a row, or a row is damaged.
    """
    optimizer = table.last.optimizer
    fills = {f"slot-{slot.name}": slot.fill for slot in (optimizer.slots if optimizer else ())}
    for begin, end, places, found in in_order(folder, rows, _by_key(table, rows, columns)):
        keys = np.arange(begin, end)
        ordered = {
            column: np.full([len(keys), table.dim], fills[column], np.float32)
            if column in fills
            else table.initial_rows(keys)
            for column in columns
        }
        for column, some in found.items():
            ordered[column][places] = some
        yield RowBlock(keys, ordered)


def _by_key(
    table: Table, rows: int, columns: Sequence[str]
) -> Iterator[tuple[np.ndarray, dict[str, np.ndarray]]]:
    """Yields keys, which are the places of rows, and their columns."""
    for block in row_blocks(table, columns):
        outside = block.keys[(block.keys < 0) | (block.keys >= rows)]
        if len(outside):
            raise CheckpointError(
                table.last.path, f"has a row of key {outside[0]}, and a variable of {rows:,} rows has none"
            )
        yield block.keys, block.columns


def _opened(prefix: str) -> SavedCheckpoint:
    saved = reader.open_saved(prefix)
    if saved is None:
        raise CheckpointError(prefix, "is not there any more")
    return saved


def new_bundle(tables: Sequence[Table], folder: Path) -> Bundle:
    """Returns a checkpoint in the folder, with the name of the tables' checkpoint."""
    return Bundle(folder / _name_in(tables))


def _name_in(tables: Sequence[Table]) -> str:
    """Returns the name of the new checkpoint in its folder."""
    others = _checkpoint_of_others(tables)
    return Path(others.prefix).name if others else "model.ckpt"


def _checkpoint_of_others(tables: Sequence[Table]) -> SavedCheckpoint | None:
    """Opens the checkpoint with the ordinary variables: for a folder of SOK 2.x its latest one, if any."""
    prefix = tables[0].last.prefix
    if tables[0].last.system == _SOK2:
        prefix = tf.train.latest_checkpoint(os.path.dirname(prefix)) or ""
    return _opened(prefix) if prefix else None


def finish(bundle: Bundle, tables: Sequence[Table], folder: Path) -> None:
    """Adds the ordinary variables of the tables' checkpoint, and names the new one in its folder's list."""
    saved = _checkpoint_of_others(tables)
    if saved is not None:
        bundle.copy_others(saved, [table.name for table in tables])
    for name, power in _beta_powers(tables).items():
        if saved is None or not saved.has_tensor(name):
            bundle.add(name, power)
    bundle.finish()
    state = tf.compat.v1.train.generate_checkpoint_state_proto(str(folder), _name_in(tables))
    (folder / "checkpoint").write_text(str(state))


def _beta_powers(tables: Iterable[Table]) -> dict[str, np.ndarray]:
    """Returns what TensorFlow's Adam has beside its slots, for optimizers that keep it elsewhere."""
    trained = [table.last.optimizer for table in tables if _slots(table)[0] == _ADAM]
    last = max(filter(None, trained), key=lambda optimizer: optimizer.steps, default=None)
    if last is None:
        return {}
    return {
        f"{beta}_power": np.array(last.hyper[beta] ** (last.steps + 1), np.float32)
        for beta in ("beta1", "beta2")
    }


def powers_of_async(prefix: str, table: str) -> dict[str, tuple[str, np.ndarray]]:
    """Finds the powers of the betas that DeepRec's AdamAsync has beside the slots of a table.

    Returns:
      By the names of this library's variables: a tensor of the checkpoint, and the power, a scalar. Empty if
      DeepRec's AdamAsync has not trained the table.
    """
    saved = tf.train.load_checkpoint(prefix)
    powers = {}
    for number, beta in enumerate(("beta1", "beta2"), start=2):
        parts = itertools.takewhile(
            lambda part: saved.has_tensor(f"{part}-keys") or saved.has_tensor(f"{part}-sparse_incr_keys"),
            (f"{table}/part_{part}" for part in itertools.count()),
        )
        names = [_numbered(f"{part}/{_ADAM_ASYNC}", number) for part in (table, *parts)]
        # Each part has its own: that of the part with most steps.
        found = [(saved.get_tensor(name).reshape([]), name) for name in names if saved.has_tensor(name)]
        if found:
            power, name = min(found)
            powers[power_of_async(table, beta)] = name, power
    return powers


def power_of_async(table: str, beta: str) -> str:
    """Returns the name of the variable that this library's AdamAsync has for a table."""
    return f"{_ADAM_ASYNC}/{table}/{beta}_power"


def left_out(
    form: str, tables: Iterable[Table], taken: Sequence[str], optimizers: Collection[str] | None = None
) -> list[str]:
    """Returns a line for each table with arrays that the form has no place for; `taken` are those it has."""
    lines = []
    for table in tables:
        saved = table.last.shards[0].arrays
        has_place = ["values", *_slots(table, optimizers)[1], *taken]
        arrays = [*columns_of(table), *(name for name in (WAITING[0], BLOOM[0]) if name in saved)]
        left = [name for name in arrays if name not in has_place]
        if left:
            lines.append(f"embedding variable '{table.name}': {form} has no place for {', '.join(left)}")
        if table.last.left_out:
            names = ", ".join(repr(name) for name in table.last.left_out)
            lines.append(f"embedding variable '{table.name}': nothing is made of {names}")
    return lines


def _justified(table: Table, text: str, size: int) -> bytes:
    encoded = text.encode()
    if len(encoded) > size:
        raise CheckpointError(
            table.last.path, f"'{text}' has {len(encoded)} bytes, and SOK's files have room for {size}"
        )
    return encoded.rjust(size)
