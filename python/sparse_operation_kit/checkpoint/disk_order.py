"""Puts rows that memory does not hold into another order, by way of a file."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

# Bytes of the rows that are put into order at once.
_BUCKET_BYTES = 8 << 20


def in_order(
    folder: Path | None, rows: int, pieces: Iterable[tuple[np.ndarray, dict[str, np.ndarray]]]
) -> Iterator[tuple[int, int, np.ndarray, dict[str, np.ndarray]]]:
    """Yields rows by their places, for consecutive ranges of all places.

    Memory: a few ranges' rows, some 8 MiB each. Disk: that of the rows, in a file without a name.

    Args:
      folder: Where the file can be; None: in the folder for temporary files.
      rows: The number of places.
      pieces: Places int64 [n] in [0, rows), each at most once over all pieces, and n rows of each column.

    Yields:
      The range's first place and the one after its last, and the places of it that have a row, less the
      first, with their rows of each column.

    Raises:
      OSError: The disk has no room.
    """
    pieces = iter(pieces)
    first = next(pieces, None)
    columns = {} if first is None else first[1]
    record = np.dtype(
        [("place", np.int64), *((name, array.dtype, array.shape[1:]) for name, array in columns.items())]
    )
    of_bucket = max(1, _BUCKET_BYTES // record.itemsize)
    counts = np.zeros([-(-rows // of_bucket)], np.int64)
    with tempfile.TemporaryFile(dir=folder) as file:
        for places, arrays in [] if first is None else itertools.chain([first], pieces):
            records = np.empty([len(places)], record)
            records["place"] = places
            for name, array in arrays.items():
                records[name] = array
            buckets = places // of_bucket
            order = np.argsort(buckets, kind="stable")
            records, buckets = records[order], buckets[order]
            for begin, end in _runs(buckets):
                bucket = buckets[begin]
                file.seek((bucket * of_bucket + counts[bucket]) * record.itemsize)
                file.write(records[begin:end].tobytes())
                counts[bucket] += end - begin
        for bucket, count in enumerate(counts):
            begin = bucket * of_bucket
            file.seek(begin * record.itemsize)
            records = np.frombuffer(file.read(count * record.itemsize), record)
            arrays = {name: records[name] for name in columns}
            yield begin, min(begin + of_bucket, rows), records["place"] - begin, arrays


def _runs(ordered: np.ndarray) -> Iterator[tuple[int, int]]:
    """Yields where the equal numbers of an array begin and end."""
    edges = [0, *(np.flatnonzero(np.diff(ordered)) + 1).tolist(), len(ordered)]
    yield from zip(edges[:-1], edges[1:])
