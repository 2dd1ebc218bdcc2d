"""Writes checkpoints as other systems write them, in the simplest way: whole tables in memory.

The functions named after systems give tensors by name, which `save` writes with TensorFlow's own op. SOK 2.x
has files of its own, which `sok2` writes.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import tensorflow as tf

# DeepRec orders keys by their remainder of this.
REMAINDERS = 1000
# Checkpoints that the systems themselves wrote; None where the folder is not.
REAL = next(
    (
        parent / "shared" / "data" / "foreign"
        for parent in Path(__file__).resolve().parents
        if (parent / "shared" / "data" / "foreign").is_dir()
    ),
    None,
)


@dataclass
class Rows:
    """A table: n keys and their rows.

    Attributes:
      keys: int64 or int32 [n].
      values: [n, dim].
      slots: The optimizer's, by the name that the system gives them: [n, width].
      freqs, versions: int64 [n], or empty.
      filtered: The keys that wait for admission, their freqs and their versions; None if they were not saved.
    """

    keys: np.ndarray
    values: np.ndarray
    slots: Mapping[str, np.ndarray] = field(default_factory=dict)
    freqs: np.ndarray = field(default_factory=lambda: np.zeros([0], np.int64))
    versions: np.ndarray = field(default_factory=lambda: np.zeros([0], np.int64))
    filtered: tuple[np.ndarray, np.ndarray, np.ndarray] | None = None

    def tables(self, name: str) -> list[tuple[str, np.ndarray]]:
        """The table and its slots, which most systems save as tables too, by name."""
        return [(name, self.values), *((f"{name}/{slot}", values) for slot, values in self.slots.items())]


def random_rows(
    keys: np.ndarray, waiting: np.ndarray, dim: int, slots: Sequence[str] = ("Adam", "Adam_1"), seed: int = 3
) -> Rows:
    """Rows with slots; with frequencies of at least 3, lower ones of keys that wait, and steps before 50."""
    rng = np.random.default_rng(seed)
    values, *of_slots = (rng.random([len(keys), dim], np.float32) for _ in range(len(slots) + 1))
    counts = rng.integers(3, 9, len(keys)), rng.integers(0, 50, len(keys))
    filtered = waiting, rng.integers(1, 3, len(waiting)), rng.integers(0, 50, len(waiting))
    return Rows(keys, values, dict(zip(slots, of_slots)), *counts, filtered)


def adam_powers(steps: int) -> dict[str, np.float32]:
    """What TensorFlow's Adam saves after so many steps."""
    return {f"beta{i}_power": np.float32(beta ** (steps + 1)) for i, beta in ((1, 0.9), (2, 0.999))}


def save(prefix: Path, tensors: Mapping[str, np.ndarray | list[np.ndarray]]) -> None:
    """Writes a checkpoint, and names it in its folder's list. A list of arrays is a variable in slices."""
    prefix.parent.mkdir(parents=True, exist_ok=True)
    names, places, values = [], [], []
    for name, tensor in tensors.items():
        slices = tensor if isinstance(tensor, list) else [tensor]
        names += [name] * len(slices)
        places += _places(tensor) if isinstance(tensor, list) else [""]
        values += slices
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        constants = [tf.constant(value) for value in values]
        session.run(
            tf.raw_ops.SaveV2(
                prefix=str(prefix), tensor_names=names, shape_and_slices=places, tensors=constants
            )
        )
    tf.compat.v1.train.update_checkpoint_state(str(prefix.parent), str(prefix))


def deeprec(name: str, rows: Rows, parts: int | None = None) -> dict[str, np.ndarray]:
    """DeepRec's table, with its slots' tables: in one piece, `name`, or in parts, `name/part_0` and so on."""
    tensors = {}
    for prefix, chosen, waiting in _parts(name, rows, parts):
        for table, values in rows.tables(prefix):
            tensors[f"{table}-keys"] = rows.keys[chosen]
            tensors[f"{table}-values"] = values[chosen]
            tensors[f"{table}-freqs"] = _at(chosen, rows.freqs)
            tensors[f"{table}-versions"] = _at(chosen, rows.versions)
            tensors[f"{table}-partition_offset"] = _offsets(rows.keys[chosen])
            if rows.filtered is not None:
                keys, freqs, versions = rows.filtered
                tensors[f"{table}-keys_filtered"] = keys[waiting]
                tensors[f"{table}-freqs_filtered"] = _at(waiting, freqs)
                tensors[f"{table}-versions_filtered"] = _at(waiting, versions)
                tensors[f"{table}-partition_filter_offset"] = _offsets(keys[waiting])
    return tensors


def deeprec_increment(name: str, rows: Rows, parts: int | None = None) -> dict[str, np.ndarray]:
    """The rows of a table that changed since the full checkpoint, as DeepRec's IncrementalSaver has them."""
    tensors = {}
    for prefix, chosen, _ in _parts(name, rows, parts):
        for table, values in rows.tables(prefix):
            tensors[f"{table}-sparse_incr_keys"] = rows.keys[chosen]
            tensors[f"{table}-sparse_incr_values"] = values[chosen]
            tensors[f"{table}-sparse_incr_versions"] = _at(chosen, rows.versions)
            tensors[f"{table}-sparse_incr_freqs"] = _at(chosen, rows.freqs)
            tensors[f"{table}-incr_partition_offset"] = _offsets(rows.keys[chosen])
    return tensors


def tfra(name: str, rows: Rows, shards: int) -> dict[str, np.ndarray]:
    """The table of recommenders-addons. Adam's slots are called "Adam/m" and "Adam/v"."""
    tensors = {}
    for number in range(shards):
        mine = rows.keys % shards == number
        for table, values in rows.tables(name):
            shard = f"{table.rpartition('/')[2]}/{table.replace('/', '_')}_mht_{number + 1}of{shards}"
            tensors[f"{shard}-keys"] = rows.keys[mine]
            tensors[f"{shard}-values"] = values[mine]
    return tensors


def variable(name: str, values: np.ndarray, **slots: np.ndarray) -> dict[str, np.ndarray]:
    """TensorFlow's variable [rows, dim], and its slots. Adam's are called Adam and Adam_1."""
    return {name: values, **{f"{name}/{slot}": of_slot for slot, of_slot in slots.items()}}


def in_slices(tensors: Mapping[str, np.ndarray], parts: int) -> dict[str, list[np.ndarray]]:
    """The same variables, partitioned as `tf.fixed_size_partitioner(parts)` does."""
    return {name: np.array_split(values, parts) for name, values in tensors.items()}


# SOK 2.x's numbers of types, and of the kinds of its files.
_TYPES = {"int32": 0, "int64": 1, "uint32": 2, "uint64": 3, "float16": 4, "float32": 5, "float64": 6}
_KEYS, _VALUES, _SLOT = range(3)


def sok2(folder: Path, tables: Mapping[str, Rows], optimizer: str = "None") -> None:
    """What `sok.dump(folder, tables, optimizer)` of SOK 2.x writes.

    The variable `DynamicVariable(name="items")` is called items:0, and its files are items_0-key and so on.
    """
    folder.mkdir(parents=True, exist_ok=True)
    names = {name: "".join(one if one.isalnum() else "_" for one in name) for name in tables}
    for name, rows in tables.items():
        files = {"key": (_KEYS, "", rows.keys), "weight": (_VALUES, "", rows.values)}
        files.update({f"{optimizer}-{slot}": (_SLOT, slot, of_slot) for slot, of_slot in rows.slots.items()})
        for file, (kind, slot, array) in files.items():
            head = _justified(names[name], 256) + struct.pack(">I", kind) + _justified(slot, 32)
            head += struct.pack(">I", _TYPES[array.dtype.name])
            (folder / f"{names[name]}-{file}").write_bytes(head + array.tobytes())
    meta = struct.pack(">I", len(tables))
    # Each fact of all tables, and then the next one.
    meta += b"".join(struct.pack(">I", _TYPES[rows.keys.dtype.name]) for rows in tables.values())
    meta += b"".join(struct.pack(">I", _TYPES[rows.values.dtype.name]) for rows in tables.values())
    meta += b"".join(struct.pack(">I", rows.values.shape[1]) for rows in tables.values())
    meta += b"".join(struct.pack(">Q", len(rows.keys)) for rows in tables.values())
    meta += b"".join(_justified(names[name], 256) for name in tables)
    meta += _justified(optimizer, 32) * len(tables)
    (folder / "meta_info").write_bytes(meta)


def _places(slices: list[np.ndarray]) -> list[str]:
    """The shape of the whole and the place in it, for each slice of a variable."""
    rows, others = sum(map(len, slices)), slices[0].shape[1:]
    places, first = [], 0
    for part in slices:
        spans = [f"{first},{len(part)}", *(f"0,{size}" for size in others)]
        places.append(f"{' '.join(map(str, [rows, *others]))} {':'.join(spans)}")
        first += len(part)
    return places


def _parts(name: str, rows: Rows, parts: int | None) -> list[tuple[str, np.ndarray, np.ndarray]]:
    """The names of DeepRec's parts, and the places of their keys and of those that wait, in its order."""
    waiting = rows.keys[:0] if rows.filtered is None else rows.filtered[0]
    if parts is None:
        return [(name, _order(rows.keys), _order(waiting))]
    return [
        (f"{name}/part_{number}", _order(rows.keys, number, parts), _order(waiting, number, parts))
        for number in range(parts)
    ]


def _order(keys: np.ndarray, number: int = 0, parts: int = 1) -> np.ndarray:
    order = np.argsort(keys % REMAINDERS, kind="stable")
    return order[keys[order] % REMAINDERS % parts == number]


def _at(places: np.ndarray, array: np.ndarray) -> np.ndarray:
    """The numbers at some places, of an array that may be empty."""
    return array[places] if len(array) else array


def _offsets(keys: np.ndarray) -> np.ndarray:
    """Where the keys of each remainder begin, and the end: int32 [1001]."""
    counts = np.bincount(keys % REMAINDERS, minlength=REMAINDERS)
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)


def _justified(text: str, size: int) -> bytes:
    return text.encode().rjust(size)
