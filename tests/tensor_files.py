"""Writes checkpoints of TensorFlow's format in the simplest way: `P.index`, and data files of tensors.

The index is a table file of LevelDB with one block: entries in the order of their keys, each a protocol
buffer.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

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


def write(
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
