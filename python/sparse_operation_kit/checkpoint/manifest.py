"""A strict reader of manifest.json, which describes a table of a checkpoint."""

from __future__ import annotations

import json
import math
import os
import re
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from sparse_operation_kit.checkpoint import npy, placement, table_files
from sparse_operation_kit.checkpoint.errors import CheckpointError
from sparse_operation_kit.checkpoint.npy import ArraySpec
from sparse_operation_kit.checkpoint.paths import open_file, path_problem
from sparse_operation_kit.checkpoint.placement import Placement

FORMAT = "sparse-operation-kit checkpoint"
# Version 1 is for tables that are placed by key; version 2 has other placements; version 3 has shared initial
# rows and DeepRec's older admission; version 4 has Bloom filters in blocks; version 5 has given initial rows.
VERSIONS = (1, 2, 3, 4, 5)
BLOCK_BYTES = 1 << 20
FILE = table_files.MANIFEST
# The largest manifest that is read. A manifest has about 12 bytes for each MiB of a table.
_MAX_BYTES = 1 << 28
# The maximum nesting of lists and objects; a manifest has six levels.
_MAX_DEPTH = 32
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
_BRACKET = re.compile(rb"[\[\]{}]")
_DEPTH_CHANGES = {b"[": 1, b"{": 1, b"]": -1, b"}": -1}
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_TAIL = re.compile(rb'"crc32": (0|[1-9][0-9]*)\n\}')

KEY_DTYPES = ("int64", "int32", "uint32")
_MAX_WIDTH = 2**28
_MOST_FLOATS = (2**63 - 1) // 4
_MAX_SHARDS = 99999
_INITIALIZERS = ("constant", "uniform", "normal", "truncated_normal", "given")
_ON_FULL = ("error", "evict_lru", "evict_lfu")
_LARGEST_FLOAT = float(np.finfo(np.float32).max)
# The first number that does not round to a float32. The shortest text of the largest float32 is below it, but
# above that float32.
_TOO_LARGE = 2.0**128 - 2.0**103
COLUMNS = ("frequency", "last_step", "last_used")
WAITING = ("waiting_keys", "waiting_counts", "waiting_last_step")
BLOOM = ("bloom_blocks", "bloom_counters")
# Given initial rows: in the first shard of full checkpoints.
INITIAL_ROWS = "initial_rows"
# The size of a block of a Bloom filter's counters.
BLOOM_BLOCK_BYTES = 64


@dataclass(frozen=True)
class Slot:
    """An optimizer's slot: its name, its number of floats per row, and their value in a new row."""

    name: str
    width: int
    fill: float


@dataclass(frozen=True)
class Optimizer:
    """The optimizer of a table; `hyper` has its hyper-parameters at its first step."""

    name: str
    steps: int
    hyper: dict[str, float]
    slots: tuple[Slot, ...]
    history: dict[str, Any] | None


@dataclass(frozen=True)
class ShardSpec:
    """The part that one rank wrote. Its arrays have `rows` rows; the rank's table had `table_rows` rows.

    In a delta `rows` may be less than `table_rows`.
    """

    rows: int
    table_rows: int
    arrays: dict[str, ArraySpec]


@dataclass(frozen=True)
class Link:
    """A checkpoint that a delta builds on: its path, relative to the delta's, and its manifest's CRC-32."""

    path: str
    crc32: int


@dataclass(frozen=True)
class Manifest:
    """A checked manifest.

    `table` is the unchanged object of the file, `rows` the number of rows of the whole table after applying
    its chain, and `file_crc32` the CRC-32 of the whole file.
    """

    kind: str
    table: dict[str, Any]
    steps: int
    uses: int
    rows: int
    optimizer: Optimizer | None
    chain: tuple[Link, ...]
    shards: tuple[ShardSpec, ...]
    file_crc32: int = field(compare=False, default=0)

    @property
    def name(self) -> str:
        """The table's name."""
        return self.table["name"]

    @property
    def dim(self) -> int:
        """The number of floats in a row."""
        return self.table["dim"]

    @property
    def placement(self) -> Placement:
        """The placement of keys on shards."""
        return _placement(self.table, len(self.shards))

    @property
    def is_delta(self) -> bool:
        """Whether the table has only the rows that changed since the previous checkpoint of its chain."""
        return self.kind == "delta"


def in_blocks(table: dict[str, Any]) -> bool:
    """Returns whether only blocks of the counters of the table's Bloom filter are saved, not all of them."""
    admission = table["admission"] or {}
    return admission.get("kind") == "bloom" and "in_blocks" in admission


def bloom_blocks(table: dict[str, Any]) -> int:
    """Returns the number of blocks of a whole Bloom filter."""
    admission = table["admission"]
    return -(-admission["counters"] * (admission["counter_bits"] // 8) // BLOOM_BLOCK_BYTES)


def version_of(table: dict[str, Any]) -> int:
    """Returns the format version for a table with this description."""
    if table["initializer"]["kind"] == "given":
        return 5
    if in_blocks(table):
        return 4
    if "rows" in table["initializer"] or "before_lookup" in (table["admission"] or {}):
        return 3
    return 2 if "placement" in table else 1


def read(place: Path) -> Manifest:
    """Reads and checks the manifest of the table at a place.

    Raises:
      CheckpointError: The manifest is missing, damaged, of another format or version, or inconsistent.
    """
    path = table_files.file_of(place, FILE)
    with open_file(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > _MAX_BYTES:
            raise CheckpointError(path, f"has {size} bytes, too many for a manifest")
        try:
            text = file.read(size)
        except OSError as error:
            raise CheckpointError(path, f"cannot be read: {error.strerror or error}") from None
    return parse(text, path)


def parse(text: bytes, path: Path) -> Manifest:
    """Parses and checks the bytes of a manifest; `path` is for error messages."""
    _check_own_checksum(text, path)
    try:
        document = _json(text)
    except (ValueError, OverflowError) as error:
        raise CheckpointError(path, f"is not valid JSON: {error}") from None
    try:
        return _Reader(path).manifest(document, zlib.crc32(text))
    except KeyError as error:
        raise CheckpointError(path, f"does not follow the format of its version: it lacks {error}") from None
    except (TypeError, ValueError, OverflowError) as error:
        raise CheckpointError(path, f"does not follow the format of its version: {error}") from None


def _json(text: bytes) -> Any:
    """Parses JSON. Raises ValueError or OverflowError for text that the C++ parser refuses too."""
    depth = 0
    for bracket in _BRACKET.finditer(_STRING.sub(b"", text)):
        depth += _DEPTH_CHANGES[bracket.group()]
        if depth > _MAX_DEPTH:
            raise ValueError(f"it nests deeper than {_MAX_DEPTH} levels")
    document = json.loads(
        text.decode("utf-8"), parse_constant=_refuse_constant, parse_float=_finite, parse_int=_whole
    )
    if _SURROGATE.search(text):
        # Encoding fails for a surrogate without its counterpart, which is not a character.
        json.dumps(document, ensure_ascii=False).encode("utf-8")
    return document


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not a number")


def _finite(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise ValueError(f"{digits[:50]} is too large for a number")
    return number


def _whole(digits: str) -> int:
    number = int(digits)
    float(number)  # Raises OverflowError for a number of hundreds of digits.
    return number


def _check_own_checksum(text: bytes, path: Path) -> None:
    position = text.rfind(b'"crc32"')
    tail = _TAIL.fullmatch(text[position:]) if position >= 0 else None
    if tail is None:
        raise CheckpointError(path, "is incomplete: it does not end with its checksum")
    if zlib.crc32(text[:position]) != int(tail.group(1)):
        raise CheckpointError(path, "is damaged: its own checksum is wrong")


def _array_rules(
    table: dict[str, Any], optimizer: Optimizer | None, delta: bool
) -> dict[str, tuple[str, int | None, bool]]:
    """Returns the arrays that a shard may have, by name: dtype, row width (None: scalars), if required."""
    admission = table["admission"] or {}
    kind = admission.get("kind")
    rules: dict[str, tuple[str, int | None, bool]] = {
        "keys": ("<i8", None, True),
        "values": ("<f4", table["dim"], True),
    }
    if delta:
        rules["deleted"] = ("<i8", None, True)
        rules["adam_step"] = ("<u4", None, False)
        rules["alphas"] = ("<f4", None, False)
    elif table["initializer"]["kind"] == "given":
        rules[INITIAL_ROWS] = ("<f4", table["dim"], False)
    if kind == "bloom":
        bits = admission["counter_bits"]
        width = BLOOM_BLOCK_BYTES // (bits // 8) if in_blocks(table) else None
        rules["bloom_counters"] = ("|u1" if bits == 8 else f"<u{bits // 8}", width, True)
        if in_blocks(table):
            rules["bloom_blocks"] = ("<i8", None, True)
    if kind == "counter":
        rules.update({name: ("<i8", None, True) for name in WAITING})
        if delta:
            rules["waiting_deleted"] = ("<i8", None, False)
    rules.update({name: ("<i8", None, False) for name in COLUMNS})
    for slot in optimizer.slots if optimizer else ():
        rules[f"slot-{slot.name}"] = ("<f4", slot.width, True)
    return rules


class _Reader:
    """Reads a manifest's JSON; raises KeyError, TypeError or ValueError for anything unexpected."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def manifest(self, document: Any, file_crc32: int) -> Manifest:
        top = _object(document, "the manifest")
        if top.get("format") != FORMAT:
            raise CheckpointError(self._path, f"is of the format {top.get('format')!r}, not {FORMAT!r}")
        version = _int(top, "version")
        if version not in VERSIONS:
            raise CheckpointError(
                self._path,
                f"is of version {version}; this program reads versions {VERSIONS[0]} to {VERSIONS[-1]}",
            )
        kind = _one_of(top, "kind", ("full", "delta"))
        table = _table(_object(top["table"], "table"))
        if version != version_of(table):
            raise ValueError(f"version {version} with a table of version {version_of(table)}")
        optimizer = _optimizer(top["optimizer"])
        chain = tuple(_link(link) for link in _list(top, "chain"))
        if bool(chain) != (kind == "delta"):
            raise ValueError(f"a {kind} checkpoint with a chain of {len(chain)}")
        block_bytes = _int(top, "block_bytes", BLOCK_BYTES, BLOCK_BYTES)
        rules = _array_rules(table, optimizer, kind == "delta")
        counters = (table["admission"] or {}).get("counters", 0)
        shards = tuple(
            _shard(_object(shard, f"shard {number}"), number, rules, counters, block_bytes)
            for number, shard in enumerate(_list(top, "shards"))
        )
        rows = _int(top, "rows")
        _check_rows(rows, kind, table, shards)
        _check_placement(table, shards)
        _check_history(kind, optimizer, shards)
        _check_initial_rows(kind, table, shards)
        return Manifest(
            kind=kind,
            table=table,
            steps=_int(top, "steps"),
            uses=_int(top, "uses"),
            rows=rows,
            optimizer=optimizer,
            chain=chain,
            shards=shards,
            file_crc32=file_crc32,
        )


def _check_initial_rows(kind: str, table: dict[str, Any], shards: tuple[ShardSpec, ...]) -> None:
    """Checks that the first shard of a full checkpoint has the given initial rows, and no other shard."""
    is_given = kind == "full" and table["initializer"]["kind"] == "given"
    for number, shard in enumerate(shards):
        if (INITIAL_ROWS in shard.arrays) != (is_given and number == 0):
            raise ValueError(f"shard {number} has no initial rows, or should have none")
    if is_given and shards[0].arrays[INITIAL_ROWS].shape[0] != table["initializer"]["rows"]:
        raise ValueError(f"the initial rows are not {table['initializer']['rows']}")


def _check_rows(rows: int, kind: str, table: dict[str, Any], shards: tuple[ShardSpec, ...]) -> None:
    """Checks the numbers of rows, and that all shards have the same columns."""
    if not shards or len(shards) > _MAX_SHARDS:
        raise ValueError(f"{len(shards) or 'no'} shards")
    in_shards = sum(shard.table_rows for shard in shards)
    if rows != in_shards:
        raise ValueError(f"{rows} rows, but its shards have {in_shards}")
    for number, shard in enumerate(shards):
        if shard.rows > shard.table_rows or (kind == "full" and shard.rows != shard.table_rows):
            raise ValueError(f"shard {number} holds {shard.rows} rows of {shard.table_rows}")
    if (table["capacity"] or 0) > _MOST_FLOATS // len(shards) // table["dim"]:
        raise ValueError(f"a capacity of {table['capacity']} rows, more than 2^63 bytes")
    for name in COLUMNS:
        if len({name in shard.arrays for shard in shards}) > 1:
            raise ValueError(f"some of the shards have the array {name!r}")


def _table(table: dict[str, Any]) -> dict[str, Any]:
    _string(table, "name")
    _int(table, "dim", 1, _MAX_WIDTH)
    _one_of(table, "key_dtype", KEY_DTYPES)
    if not isinstance(table["hashed"], bool):
        raise TypeError(f"hashed is {table['hashed']!r}")
    capacity = _int(table, "capacity")
    on_full = _one_of(table, "on_full", _ON_FULL)
    initializer = _object(table["initializer"], "initializer")
    _check_initial_values(
        _one_of(initializer, "kind", _INITIALIZERS), _float(initializer, "a"), _float(initializer, "b")
    )
    seed = _string(initializer, "seed")
    if not re.fullmatch("0|[1-9][0-9]{0,19}", seed) or int(seed) >= 2**64:
        raise ValueError(f"the seed {seed!r} is not a 64-bit number")
    if "rows" in initializer:
        _int(initializer, "rows", 1, 2**32 - 1)
    if initializer["kind"] == "given" and "rows" not in initializer:
        raise ValueError("given initial rows without their number")
    if table["admission"] is not None:
        _check_admission(_object(table["admission"], "admission"))
    if table["eviction"] is not None:
        _check_eviction(_object(table["eviction"], "eviction"))
    if "clock" in table:
        _one_of(table, "clock", ("global_step",))
    if "placement" in table:
        _string(table, "placement")
    if not table["hashed"] and (
        not capacity or on_full != "error" or table["admission"] is not None or table["eviction"] is not None
    ):
        raise ValueError("a table without hashing must have a capacity, and no admission or eviction")
    if on_full != "error" and not capacity:
        raise ValueError(f"on_full is {on_full!r} without a capacity")
    return table


def _placement(table: dict[str, Any], shards: int) -> Placement:
    return placement.parse(table.get("placement", placement.BY_KEY), shards)


def _check_placement(table: dict[str, Any], shards: tuple[ShardSpec, ...]) -> None:
    placed = _placement(table, len(shards))
    if "placement" in table and placed.kind == placement.BY_KEY:
        raise ValueError("the placement by key must not be written")
    if table["hashed"]:
        return
    capacity = table["capacity"]
    rows = [placed.static_rows(number, capacity) for number in range(len(shards))]
    if max(rows) != capacity:
        raise ValueError(f"a capacity of {capacity} rows, and a longest range of {max(rows)}")
    if rows != [shard.table_rows for shard in shards]:
        raise ValueError(f"a table without hashing whose shards do not have {rows[:10]}… rows")


def _check_initial_values(kind: str, a: float, b: float) -> None:
    """The same check as `CheckInitializer` in `cc/table/table_options.cc`."""
    a, b = float(np.float32(a)), float(np.float32(b))
    largest = max(abs(a), abs(b))
    if kind == "constant":
        largest = abs(a)
    elif kind != "uniform":
        largest = abs(a) + (9 if kind == "normal" else 2) * abs(b)
    if math.isnan(a) or math.isnan(b) or largest > _LARGEST_FLOAT:
        raise ValueError(f"initial values {kind}({a}, {b}) that are not finite floats")


def _true_or_absent(json_object: dict[str, Any], name: str) -> None:
    if name in json_object and json_object[name] is not True:
        raise ValueError(f"{name} is {json_object[name]!r}, not true")


def _check_admission(admission: dict[str, Any]) -> None:
    kind = _one_of(admission, "kind", ("counter", "bloom"))
    most = 2**63 - 1
    if kind == "bloom":
        _int(admission, "max_element_size", 1, 2**40)
        probability = _number(admission, "false_positive_probability")
        if not 1e-15 <= probability < 1:
            raise ValueError(f"false_positive_probability is {probability}, not in [1e-15, 1)")
        _int(admission, "hashes", 1, 2**31 - 1)
        _int(admission, "counters", 1)
        bits = _int(admission, "counter_bits", 8, 64)
        if bits not in (8, 16, 32, 64):
            raise ValueError(f"counters of {bits} bits")
        most = most if bits == 64 else 2**bits - 1
        _true_or_absent(admission, "in_blocks")
    _int(admission, "filter_freq", 0, most)
    _true_or_absent(admission, "before_lookup")
    if not math.isfinite(_float(admission, "default_value")):
        raise ValueError(f"default_value is {admission['default_value']!r}")


def _check_eviction(eviction: dict[str, Any]) -> None:
    if _one_of(eviction, "kind", ("global_step", "l2_weight")) == "global_step":
        _int(eviction, "steps_to_live", 1)
    elif not 0 <= np.float32(_float(eviction, "threshold")) < math.inf:
        raise ValueError(f"threshold is {eviction['threshold']!r}")


def _optimizer(value: Any) -> Optimizer | None:
    if value is None:
        return None
    optimizer = _object(value, "optimizer")
    hyper = _object(optimizer["hyper"], "hyper")
    slots = []
    for slot in _list(optimizer, "slots"):
        slot = _object(slot, "a slot")
        name = _string(slot, "name")
        if not re.fullmatch(r"[a-z0-9_]+", name):
            raise ValueError(f"a slot is named {name!r}")
        slots.append(Slot(name, _int(slot, "width", 1, _MAX_WIDTH), _float(slot, "fill")))
    if len({slot.name for slot in slots}) != len(slots):
        raise ValueError("two slots of one name")
    steps = _int(optimizer, "steps")
    return Optimizer(
        name=_string(optimizer, "name"),
        steps=steps,
        hyper={name: _float(hyper, name) for name in hyper},
        slots=tuple(slots),
        history=_history(optimizer["history"], steps),
    )


def _history(value: Any, steps: int) -> dict[str, Any] | None:
    if value is None:
        return None
    history = _object(value, "history")
    for name in ("beta1", "beta2", "epsilon"):
        _float(history, name)
    _int(history, "first_step", 0, steps)
    if _string(history, "alphas") != "shard-00000/alphas.npy":
        raise ValueError(f"alphas are in the unexpected file {history['alphas']!r}")
    return history


def _check_history(kind: str, optimizer: Optimizer | None, shards: tuple[ShardSpec, ...]) -> None:
    """Checks that arrays of missed steps exist if and only if the optimizer has a history."""
    has_history = optimizer is not None and optimizer.history is not None
    if has_history and kind != "delta":
        raise ValueError(f"a {kind} checkpoint whose optimizer has a history")
    for number, shard in enumerate(shards):
        for name, wanted in (("adam_step", has_history), ("alphas", has_history and number == 0)):
            if (name in shard.arrays) != wanted:
                raise ValueError(f"shard {number} {'lacks' if wanted else 'has'} the array {name!r}")
    if optimizer is not None and optimizer.history is not None:
        steps = optimizer.steps - optimizer.history["first_step"]
        if shards[0].arrays["alphas"].shape != (steps,):
            raise ValueError(f"the array 'alphas' does not have the {steps} rates of the optimizer's history")


def _link(value: Any) -> Link:
    link = _object(value, "a link of the chain")
    path = _string(link, "path")
    if path.startswith("/") or path_problem(path):
        raise ValueError(f"the chain's path {path[:200]!r} is not relative, or not a path")
    return Link(path, _int(link, "crc32", 0, 2**32 - 1))


def _shard(
    shard: dict[str, Any], number: int, rules: dict[str, Any], counters: int, block_bytes: int
) -> ShardSpec:
    rows, table_rows = _int(shard, "rows"), _int(shard, "table_rows")
    arrays = {}
    for name, description in _object(shard["arrays"], "arrays").items():
        where = f"array {name!r} of shard {number}"
        if name not in rules:
            raise ValueError(f"{where} is unknown")
        dtype, width, _ = rules[name]
        array = _array(_object(description, where), name, number, dtype, block_bytes)
        if len(array.shape) != (1 if width is None else 2) or (width is not None and array.shape[1] != width):
            raise ValueError(f"{where} has shape {list(array.shape)}")
        if _goes_with_rows(name) and array.shape[0] != rows:
            raise ValueError(f"{where} has {array.shape[0]} rows, and its shard {rows}")
        if name == "bloom_counters" and "bloom_blocks" not in rules and array.shape[0] != counters:
            raise ValueError(f"{where} has {array.shape[0]} counters, and the table's filter {counters}")
        arrays[name] = array
    missing = [name for name, (_, _, needed) in rules.items() if needed and name not in arrays]
    if missing:
        raise ValueError(f"shard {number} lacks {', '.join(missing)}")
    waiting = {arrays[name].shape for name in WAITING if name in arrays}
    if len(waiting) > 1:
        raise ValueError(f"shard {number} has arrays of waiting ids of different lengths")
    if len({arrays[name].shape[0] for name in BLOOM if name in arrays}) > 1:
        raise ValueError(f"shard {number} has not as many blocks of counters as numbers of blocks")
    return ShardSpec(rows, table_rows, arrays)


def _goes_with_rows(name: str) -> bool:
    return name in ("keys", "values", "adam_step", *COLUMNS) or name.startswith("slot-")


def _array(array: dict[str, Any], name: str, shard: int, dtype: str, block_bytes: int) -> ArraySpec:
    file = _string(array, "file")
    if file != f"shard-{shard:05d}/{name}.npy":
        raise ValueError(f"array {name!r} of shard {shard} is in the unexpected file {file!r}")
    if _string(array, "dtype") != dtype:
        raise ValueError(f"array {name!r} of shard {shard} is {array['dtype']}, not {dtype}")
    shape = tuple(_list(array, "shape"))
    if not all(type(size) is int and 0 <= size < 2**63 for size in shape):
        raise ValueError(f"array {name!r} has shape {list(shape)}")
    size = _int(array, "bytes")
    checksums = tuple(_list(array, "crc32"))
    if len(checksums) != -(-size // block_bytes):
        raise ValueError(f"array {name!r} of {size} bytes has {len(checksums)} checksums")
    if not all(type(crc) is int and 0 <= crc < 2**32 for crc in checksums):
        raise ValueError(f"array {name!r} has a checksum that is not valid")
    spec = ArraySpec(name, file, np.dtype(dtype), shape, size, checksums, block_bytes)
    if len(npy.header(spec.dtype, shape)) + spec.data_bytes != size:
        raise ValueError(f"array {name!r} of shape {list(shape)} in {size} bytes")
    return spec


def _object(value: Any, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise TypeError(f"{what} is {value!r}, not an object")
    return value


def _list(holder: dict[str, Any], name: str) -> list[Any]:
    if not isinstance(holder[name], list):
        raise TypeError(f"{name} is {holder[name]!r}, not a list")
    return holder[name]


def _string(holder: dict[str, Any], name: str) -> str:
    if not isinstance(holder[name], str) or not holder[name]:
        raise TypeError(f"{name} is {holder[name]!r}, not a string")
    return holder[name]


def _one_of(holder: dict[str, Any], name: str, values: tuple[str, ...]) -> str:
    if _string(holder, name) not in values:
        raise ValueError(f"{name} is {holder[name]!r}, not {' or '.join(values)}")
    return holder[name]


def _int(holder: dict[str, Any], name: str, low: int = 0, high: int = 2**63 - 1) -> int:
    value = holder[name]
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} is {value!r}, not a whole number")
    if not low <= value <= high:
        raise ValueError(f"{name} is {value}, not in [{low}, {high}]")
    return value


def _float(holder: dict[str, Any], name: str) -> float:
    """Returns a number in the range of float32, in the precision of the text."""
    number = _number(holder, name)
    if math.isfinite(number) and abs(number) >= _TOO_LARGE:
        raise ValueError(f"{name} is {number}, more than a float32 holds")
    return number


def _number(holder: dict[str, Any], name: str) -> float:
    value = holder[name]
    if isinstance(value, str) and value in ("nan", "inf", "-inf"):
        return float(value)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{name} is {value!r}, not a number")
    return float(value)
