"""Writes checkpoints in the format of docs/checkpoint-format.md in the simplest way: whole tables in memory.

`History` is a table of Python dicts that changes at random and is saved in full or as a delta, so that tests
know the state of each checkpoint in a chain.
"""

from __future__ import annotations

import copy
import json
import struct
import urllib.parse
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

KEYS = np.array([0, -1, 1, 2**31, 2**32, 2**63 - 1, -(2**63), -(2**31), 7, 2**40 + 3], np.int64)


def npy(array: np.ndarray) -> bytes:
    """The .npy file of an array, without the spare room that NumPy leaves in headers."""
    fields = f"{{'descr': '{array.dtype.str}', 'fortran_order': False, 'shape': {array.shape}, }}"
    fields += " " * (-(len(fields) + 11) % 64) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(fields)) + fields.encode() + array.tobytes()


def table_description(**changes: Any) -> dict[str, Any]:
    """The manifest's "table"."""
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
    """The manifest's "optimizer"."""
    return {
        "name": "lazy_adam",
        "steps": steps,
        "hyper": {"alpha": 0.001, "beta1": 0.9, "beta2": 0.999, "epsilon": 1e-8},
        "slots": [{"name": name, "width": width, "fill": 0.0} for name, width in slots],
        "history": None,
        **changes,
    }


def write_folder(
    folder: Path,
    shards: Sequence[dict[str, np.ndarray]],
    block_bytes: int = 1 << 20,
    table_rows: Sequence[int] | None = None,
    **fields: Any,
) -> int:
    """Writes a table's folder: arrays per shard, fields of the manifest. Returns the manifest's CRC-32."""
    described = []
    for number, arrays in enumerate(shards):
        directory = folder / f"shard-{number:05d}"
        directory.mkdir(parents=True)
        files = {name: npy(array) for name, array in arrays.items()}
        for name, data in files.items():
            (directory / f"{name}.npy").write_bytes(data)
        described.append(
            {
                "rows": len(arrays["keys"]),
                "table_rows": len(arrays["keys"]) if table_rows is None else table_rows[number],
                "arrays": {
                    name: {
                        "file": f"shard-{number:05d}/{name}.npy",
                        "dtype": arrays[name].dtype.str,
                        "shape": list(arrays[name].shape),
                        "bytes": len(data),
                        "crc32": [
                            zlib.crc32(data[i : i + block_bytes]) for i in range(0, len(data), block_bytes)
                        ],
                    }
                    for name, data in files.items()
                },
            }
        )
    in_blocks = "in_blocks" in (fields.get("table", {}).get("admission") or {})
    document = {
        "format": "sparse-operation-kit checkpoint",
        "version": 4 if in_blocks else 1,
        "kind": "full",
        "block_bytes": block_bytes,
        "table": table_description(),
        "steps": 0,
        "uses": 0,
        "rows": sum(shard["table_rows"] for shard in described),
        "optimizer": None,
        "chain": [],
        "shards": described,
        **fields,
    }
    return write_manifest(folder, document)


def write_manifest(folder: Path, document: dict[str, Any]) -> int:
    """Writes a manifest with its own checksum; returns the checksum of the whole file."""
    document.pop("crc32", None)
    text = json.dumps(document, indent=1).encode()[: -len("\n}")] + b",\n "
    text += b'"crc32": %d\n}' % zlib.crc32(text)
    (folder / "manifest.json").write_bytes(text)
    return zlib.crc32(text)


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

    folder: Path
    crc32: int
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
    slots: tuple[tuple[str, int], ...] = (("m", 4), ("v", 1))
    columns: tuple[str, ...] = ("frequency",)
    shards: int = 2
    block_bytes: int = 1 << 20
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

    def save(self, name: str, delta: bool = False, lagging: bool = False) -> Saved:
        """Writes the table, or the changes since the last save. `lagging`: a delta like exact Adam's."""
        folder = self.directory / f"{name}.sok" / self._leaf()
        chosen = [key for key in self.rows if not delta or key in self.changed]
        shards = [self._arrays(keys, delta, number) for number, keys in enumerate(self._by_owner(chosen))]
        optimizer = optimizer_description(self.steps, self.slots) if self.slots else None
        base = next((n for n in reversed(range(len(self.saved))) if not self._is_delta(self.saved[n])), 0)
        if lagging:
            first_step = json.loads((self.saved[base].folder / "manifest.json").read_bytes())["steps"]
            history = {"beta1": 0.9, "beta2": 0.999, "epsilon": 1e-8, "first_step": first_step}
            optimizer.update({"history": {**history, "alphas": "shard-00000/alphas.npy"}})
            for arrays in shards:
                arrays["adam_step"] = np.full([len(arrays["keys"])], self.steps, "<u4")
            shards[0]["alphas"] = np.full([self.steps - first_step], 0.001, "<f4")
        chain = []
        if delta:
            chain = [
                {"path": f"../../{one.folder.parent.name}/{one.folder.name}", "crc32": one.crc32}
                for one in self.saved[base:]
            ]
        crc = write_folder(
            folder,
            shards,
            self.block_bytes,
            [len(keys) for keys in self._by_owner(list(self.rows))],
            version=4 if self._in_blocks else 2 if "placement" in self.table else 1,
            kind="delta" if delta else "full",
            table=self.table,
            steps=self.steps,
            uses=self.steps,
            optimizer=optimizer,
            chain=chain,
        )
        self._forget_changes()
        self.saved.append(
            Saved(folder, crc, copy.deepcopy(self.rows), dict(self.waiting), copy.deepcopy(self.bloom))
        )
        return self.saved[-1]

    @property
    def _admission(self) -> str | None:
        return (self.table["admission"] or {}).get("kind")

    @property
    def _in_blocks(self) -> bool:
        return "in_blocks" in (self.table["admission"] or {})

    def _by_owner(self, keys: Sequence[int]) -> list[list[int]]:
        return by_owner(keys, self.shards, self.table.get("placement", "by_key"))

    @staticmethod
    def _is_delta(saved: Saved) -> bool:
        return json.loads((saved.folder / "manifest.json").read_bytes())["kind"] == "delta"

    def _leaf(self) -> str:
        name = urllib.parse.quote(self.table["name"], safe="")[:150]
        return f"{name}-{self.rng.bytes(8).hex()}"

    def _random_keys(self, count: int) -> list[int]:
        pool = np.concatenate([KEYS, self.rng.integers(-(2**63), 2**63 - 1, 5), np.arange(100, 160)])
        return [int(key) for key in self.rng.choice(pool, count)]

    def _set(self, key: int) -> None:
        row = {"values": self.rng.normal(size=self.table["dim"]).astype("<f4")}
        for slot, width in self.slots:
            row[f"slot-{slot}"] = self.rng.normal(size=width).astype("<f4")
        for column in self.columns:
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
        for name in self.columns:
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
