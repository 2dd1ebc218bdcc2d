"""Arrays of a checkpoint: .npy files with a checksum for each block, read block by block."""

from __future__ import annotations

import functools
import io
import operator
import os
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sparse_operation_kit.checkpoint import table_files
from sparse_operation_kit.checkpoint.errors import CheckpointError
from sparse_operation_kit.checkpoint.paths import open_file

_MAGIC = b"\x93NUMPY\x01\x00"
DATA_ALIGNMENT = 64


@dataclass(frozen=True)
class ArraySpec:
    """The description of an array in a manifest.

    Attributes:
      name: The array's name in the manifest, which is the file's name without its extension.
      file: The file's path, relative to the table's folder.
      dtype: The dtype of the elements, little-endian.
      shape: The shape; the first dimension is the number of rows.
      bytes: The file's size, including the header.
      crc32: CRC-32 of each block of `block_bytes` of the file, including the header.
      block_bytes: The size of all blocks except the last.
    """

    name: str
    file: str
    dtype: np.dtype
    shape: tuple[int, ...]
    bytes: int
    crc32: tuple[int, ...]
    block_bytes: int

    @property
    def data_bytes(self) -> int:
        """The bytes of all elements."""
        return _product(self.shape) * self.dtype.itemsize

    @property
    def row_bytes(self) -> int:
        """The bytes of one row."""
        return _product(self.shape[1:]) * self.dtype.itemsize


def _product(lengths: tuple[int, ...]) -> int:
    """The product as a Python integer, which cannot overflow."""
    return functools.reduce(operator.mul, lengths, 1)


class CheckedArray:
    """An array in a file. Reading checks the checksum of every block that it uses.

    Keeps one block in memory. The file is open only during a read. Not thread-safe.
    """

    def __init__(self, place: Path, spec: ArraySpec) -> None:
        """Does not open the file; the first read reports a missing or damaged file."""
        self.path = table_files.file_of(place, spec.file)
        self.spec = spec
        self._data_start: int | None = None
        self._cached: tuple[int, bytes] = (-1, b"")

    def __len__(self) -> int:
        """Returns the number of rows."""
        return self.spec.shape[0]

    def read(self, begin: int, end: int) -> np.ndarray:
        """Returns the rows in [begin, end), a read-only array.

        Raises:
          CheckpointError: The file is missing, or does not match the manifest.
        """
        shape = (end - begin, *self.spec.shape[1:])
        start = self._start()
        row_bytes = self.spec.row_bytes
        data = self._bytes(start + begin * row_bytes, start + end * row_bytes)
        return np.frombuffer(data, self.spec.dtype).reshape(shape)

    def blocks(self, rows: int) -> Iterator[np.ndarray]:
        """Yields all rows in order, `rows` at a time."""
        for begin in range(0, len(self), rows):
            yield self.read(begin, min(begin + rows, len(self)))

    def check(self) -> None:
        """Reads the whole file and raises CheckpointError if it does not match the manifest."""
        self._start()
        for block in range(len(self.spec.crc32)):
            self._block(block)

    def forget(self) -> None:
        """Frees the block in memory."""
        self._cached = (-1, b"")

    def _start(self) -> int:
        if self._data_start is None:
            self._data_start = self._read_header()
        return self._data_start

    def _read_header(self) -> int:
        head = self._bytes(0, min(self.spec.bytes, 10))
        if len(head) < 10 or head[:8] != _MAGIC:
            raise CheckpointError(self.path, "is not a .npy file of version 1.0")
        start = 10 + int.from_bytes(head[8:10], "little")
        if start % DATA_ALIGNMENT or start > self.spec.bytes:
            raise CheckpointError(
                self.path, f"its header ends at byte {start}, not at a multiple of 64 in it"
            )
        stream = io.BytesIO(self._bytes(8, start))
        try:
            shape, fortran_order, dtype = np.lib.format.read_array_header_1_0(stream)
        except (ValueError, SyntaxError) as error:
            raise CheckpointError(self.path, f"its .npy header cannot be read: {error}") from None
        if fortran_order and len(shape) > 1:
            raise CheckpointError(self.path, "is in Fortran order")
        if shape != self.spec.shape or dtype != self.spec.dtype:
            raise CheckpointError(
                self.path,
                f"holds {dtype.str} {list(shape)}, where the manifest has {self.spec.dtype.str} "
                f"{list(self.spec.shape)}",
            )
        if start + self.spec.data_bytes != self.spec.bytes:
            raise CheckpointError(
                self.path, f"has {self.spec.bytes - start} bytes of data, not {self.spec.data_bytes}"
            )
        return start

    def _bytes(self, begin: int, end: int) -> bytes:
        size = self.spec.block_bytes
        if begin == end:
            return b""
        pieces = []
        for number in range(begin // size, (end - 1) // size + 1):
            block = self._block(number)
            pieces.append(block[max(begin - number * size, 0) : end - number * size])
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _block(self, number: int) -> bytes:
        if self._cached[0] == number:
            return self._cached[1]
        begin = number * self.spec.block_bytes
        length = min(self.spec.block_bytes, self.spec.bytes - begin)
        with open_file(self.path) as file:
            size = os.fstat(file.fileno()).st_size
            if size != self.spec.bytes:
                raise CheckpointError(self.path, f"has {size} bytes, not {self.spec.bytes}")
            try:
                block = _read_fully(file.fileno(), begin, length)
            except OSError as error:
                raise CheckpointError(self.path, f"cannot be read: {error.strerror or error}") from None
        if len(block) != length or zlib.crc32(block) != self.spec.crc32[number]:
            raise CheckpointError(
                self.path, f"is damaged: the checksum of bytes {begin} to {begin + length - 1} is wrong"
            )
        self._cached = (number, block)
        return block


def _read_fully(descriptor: int, begin: int, length: int) -> bytes:
    """Reads up to `length` bytes from `begin`. One call of pread may return fewer."""
    block = os.pread(descriptor, length, begin)
    while block and len(block) < length:
        more = os.pread(descriptor, length - len(block), begin + len(block))
        if not more:
            break
        block += more
    return block


def header(dtype: np.dtype, shape: tuple[int, ...]) -> bytes:
    """Returns the header of a .npy file of version 1.0, padded so that data start at a multiple of 64."""
    text = f"{{'descr': '{dtype.str}', 'fortran_order': False, 'shape': {shape!r}, }}"
    length = -(-(10 + len(text) + 1) // DATA_ALIGNMENT) * DATA_ALIGNMENT
    padded = text + " " * (length - 10 - len(text) - 1) + "\n"
    return _MAGIC + (length - 10).to_bytes(2, "little") + padded.encode("ascii")
