"""Malicious manifests: good ones with random and systematic changes."""

from __future__ import annotations

import copy
import functools
import itertools
import json
import random
import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np

import checkpoint_files

_ADAM = (("m", 4), ("v", 4))
_BLOOM = {**checkpoint_files.BLOOM, "counter_bits": 8}
_GIVEN = {"kind": "given", "a": 0, "b": 0, "seed": "0", "rows": 5}
# Replacements for a member: words of other members, and numbers at and beyond the ends of their ranges.
VALUES = [
    *(
        None,
        True,
        False,
        [],
        {},
        "",
        "x",
        "nan",
        "inf",
        "-inf",
        "adam",
        "../x",
        "/x",
        "a\0b",
        "\ud800",
        "\u202e",
    ),
    *(
        0,
        1,
        -1,
        2,
        5,
        2**28,
        2**28 + 1,
        2**31,
        2**32 - 1,
        2**32,
        2**40,
        2**63 - 1,
        2**63,
        2**64 - 1,
        2**64,
        10**400,
    ),
    *(0.0, -0.0, 0.5, 1.0, 1e-16, -1e-300, 3.4028235e38, 3.5e38, 1e308, -1e39),
    *(
        "0",
        "01",
        "-1",
        "18446744073709551615",
        "18446744073709551616",
        "1 ",
        "int32",
        "uint32",
        "error",
        "evict_lru",
    ),
    *("evict_lfu", "counter", "bloom", "global_step", "l2_weight", "constant", "normal", "delta", "full"),
    *("<i8", "<f4", "|u1", "<u2", "int64", "shard-00000/alphas.npy", "shard-00000/keys.npy"),
    *(
        [1],
        ["x"],
        {"kind": "counter", "filter_freq": 2, "default_value": 0.0},
        {"kind": "l2_weight", "threshold": 1},
    ),
]


def document(
    kind: str = "full",
    rows: int | list[int] = 3,
    waiting: int = 0,
    lagging: bool = False,
    shards: int = 2,
    **table: Any,
) -> dict[str, Any]:
    """A good manifest as JSON, without its checksum. `table` changes its description of the table.

    `rows` has the number of rows of each shard.
    """
    description = checkpoint_files.table_description(**table)
    steps, hashed = 7, description["hashed"]
    optimizer = checkpoint_files.optimizer_description(steps, _ADAM)
    filter_kind = (description["admission"] or {}).get("kind")
    described = []
    rows_of = rows if isinstance(rows, list) else [rows] * shards
    for number, rows in enumerate(rows_of):
        arrays = {"keys": ("<i8", [rows]), "values": ("<f4", [rows, 4])}
        arrays.update({f"slot-{slot}": ("<f4", [rows, width]) for slot, width in _ADAM})
        arrays["frequency"] = ("<i8", [rows])
        if kind == "delta":
            arrays["deleted"] = ("<i8", [2])
        if filter_kind == "counter":
            arrays.update({f"waiting_{name}": ("<i8", [waiting]) for name in ("keys", "counts", "last_step")})
        if filter_kind == "bloom" and "in_blocks" in description["admission"]:
            arrays["bloom_blocks"] = ("<i8", [5])
            arrays["bloom_counters"] = ("|u1", [5, 64])
        elif filter_kind == "bloom":
            arrays["bloom_counters"] = ("|u1", [description["admission"]["counters"]])
        if description["initializer"]["kind"] == "given" and kind == "full" and number == 0:
            arrays["initial_rows"] = ("<f4", [description["initializer"]["rows"], 4])
        if lagging:
            arrays["adam_step"] = ("<u4", [rows])
            if number == 0:
                arrays["alphas"] = ("<f4", [steps - 4])
        described.append({"rows": rows, "table_rows": rows, "arrays": _described(arrays, number)})
    if lagging:
        optimizer["history"] = {
            **{"beta1": 0.9, "beta2": 0.999, "epsilon": 1e-8},
            **{"first_step": 4, "alphas": "shard-00000/alphas.npy"},
        }
    assert hashed or description["capacity"] == max(rows_of)
    version = 2 if "placement" in table else 1
    if "rows" in description["initializer"] or "before_lookup" in (description["admission"] or {}):
        version = 3
    if "in_blocks" in (description["admission"] or {}):
        version = 4
    if description["initializer"]["kind"] == "given":
        version = 5
    return {
        **{
            "format": "sparse-operation-kit checkpoint",
            "version": version,
            "kind": kind,
            "table": description,
        },
        **{"steps": steps, "uses": 9, "rows": sum(rows_of), "optimizer": optimizer},
        "chain": [{"path": "../../a.sok/items-0123456789abcdef", "crc32": 5}] if kind == "delta" else [],
        **{"block_bytes": 1 << 20, "shards": described},
    }


def _described(arrays: dict[str, tuple[str, list[int]]], shard: int) -> dict[str, Any]:
    described = {}
    for name, (dtype, shape) in arrays.items():
        size = len(checkpoint_files.npy(np.zeros(shape, dtype)))
        file = f"shard-{shard:05d}/{name}.npy"
        described[name] = {"file": file, "dtype": dtype, "shape": shape, "bytes": size, "crc32": [7]}
    return described


@functools.lru_cache(maxsize=None)
def good() -> list[dict[str, Any]]:
    """A manifest of each kind of table and checkpoint. Callers change copies only."""
    return [
        document(),
        document("delta"),
        document("delta", lagging=True),
        document(admission=checkpoint_files.COUNTER, waiting=2),
        document(
            "delta",
            admission=checkpoint_files.COUNTER,
            eviction={"kind": "global_step", "steps_to_live": 3},
            clock="global_step",
        ),
        document(admission=_BLOOM, capacity=9, on_full="evict_lfu", shards=1),
        document(hashed=False, capacity=3, initializer={"kind": "normal", "a": -2.5, "b": 1, "seed": "0"}),
        document(rows=0, eviction={"kind": "l2_weight", "threshold": 0.5}),
        document(rows=[0, 3], placement="one_rank:1"),
        document("delta", rows=[3, 0], placement="all_ranks"),
        document(rows=[2, 0, 5], placement="ranges:0,2,2,7", hashed=False, capacity=5),
        document(rows=[4, 0], placement="all_ranks", hashed=False, capacity=4),
        document(rows=[0, 4], placement="one_rank:1", hashed=False, capacity=4),
        document(initializer={"kind": "uniform", "a": 0, "b": 1, "seed": "0", "rows": 4096}),
        document(initializer=_GIVEN),
        document("delta", admission={**_BLOOM, "in_blocks": True}, initializer=_GIVEN),
        # The shortest text of the smallest float32, which as a number is a little smaller.
        document(initializer={"kind": "constant", "a": -3.4028235e38, "b": 0, "seed": "0"}),
        document("delta", admission={**checkpoint_files.COUNTER, "before_lookup": True}),
        document(rows=[0, 3], placement="one_rank:1", admission={**_BLOOM, "before_lookup": True}),
        document(admission={**_BLOOM, "in_blocks": True}),
        document("delta", admission={**_BLOOM, "in_blocks": True, "before_lookup": True}),
    ]


# Placements and versions; only some are valid for a table of two shards with or without hashing.
PLACEMENTS = [
    *("by_key", "all_ranks", "one_rank:0", "one_rank:1", "one_rank:2", "one_rank:-1", "one_rank:01"),
    *("one_rank:", "one_rank:1 ", "one_rank:١", "one_rank:2147483648", "one_rank:99999999999999999999"),
    *("one_rank:" + "0" * 5000, "one_rank:" + "9" * 5000, "One_rank:1", "all_ranks\n", "all_ranks\0", ""),
    *("ranges:0,3,6", "ranges:0,0,3", "ranges:0,3,3", "ranges:0,1,4", "ranges:0,3", "ranges:0,3,6,9"),
    *("ranges:0,3,2", "ranges:1,3,6", "ranges:0,3,9223372036854775807", "ranges:0,3,9223372036854775808"),
    *("ranges:0,03,6", "ranges:0, 3,6", "ranges:0,,6", "ranges:0,3,6,", "ranges:", "ranges", "ranges:0;3;6"),
    *("ranges:0,+3,6", "ranges:0,-3,6", "ranges:0,3_0,60", "ranges:0,3," + "9" * 5000, "ranges:0,3,6\n"),
    *(None, 0, 1.5, True, [], {}, ["all_ranks"], {"kind": "all_ranks"}),
]


def each_placement() -> Iterator[tuple[str, bytes]]:
    """(description, text) of manifests with every placement and several distributions of rows over shards."""
    for rows in ([3, 3], [3, 0], [0, 3], [1, 3], [0, 0]):
        for table in ({}, {"hashed": False, "capacity": max(rows)}):
            if table and not max(rows):
                continue
            for kind in ("full", "delta"):
                plain = document(kind, rows=rows, **table)
                for version, placement in itertools.product((0, 1, 2, 3), (..., *PLACEMENTS)):
                    changed = {**plain, "version": version, "table": dict(plain["table"])}
                    _set(changed["table"], "placement", placement)
                    yield f"{rows} {table} {version} {placement!r:.60}", text_of(changed)


def text_of(changed: Any) -> bytes:
    """A manifest's text with a correct checksum."""
    return with_checksum(_body_of(changed))


def _body_of(changed: Any) -> bytes:
    """A manifest's text without its end, which has the checksum."""
    body = json.dumps(changed, indent=1)
    return body[: -len("\n}")].encode() + b",\n " if body.endswith("\n}") else body.encode()


def with_checksum(body: bytes) -> bytes:
    """A text with the end of a manifest, which has the checksum."""
    return body + b'"crc32": %d\n}' % zlib.crc32(body)


def _places(node: Any, path: tuple = ()) -> Iterator[tuple]:
    """The path of every member and item."""
    for key in list(node) if isinstance(node, dict) else range(len(node)) if isinstance(node, list) else ():
        yield (*path, key)
        yield from _places(node[key], (*path, key))


def _holder(root: Any, path: tuple) -> Any:
    for key in path[:-1]:
        root = root[key]
    return root


def each_change() -> Iterator[tuple[str, bytes]]:
    """(description, text) of good manifests in which one member is removed or has another value, for all."""
    seen = set()
    # Each document is written once for a place, with a mark that the values replace in the text.
    mark = "the value"
    written = [(value, json.dumps(value).encode()) for value in VALUES]
    for original in good():
        for path in _places(original):
            if path in seen:
                continue
            seen.add(path)
            yield f"{path} is removed", text_of(_with(original, path, ...))
            before, after = _body_of(_with(original, path, mark)).split(json.dumps(mark).encode())
            for value, text in written:
                yield f"{path} is {value!r:.40}", with_checksum(before + text + after)


def _with(original: dict[str, Any], path: tuple, value: Any) -> dict[str, Any]:
    changed = copy.deepcopy(original)
    _set(_holder(changed, path), path[-1], value)
    return changed


def random_change(draw: random.Random) -> tuple[str, bytes]:
    """(description, text) of a good manifest with some changed members or bytes."""
    changed, done = copy.deepcopy(draw.choice(good())), []
    for _ in range(draw.choice([1, 1, 2, 3, 5])):
        places = list(_places(changed))
        path = draw.choice(places)
        holder, key = _holder(changed, path), path[-1]
        if draw.random() < 0.3:
            other = draw.choice(places)
            value = _holder(changed, other)[other[-1]]
        else:
            value = draw.choice([..., *VALUES])
        if isinstance(holder, dict) and draw.random() < 0.15:
            key = draw.choice(["more", "waiting_deleted", "last_step", "history", "slot-x", "crc32"])
        _set(holder, key, value)
        done.append(f"{key} is {value!r:.40}")
    text = text_of(changed)
    if draw.random() < 0.2:
        text, how = _other_text(draw, text)
        done.append(how)
    return "; ".join(done), text


def _set(holder: Any, key: Any, value: Any) -> None:
    if value is not ...:
        holder[key] = copy.deepcopy(value)
    elif isinstance(holder, list) or key in holder:
        del holder[key]


PIECES = [
    *(
        b"\0",
        b"\xef\xbb\xbf",
        b"\xff",
        b"\\ud800",
        b"\\u0000",
        b"\x1b",
        b"1e400",
        b"-1e400",
        b"1" * 400,
        b"NaN",
    ),
    *(
        b"[" * 40,
        b"[" * 40 + b"]" * 40,
        b"{}",
        b"}",
        b",",
        b'"',
        b"// x\n",
        b"\n",
        b" ",
        b"01",
        b"-",
        b'"crc32": 1',
    ),
]


def _other_text(draw: random.Random, text: bytes) -> tuple[bytes, str]:
    body = text[: text.rfind(b'"crc32"')]
    # Prefers the places of values, because changes elsewhere rarely leave valid JSON.
    ends = [at for at in range(len(body)) if body[at : at + 1] in b",:[]{}"] + [0, len(body)]
    at, piece = draw.choice(ends), draw.choice(PIECES)
    if draw.random() < 0.3:
        return with_checksum(body) + piece, f"{piece!r:.40} at the end"
    return with_checksum(body[:at] + piece + body[at:]), f"{piece!r:.40} at {at}"


def texts_by_hand() -> Iterator[tuple[str, bytes]]:
    """(description, text) of JSON that parsers are known to read differently."""
    body = text_of(good()[0])
    body = body[: body.rfind(b'"crc32"')]
    member = body.index(b'"version"')
    for piece in PIECES:
        yield (
            f"{piece!r:.40} as a member",
            with_checksum(body[:member] + b'"x": ' + piece + b",\n " + body[member:]),
        )
        yield f"{piece!r:.40} first", with_checksum(piece + body)
        yield (
            f"{piece!r:.40} in a string",
            with_checksum(body[:member] + b'"x": "' + piece + b'",\n ' + body[member:]),
        )
        yield f"{piece!r:.40} last", with_checksum(body) + piece
    for levels in (29, 30, 31, 32, 33, 2000, 200_000):
        nested = b'"x": ' + b"[" * levels + b"]" * levels + b",\n "
        yield f"{levels} levels", with_checksum(body[:member] + nested + body[member:])
    yield "a member twice", with_checksum(body[:member] + b'"version": 2,\n ' + body[member:])
    yield "a member twice", with_checksum(body + b'"version": 2,\n ')
    # Two slots with the same name, and an array that is not used, so that the number of arrays is right.
    twice = copy.deepcopy(good()[0])
    twice["optimizer"]["slots"].append(twice["optimizer"]["slots"][0])
    for number, shard in enumerate(twice["shards"]):
        shard["arrays"].update(_described({"more": ("<i8", [3])}, number))
    yield "a slot twice", text_of(twice)
    some = copy.deepcopy(good()[0])
    del some["shards"][1]["arrays"]["frequency"]
    yield "an array in some shards", text_of(some)
    many = document(rows=0, shards=1)
    many["shards"] = [
        {**many["shards"][0], "arrays": _renamed(many["shards"][0]["arrays"], shard)} for shard in range(3)
    ]
    yield "three empty shards", text_of(many)


def _renamed(arrays: dict[str, Any], shard: int) -> dict[str, Any]:
    return {name: {**array, "file": f"shard-{shard:05d}/{name}.npy"} for name, array in arrays.items()}
