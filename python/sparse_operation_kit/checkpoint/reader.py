"""Reads, writes and removes checkpoints through the C++ library (`cc/checkpoint/c_api.h`).

A checkpoint is one of TensorFlow's, with tables among its tensors; docs/checkpoint-format.md describes it.
Nothing here builds graphs or starts sessions, and no damaged file can end the process.
"""

from __future__ import annotations

import ctypes
import functools
import json
import os
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sparse_operation_kit import native
from sparse_operation_kit.checkpoint.errors import CheckpointError, UnansweredError, check_path


@dataclass(frozen=True)
class Facts:
    """Facts about a checkpoint with tables.

    Attributes:
      id: The save's 16 hex digits.
      parts: The number of ranks that wrote it.
      chains: The prefixes of the checkpoints that its tables build on, relative to its directory.
      counted_by: The kind of Saver whose `max_to_keep` counts it, "full" or "incremental", or None.
    """

    id: str
    parts: int
    chains: tuple[str, ...]
    counted_by: str | None


class SavedCheckpoint:
    """A checkpoint that is open. `open_checkpoint` returns one.

    Attributes:
      prefix: Its prefix.
      tables: The names of its tables, in order.
      facts: The facts about it, None if it has no tables.
      foreign: The names of the tables that other systems wrote, in order.
      variables: The names of ordinary variables that can be read as tables, in order.
    """

    def __init__(self, prefix: str, handle: ctypes.c_void_p) -> None:
        """Takes over the handle of `sok_checkpoint_open`."""
        self._handle = handle
        self.prefix = prefix
        description = json.loads(_text_of(prefix, "sok_checkpoint_describe", handle))
        facts = description["facts"]
        self.tables: list[str] = description["tables"]
        self.facts = (
            Facts(facts["id"], facts["parts"], tuple(facts["chains"]), facts["counted_by"]) if facts else None
        )

        foreign = {one["name"]: one["system"] != "tf.Variable" for one in description["foreign"]}
        self.foreign = [name for name, is_table in foreign.items() if is_table]
        self.variables = [name for name, is_table in foreign.items() if not is_table]

    def __del__(self) -> None:
        _library().sok_checkpoint_close(self._handle)

    def has_table(self, name: str) -> bool:
        """Returns whether there is such a table, of this library, of another system, or as a variable.

        Raises:
          CheckpointError: An entry of it is damaged, or the table is there in two forms.
        """
        has = ctypes.c_int()
        _call(self.prefix, "sok_checkpoint_has", self._handle, name.encode(), ctypes.byref(has))
        return bool(has.value)

    def open_table(self, name: str, trained_by: str | None = None) -> SavedTable:
        """Opens a table and those that it builds on.

        Args:
          name: The table's name.
          trained_by: Of another system's table: the optimizer whose slots it gets, as
            `EmbeddingVariable.trained_by`. "": the one that their names tell. None: they stay what they are.

        Raises:
          CheckpointError: There is no such table, or an entry of it or of its chain is damaged or missing.
        """
        handle = ctypes.c_void_p()
        told = None if trained_by is None else trained_by.encode()
        _call(self.prefix, "sok_table_open", self._handle, name.encode(), told, ctypes.byref(handle))
        return SavedTable(self.prefix, handle)

    def has_tensor(self, name: str) -> bool:
        """Returns whether it has a tensor of this name."""
        return bool(_library().sok_checkpoint_has_tensor(self._handle, name.encode()))


class SavedTable:
    """A table that is open, and those that it builds on. `SavedCheckpoint.open_table` returns one.

    Attributes:
      links: The entries of the chain, the full one first; see `sok_table_describe`.
    """

    def __init__(self, prefix: str, handle: ctypes.c_void_p) -> None:
        """Takes over the handle of `sok_table_open`."""
        self._prefix, self._handle = prefix, handle
        self.links: list[dict[str, Any]] = json.loads(_text_of(prefix, "sok_table_describe", handle))

    def __del__(self) -> None:
        _library().sok_table_close(self._handle)

    def read(self, link: int, shard: int, array: str, first: int, out: np.ndarray) -> None:
        """Fills `out` with the bytes of an array from `first` on, after verifying them.

        Raises:
          CheckpointError: The bytes are damaged, or cannot be read.
        """
        place = (link, shard, array.encode(), first)
        _call(self._prefix, "sok_array_read", self._handle, *place, out.nbytes, out.ctypes.data)

    def owners(self, keys: np.ndarray) -> np.ndarray:
        """Returns the shard of each of the int64 `keys`, as int64; for replicas the first shard."""
        keys = np.ascontiguousarray(keys, np.int64)
        shards = np.empty(keys.shape, np.int64)
        _library().sok_table_owners(self._handle, keys.ctypes.data, keys.size, shards.ctypes.data)
        return shards

    def initial_rows(self, keys: np.ndarray, dim: int) -> np.ndarray:
        """Returns the rows with which int64 `keys` begin, float32 [n, dim]; not for given initial rows."""
        keys = np.ascontiguousarray(keys, np.int64)
        rows = np.empty([keys.size, dim], np.float32)
        _library().sok_table_initial_rows(self._handle, keys.ctypes.data, keys.size, rows.ctypes.data)
        return rows


class Bundle:
    """A checkpoint of TensorFlow, in one data file, that is being written. Not thread-safe."""

    def __init__(self, prefix: str | os.PathLike) -> None:
        """Creates its data file. Raises CheckpointError, as all methods do if something cannot be written."""
        self._prefix = os.fspath(prefix)
        self._handle = ctypes.c_void_p()
        self._id: bytes | None = None  # of the save, if it has tables of this library
        _call(self._prefix, "sok_bundle_create", os.fsencode(prefix), ctypes.byref(self._handle))

    def __del__(self) -> None:
        _library().sok_bundle_close(self._handle)

    def add(self, name: str, array: np.ndarray) -> None:
        """Adds a small tensor: of this name, with these numbers."""
        array = np.ascontiguousarray(array)
        described = _tensor(name, array.dtype, array.shape)
        _call(self._prefix, "sok_bundle_add", self._handle, *described, array.ctypes.data, array.nbytes)

    def new_array(self, name: str, dtype: type, shape: tuple[int, ...]) -> int:
        """Begins a large tensor of one or two dimensions; returns its number, for `write`."""
        number = ctypes.c_int()
        described = _tensor(name, np.dtype(dtype), shape)
        _call(self._prefix, "sok_bundle_new_array", self._handle, *described, ctypes.byref(number))
        return number.value

    def write(self, array: int, rows: np.ndarray) -> None:
        """Writes the next rows of a tensor, of its dtype."""
        rows = np.ascontiguousarray(rows)
        _call(self._prefix, "sok_bundle_write", self._handle, array, rows.ctypes.data, rows.nbytes)

    def add_table(self, table: SavedTable, rows: int, filter_freq: int) -> None:
        """Makes arrays that are complete, NAME#0/keys and so on, a table of this library: see
        `sok_bundle_add_table`.
        """
        self._id = secrets.token_hex(8).encode()
        _call(self._prefix, "sok_bundle_add_table", self._handle, table._handle, rows, filter_freq)

    def copy_others(self, checkpoint: SavedCheckpoint, variables: Sequence[str]) -> None:
        """Copies all tensors of a checkpoint that are not of tables; `variables` were read as tables."""
        names = (ctypes.c_char_p * len(variables))(*[name.encode() for name in variables])
        source = checkpoint._handle
        _call(checkpoint.prefix, "sok_bundle_copy", self._handle, source, names, len(variables))

    def finish(self) -> None:
        """Makes it a checkpoint. All arrays must be complete."""
        _call(self._prefix, "sok_bundle_finish", self._handle, self._id)


def _tensor(name: str, dtype: np.dtype, shape: tuple[int, ...]) -> tuple:
    """Returns what functions of the library take to describe a tensor."""
    return name.encode(), dtype.str.encode(), (ctypes.c_int64 * len(shape))(*shape), len(shape)


def open_saved(prefix: str | os.PathLike) -> SavedCheckpoint | None:
    """Opens a checkpoint; returns None if there is none.

    Raises:
      CheckpointError: The checkpoint is damaged; UnansweredError: it cannot be read.
    """
    path = os.fspath(check_path(prefix))
    handle = ctypes.c_void_p()
    _call(path, "sok_checkpoint_open", os.fsencode(path), 0, ctypes.byref(handle))
    return SavedCheckpoint(path, handle) if handle.value else None


def remove_leftovers(prefix: str) -> None:
    """Removes what saves and removals have left at a prefix, whose lock the caller holds.

    Nothing is removed that a checkpoint has, or while it cannot be known.

    Raises:
      CheckpointError: Something cannot be read or removed.
    """
    _call(prefix, "sok_remove_leftovers", os.fsencode(prefix))


def remove_checkpoint(prefix: str, *, needed: bool) -> None:
    """Removes a checkpoint, whose lock the caller holds.

    Args:
      prefix: The prefix.
      needed: Whether others build on it. Then its tables stay, for those others only.

    Raises:
      CheckpointError: Something cannot be read or removed.
    """
    _call(prefix, "sok_remove_checkpoint", os.fsencode(prefix), int(needed))


def remove_retired(prefix: str) -> None:
    """Removes what a prefix had before TensorFlow removed or replaced it. The caller holds its lock.

    Raises:
      CheckpointError: Something cannot be read or removed.
    """
    _call(prefix, "sok_remove_retired", os.fsencode(prefix))


def keep_checkpoint(prefix: str) -> None:
    """Makes no `max_to_keep` count a checkpoint, whose lock the caller holds. Raises CheckpointError."""
    _call(prefix, "sok_keep_checkpoint", os.fsencode(prefix))


@functools.lru_cache(maxsize=None)
def slots_of_rules() -> dict[str, dict[str, Any]]:
    """Returns TensorFlow's names of the slots of rules: see `sok_slots_of_rules`."""
    return json.loads(_text_of("", "sok_slots_of_rules"))


@functools.lru_cache(maxsize=None)
def _library() -> ctypes.CDLL:
    library = ctypes.CDLL(native.library_path())
    text, handle, out = ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p
    arguments = {
        "sok_checkpoint_open": [text, ctypes.c_int, out],
        "sok_checkpoint_describe": [handle, out],
        "sok_checkpoint_has": [handle, text, out],
        "sok_table_open": [handle, text, text, out],
        "sok_table_describe": [handle, out],
        "sok_array_read": [
            handle,
            ctypes.c_int,
            ctypes.c_int,
            text,
            ctypes.c_int64,
            ctypes.c_int64,
            out,
        ],
        "sok_remove_leftovers": [text],
        "sok_remove_retired": [text],
        "sok_remove_checkpoint": [text, ctypes.c_int],
        "sok_keep_checkpoint": [text],
        "sok_bundle_create": [text, out],
        "sok_bundle_add": [handle, text, text, out, ctypes.c_int, out, ctypes.c_int64],
        "sok_bundle_new_array": [handle, text, text, out, ctypes.c_int, out],
        "sok_bundle_write": [handle, ctypes.c_int, out, ctypes.c_int64],
        "sok_bundle_add_table": [handle, handle, ctypes.c_int64, ctypes.c_int64],
        "sok_bundle_copy": [handle, handle, out, ctypes.c_int],
        "sok_bundle_finish": [handle, text],
        "sok_slots_of_rules": [out],
    }
    for name, types in arguments.items():
        function = getattr(library, name)
        function.argtypes, function.restype = types, ctypes.c_void_p
    library.sok_checkpoint_has_tensor.argtypes = [handle, text]
    library.sok_checkpoint_has_tensor.restype = ctypes.c_int
    for name in ("sok_table_owners", "sok_table_initial_rows"):
        getattr(library, name).argtypes = [handle, out, ctypes.c_int64, out]
        getattr(library, name).restype = None
    for name in ("sok_free", "sok_checkpoint_close", "sok_table_close", "sok_bundle_close"):
        getattr(library, name).argtypes = [ctypes.c_void_p]
        getattr(library, name).restype = None
    return library


def _text_of(prefix: str, function: str, *arguments: Any) -> bytes:
    """Returns the text that a function of the library gives."""
    text = ctypes.c_void_p()
    _call(prefix, function, *arguments, ctypes.byref(text))
    return _taken(text.value)


def _taken(text: int | None) -> bytes:
    """Returns a text of the library, and frees it there."""
    copied = ctypes.string_at(text or 0)
    _library().sok_free(text)
    return copied


def _call(path: str, function: str, *arguments: Any) -> None:
    """Calls a function of the library. Raises CheckpointError, or UnansweredError, for its error."""
    error = getattr(_library(), function)(*arguments)
    if error:
        text = os.fsdecode(_taken(error))
        raise (UnansweredError if text[0] == "?" else CheckpointError)(path, text[1:])
