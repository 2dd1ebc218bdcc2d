"""Writes checkpoints in the format of docs/checkpoint-format.md in the simplest way: whole tables in memory.

`History` is a table of Python dicts that changes at random and is saved in full or as a delta, so that tests
know the state of each checkpoint in a chain.
"""

from __future__ import annotations

import copy
import json
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

# Bytes of an array that share a checksum.
BLOCK_BYTES = 1 << 20
KEYS = np.array([0, -1, 1, 2**31, 2**32, 2**63 - 1, -(2**63), -(2**31), 7, 2**40 + 3], np.int64)


def table_description(**changes: Any) -> dict[str, Any]:
    """What an entry says of a table."""
    return {
        "name": "items",
        "dim": 4,
        "key_dtype": "int64",
        "hashed": True,
        "capacity": 0,
        "on_full": "error",
        "initializer": {"kind": "uniform", "a": -0.05, "b": 0.05, "seed": "17"},
        "admission": None,
        "eviction": None,
        **changes,
    }


def optimizer_description(steps: int, slots: Sequence[tuple[str, int]], **changes: Any) -> dict[str, Any]:
    """What an entry says of an optimizer."""
    return {
        "name": "lazy_adam",
        "steps": steps,
        "hyper": {"alpha": 0.001, "beta1": 0.9, "beta2": 0.999, "epsilon": 1e-8},
        "slots": [{"name": name, "width": width, "fill": 0.0} for name, width in slots],
        "history": None,
        **changes,
    }


def text(document: dict[str, Any]) -> str:
    """JSON as entries have it."""
    return json.dumps(document, separators=(",", ":"))


def table_tensors(
    shards: Sequence[dict[str, np.ndarray]], table_rows: Sequence[int] | None = None, **fields: Any
) -> dict[str, str | np.ndarray]:
    """The tensors of a table: arrays by shard, fields of its own entry."""
    document = {
        "format": "sparse-operation-kit table",
        "version": 1,
        "kind": "full",
        "table": table_description(),
        "steps": 0,
        "uses": 0,
        "optimizer": None,
        "chain": [],
        "block_bytes": BLOCK_BYTES,
        "shards": len(shards),
        **fields,
    }
    name = document["table"]["name"]
    tensors: dict[str, str | np.ndarray] = {name: text(document)}
    for number, arrays in enumerate(shards):
        rows = len(arrays["keys"])
        shard = {
            "rows": rows,
            "table_rows": rows if table_rows is None else table_rows[number],
            "steps": document["steps"],
            "arrays": {array: _described(value) for array, value in arrays.items()},
        }
        tensors[f"{name}#{number}"] = text(shard)
        tensors.update({f"{name}#{number}/{array}": value for array, value in arrays.items()})
    return tensors


def _described(array: np.ndarray) -> dict[str, Any]:
    data = array.tobytes()
    blocks = [data[begin : begin + BLOCK_BYTES] for begin in range(0, len(data), BLOCK_BYTES)]
    checksums = [crc32c(block) for block in blocks]
    return {"dtype": array.dtype.str, "shape": list(array.shape), "crc32c": checksums}


def facts(identity: str, parts: int, chains: Sequence[str] = ()) -> dict[str, str]:
    """The entry with facts about a checkpoint."""
    document = {
        "format": "sparse-operation-kit checkpoint",
        "version": 1,
        "id": identity,
        "parts": parts,
        "chains": list(chains),
    }
    return {"#sok": text(document)}


def write(prefix: Path, tensors: Mapping[str, str | np.ndarray], alignment: int = 4096) -> None:
    """Writes a checkpoint. The arrays of each rank's shards are in a data file of their own."""
    write_files(prefix, tensors, _rank_of, alignment)


def _rank_of(tensor: str) -> int:
    rank = tensor.rpartition("#")[2].partition("/")[0]
    return int(rank) if rank.isdigit() else 0


def shard(keys: Sequence[int], **arrays: np.ndarray) -> dict[str, np.ndarray]:
    """The arrays of a shard whose rows are zeros."""
    return {"keys": np.array(keys, "<i8"), "values": np.zeros([len(keys), 4], "<f4"), **arrays}


def write_table(prefix: Path, shards: Sequence[dict[str, np.ndarray]], **fields: Any) -> None:
    """Writes a checkpoint of one table: see `table_tensors`."""
    write(prefix, {**facts("0123456789abcdef", len(shards)), **table_tensors(shards, **fields)})


def changed(
    tensors: Mapping[str, str | np.ndarray], entry: str, **changes: Any
) -> dict[str, str | np.ndarray]:
    """Tensors whose JSON text `entry` has other members: `table__dim=5`; `...` removes one."""
    document = json.loads(tensors[entry])
    for path, value in changes.items():
        holder = document
        *parents, last = path.split("__")
        for name in parents:
            holder = holder[int(name) if name.isdigit() else name]
        if value is ...:
            del holder[last]
        else:
            holder[last] = value
    return {**tensors, entry: text(document)}


def by_owner(keys: Sequence[int], shards: int, placement: str = "by_key") -> list[list[int]]:
    """The keys of each shard, in the given order."""
    return [[key for key in keys if owner_of(key, shards, placement) == number] for number in range(shards)]


def owner_of(key: int, shards: int, placement: str) -> int:
    """The shard of a key, by docs/checkpoint-format.md."""
    kind, _, numbers = placement.partition(":")
    if kind == "ranges":
        boundaries = [int(number) for number in numbers.split(",")]
        inside = [s for s in range(shards) if boundaries[s] <= key % 2**64 < boundaries[s + 1]]
        return inside[0] if inside else shards - 1
    return {"by_key": key % 2**64 % shards, "all_ranks": 0, "one_rank": int(numbers or 0)}[kind]


@dataclass
class Saved:
    """A checkpoint of a History, and its state."""

    prefix: Path
    id: str
    tensors: dict[str, str | np.ndarray]
    rows: dict[int, dict[str, np.ndarray]]
    waiting: dict[int, tuple[int, int]]
    bloom: list[np.ndarray]


@dataclass
class History:
    """A table that changes at random.

    `rows` maps a key to its arrays: "values", "slot-…", "frequency" and so on.
    """

    directory: Path
    rng: np.random.Generator
    table: dict[str, Any] = field(default_factory=table_description)
    slots: tuple[tuple[str, int], ...] = (("m", 4), ("v", 4))
    shards: int = 2
    steps: int = 0
    rows: dict[int, dict[str, np.ndarray]] = field(default_factory=dict)
    waiting: dict[int, tuple[int, int]] = field(default_factory=dict)
    saved: list[Saved] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Starts with an empty table without unsaved changes."""
        self._forget_changes()
        filter_ = (
            self.table["admission"] if self._admission == "bloom" else {"counters": 0, "counter_bits": 8}
        )
        dtype = f"u{filter_['counter_bits'] // 8}"
        self.bloom = [np.zeros([filter_["counters"]], dtype) for _ in range(self.shards)]

    def _forget_changes(self) -> None:
        self.changed: set[int] = set()
        self.deleted: set[int] = set()
        self.waiting_changed: set[int] = set()
        self.waiting_deleted: set[int] = set()

    def train(self, keys: int = 40) -> None:
        """Sets random rows, deletes some, and makes some ids wait for admission."""
        self.steps += 1
        for key in self._random_keys(keys):
            self._set(key)
        for key in self._random_keys(keys // 4):
            self._delete(key)
        if self._admission == "counter":
            for key in self._random_keys(keys // 4):
                if key not in self.rows:
                    self.waiting[key] = (
                        int(self.rng.integers(1, self.table["admission"]["filter_freq"])),
                        self.steps,
                    )
                    self.waiting_changed.add(key)
                    self.waiting_deleted.discard(key)
        for counters in self.bloom:
            counters[:] = self.rng.integers(0, 200, counters.shape)

    def save(self, name: str, delta: bool = False, lagging: bool = False, alignment: int = 4096) -> Saved:
        """Writes the table, or the changes since the last save. `lagging`: a delta like exact Adam's."""
        (saved,) = save_all([self], name, delta, lagging, alignment)
        return saved

    def save_steps(self, steps: int, keys: int = 40, fulls: Sequence[int] = (0,)) -> Saved:
        """Trains and saves as often, as deltas but for some numbers; returns the last one."""
        return save_steps([self], steps, keys, fulls)[0]

    def tensors(self, delta: bool, lagging: bool) -> tuple[dict[str, str | np.ndarray], list[str]]:
        """The table's tensors, and the names of the checkpoints that they build on."""
        chosen = [key for key in self.rows if not delta or key in self.changed]
        shards = [self._arrays(keys, delta, number) for number, keys in enumerate(self._by_owner(chosen))]
        optimizer = optimizer_description(self.steps, self.slots) if self.slots else None
        fulls = [number for number, one in enumerate(self.saved) if self._own(one)["kind"] == "full"]
        chain = self.saved[fulls[-1] :] if delta else []
        if lagging:
            first_step = self._own(chain[0])["steps"]
            history = {"beta1": 0.9, "beta2": 0.999, "epsilon": 1e-8, "first_step": first_step}
            optimizer.update(history=history)
            for arrays in shards:
                arrays["adam_step"] = np.full([len(arrays["keys"])], self.steps, "<u4")
            shards[0]["alphas"] = np.full([self.steps - first_step], 0.001, "<f4")
        tensors = table_tensors(
            shards,
            [len(keys) for keys in self._by_owner(list(self.rows))],
            kind="delta" if delta else "full",
            table=self.table,
            steps=self.steps,
            uses=self.steps,
            optimizer=optimizer,
            chain=[{"prefix": one.prefix.name, "id": one.id} for one in chain],
        )
        return tensors, [one.prefix.name for one in chain]

    def _own(self, saved: Saved) -> dict[str, Any]:
        return json.loads(saved.tensors[self.table["name"]])

    @property
    def _admission(self) -> str | None:
        return (self.table["admission"] or {}).get("kind")

    @property
    def _columns(self) -> tuple[str, ...]:
        evicts_by_step = (self.table["eviction"] or {}).get("kind") == "global_step"
        return ("frequency",) * bool(self._admission) + ("last_step",) * evicts_by_step

    @property
    def _in_blocks(self) -> bool:
        return "in_blocks" in (self.table["admission"] or {})

    def _by_owner(self, keys: Sequence[int]) -> list[list[int]]:
        return by_owner(keys, self.shards, self.table.get("placement", "by_key"))

    def _random_keys(self, count: int) -> list[int]:
        pool = np.concatenate([KEYS, self.rng.integers(-(2**63), 2**63 - 1, 5), np.arange(100, 160)])
        return [int(key) for key in self.rng.choice(pool, count)]

    def _set(self, key: int) -> None:
        row = {"values": self.rng.normal(size=self.table["dim"]).astype("<f4")}
        for slot, width in self.slots:
            row[f"slot-{slot}"] = self.rng.normal(size=width).astype("<f4")
        for column in self._columns:
            row[column] = np.int64(self.rng.integers(0, self.steps + 1))
        self.rows[key] = row
        self.changed.add(key)
        if self.waiting.pop(key, None) is not None:
            self.waiting_changed.discard(key)
            self.waiting_deleted.add(key)

    def _delete(self, key: int) -> None:
        if self.rows.pop(key, None) is not None:
            self.changed.discard(key)
            self.deleted.add(key)

    def _arrays(self, keys: list[int], delta: bool, number: int) -> dict[str, np.ndarray]:
        arrays = {"keys": np.array(keys, "<i8")}
        widths = {"values": self.table["dim"], **{f"slot-{slot}": width for slot, width in self.slots}}
        for name, width in widths.items():
            arrays[name] = np.array([self.rows[key][name] for key in keys], "<f4").reshape(len(keys), width)
        for name in self._columns:
            arrays[name] = np.array([self.rows[key][name] for key in keys], "<i8")
        if delta:
            arrays["deleted"] = np.array(self._by_owner(sorted(self.deleted))[number], "<i8")
        if self._admission == "counter":
            arrays.update(self._waiting_arrays(delta, number))
        if self._admission == "bloom":
            arrays.update(self._bloom_arrays(number))
        return arrays

    def _bloom_arrays(self, number: int) -> dict[str, np.ndarray]:
        counters = self.bloom[number]
        if not self._in_blocks:
            return {"bloom_counters": counters}
        width = 64 // counters.itemsize
        blocks = np.pad(counters, (0, -len(counters) % width)).reshape(-1, width)
        (numbers,) = np.nonzero(blocks.any(axis=1))
        return {"bloom_blocks": numbers.astype("<i8"), "bloom_counters": blocks[numbers]}

    def _waiting_arrays(self, delta: bool, number: int) -> dict[str, np.ndarray]:
        chosen = [key for key in self.waiting if not delta or key in self.waiting_changed]
        mine = self._by_owner(chosen)[number]
        arrays = {
            "waiting_keys": np.array(mine, "<i8"),
            "waiting_counts": np.array([self.waiting[key][0] for key in mine], "<i8"),
            "waiting_last_step": np.array([self.waiting[key][1] for key in mine], "<i8"),
        }
        if delta:
            gone = self._by_owner(sorted(self.waiting_deleted))[number]
            arrays["waiting_deleted"] = np.array(gone, "<i8")
        return arrays


def save_all(
    histories: Sequence[History],
    name: str,
    delta: bool = False,
    lagging: bool = False,
    alignment: int = 4096,
) -> list[Saved]:
    """Writes tables of one directory as one checkpoint."""
    first = histories[0]
    prefix, identity = first.directory / name, first.rng.bytes(8).hex()
    tensors, chains = {}, {}
    for one in histories:
        of_table, below = one.tensors(delta, lagging)
        tensors.update(of_table)
        chains.update(dict.fromkeys(below))
    tensors.update(facts(identity, first.shards, list(chains)))
    write(prefix, tensors, alignment)
    for one in histories:
        one._forget_changes()
        state = copy.deepcopy(one.rows), dict(one.waiting), copy.deepcopy(one.bloom)
        one.saved.append(Saved(prefix, identity, tensors, *state))
    return [one.saved[-1] for one in histories]


def save_steps(
    histories: Sequence[History], steps: int, keys: int = 40, fulls: Sequence[int] = (0,)
) -> list[Saved]:
    """As `History.save_steps`, of tables of one directory, as "model.ckpt-0" and so on."""
    for step in range(steps):
        for one in histories:
            one.train(keys)
        saved = save_all(histories, f"model.ckpt-{step}", delta=step not in fulls)
    return saved


COUNTER = {"kind": "counter", "filter_freq": 5, "default_value": 0.25}
BLOOM = {
    "kind": "bloom",
    "filter_freq": 5,
    "default_value": 0.0,
    "max_element_size": 10,
    "false_positive_probability": 0.1,
    "hashes": 4,
    "counters": 58,  # ceil(4 * 10 / ln 2)
    "counter_bits": 16,
}
BLOCKS = {**BLOOM, "in_blocks": True}

# TensorFlow's numbers of dtypes.
_DTYPES = {"<f4": 1, "<f8": 2, "<i4": 3, "|u1": 4, "<i8": 9, "<u2": 17, "<u4": 22, "<u8": 23}
_STRING = 7
_MAGIC = 0xDB4775248B80FB57


def _crc_table() -> list[int]:
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    return table


_CRC_TABLE = _crc_table()


def crc32c(data: bytes) -> int:
    """CRC-32C, one byte at a time."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ _CRC_TABLE[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def masked(crc: int) -> bytes:
    """A checksum as files have it."""
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def varint(number: int) -> bytes:
    """7 bits a byte, the lowest first."""
    parts = []
    while number >= 128:
        parts.append(number & 127 | 128)
        number >>= 7
    return bytes([*parts, number])


def _number(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(value)


def _message(field: int, content: bytes) -> bytes:
    return varint(field << 3 | 2) + varint(len(content)) + content


def place(dtype: int, shape: tuple, file: int, offset: int, size: int, crc: int) -> bytes:
    """The entry of a tensor: TensorFlow's BundleEntryProto."""
    dims = b"".join(_message(2, _number(1, dim)) for dim in shape)
    numbers = _number(3, file) + _number(4, offset) + _number(5, size)
    return _number(1, dtype) + _message(2, dims) + numbers + varint(6 << 3 | 5) + masked(crc)


def write_index(path: Path, entries: Mapping[str, bytes], files: int) -> None:
    """Writes an index of `files` data files."""
    header = _number(1, files) + _message(3, _number(1, 1))
    content = {"": header, **entries}
    blocks = b""

    def add_block(items: list[tuple[bytes, bytes]]) -> bytes:
        """Appends a block; returns its place."""
        nonlocal blocks
        block = b"".join(
            varint(0) + varint(len(key)) + varint(len(value)) + key + value for key, value in items
        )
        # Of the entries only the first can be jumped to. No compression.
        block += struct.pack("<II", 0, 1)
        at = varint(len(blocks)) + varint(len(block))
        blocks += block + b"\0" + masked(crc32c(block + b"\0"))
        return at

    items = sorted((name.encode(), entry) for name, entry in content.items())
    at = add_block(items)
    handles = add_block([]) + add_block([(items[-1][0], at)])
    path.write_bytes(blocks + handles.ljust(40, b"\0") + struct.pack("<Q", _MAGIC))


def _encode(value: str | np.ndarray) -> tuple[int, tuple, bytes, int]:
    """The dtype, shape, bytes and checksum of a tensor."""
    if isinstance(value, str):
        text = value.encode()
        length = struct.pack("<I", len(text))
        start = masked(crc32c(length))
        return _STRING, (), varint(len(text)) + start + text, crc32c(length + start + text)
    data = value.tobytes()
    return _DTYPES[value.dtype.str], value.shape, data, crc32c(data)


def write_files(
    prefix: Path,
    tensors: Mapping[str, str | np.ndarray],
    file_of: Callable[[str], int] = lambda name: 0,
    alignment: int = 4096,
) -> None:
    """Writes a checkpoint.

    Args:
      prefix: Its prefix.
      tensors: The tensors by name; strings are scalars.
      file_of: The number of the data file for a name.
      alignment: Arrays begin at multiples of it.
    """
    prefix.parent.mkdir(parents=True, exist_ok=True)
    entries, files = {}, {0: b""}
    for name, value in tensors.items():
        dtype, shape, data, crc = _encode(value)
        file = file_of(name)
        before = files.setdefault(file, b"")
        if not isinstance(value, str):
            before += bytes(-len(before) % alignment)
        entries[name] = place(dtype, shape, file, len(before), len(data), crc)
        files[file] = before + data
    count = max(files) + 1
    for number in range(count):
        data_file(prefix, number, count).write_bytes(files.get(number, b""))
    write_index(prefix.with_name(prefix.name + ".index"), entries, count)


def data_file(prefix: Path, number: int, count: int) -> Path:
    """The path of a data file."""
    return prefix.with_name(f"{prefix.name}.data-{number:05d}-of-{count:05d}")
