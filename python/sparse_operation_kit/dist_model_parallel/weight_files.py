"""Whole tables in `.npy` files, which are read and written in parts."""

from __future__ import annotations

import contextlib
import errno
import os
import uuid
from collections.abc import Iterator
from typing import Any

import numpy as np


def mapped(path: Any, who: str) -> np.ndarray:
    """Returns the array of a `.npy` file, mapped into memory to be read.

    Args:
      path: of the file.
      who: what the array is, in messages.

    Raises:
      OSError, ValueError: it cannot be read, or is no `.npy` file; the message names the array and the path.
    """
    try:
        with _named_errors(who, os.fspath(path)):
            loaded = np.load(path, mmap_mode="r")
    except (EOFError, ValueError) as error:
        raise ValueError(f"{who}: {os.fspath(path)} is no .npy file: {error}") from error
    if not isinstance(loaded, np.ndarray):
        loaded.close()
        raise ValueError(f"{who}: {os.fspath(path)} is no .npy file, but an archive of several")
    return loaded


@contextlib.contextmanager
def _named_errors(who: str, path: str) -> Iterator[None]:
    """Errors of files name what they are about, too."""
    try:
        yield
    except OSError as error:
        # Makes an error of the subclass that belongs to the number.
        raise OSError(error.errno, f"{who}: {error.strerror or error}", path) from error


class TableFile:
    """Writes a `.npy` file of a float32 table from its first row to its last.

    The file is written in the same folder under another name until `finish`. So an earlier file of that name
    stays whole if writing fails, and arrays that are mapped from it keep their values. It is open only while
    rows are added, as there may be many. Rows are not written through a mapping: a full disk would end the
    process then, and here it is an error.

    Args:
      path: of the file.
      rows, columns: of the table.
      who: the table, in messages.

    Raises:
      OSError, ValueError: the file cannot be made; the message names the table and the path.
    """

    def __init__(self, path: str, rows: int, columns: int, who: str) -> None:
        self._path = path
        self._columns = columns
        self._who = who
        self._written = f"{path}.{uuid.uuid4().hex}.writing"
        if not path or "\0" in path:
            raise ValueError(f"{who}: {path!r} is no path of a file")
        header = {"descr": "<f4", "fortran_order": False, "shape": (rows, columns)}
        with _named_errors(self._who, self._path):
            if os.path.isdir(path):
                raise OSError(errno.EISDIR, os.strerror(errno.EISDIR))
            try:
                with open(self._written, "xb") as file:
                    np.lib.format.write_array_header_1_0(file, header)
            except Exception:
                self.discard()
                raise

    def space(self, rows: int) -> np.ndarray:
        """Memory for the next rows, of which only one part is in memory at a time."""
        return np.empty([rows, self._columns], np.float32)

    def add(self, rows: np.ndarray) -> None:
        """Adds the next rows, a C-contiguous float32 array [n, columns].

        Raises:
          OSError: they cannot be written; the message names the table and the path.
        """
        with _named_errors(self._who, self._path), open(self._written, "ab") as file:
            file.write(rows.astype("<f4", copy=False).data.cast("B"))

    def finish(self) -> np.ndarray:
        """Gives the file its name, once all rows are added; returns the table, mapped into memory.

        Raises:
          OSError: as for `add`.
        """
        with _named_errors(self._who, self._path):
            with open(self._written, "rb") as file:
                os.fsync(file.fileno())
            os.replace(self._written, self._path)
        return mapped(self._path, self._who)

    def discard(self) -> None:
        """Removes what was written, unless the file has its name."""
        with contextlib.suppress(OSError):
            os.unlink(self._written)
