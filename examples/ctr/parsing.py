"""Streams the lines of text files through `tf.data` and parses them block by block with TensorFlow's own ops.

One regular expression (RE2: linear time, and UTF-8 only, so that it rejects what cannot be decoded) sorts
the good lines of a block from the malformed ones. Good lines never enter Python; malformed ones do, to be
explained.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf

from ctr.bad_lines import BadLines, TooManyBadLines
from ctr.schema import Batch
from ctr.share import WHOLE, Share

# Lines that a rank parses with one call: enough to hide the cost of calling, small enough to start at once.
_BLOCK = 2048
# Lines that the shuffle holds: a whole MovieLens, and about 25 MB of Criteo's lines.
_SHUFFLE_BUFFER = 100_000
# More than any file has; a line's place is its number plus so many for each file before its own.
_LINES_PER_FILE = 1 << 40
# Resolution of the held-out fraction.
_SPLIT_BUCKETS = 1 << 20


@dataclasses.dataclass(frozen=True)
class LineFormat:
    """How one kind of line is read."""

    pattern: str  # RE2; a line that does not match it as a whole is malformed
    parse: Callable[[tf.Tensor], Batch]  # string [n], all matching `pattern`, to a batch of n
    explain: Callable[[bytes], str]  # why this line does not match
    skip: str = r"\s*"  # RE2; lines that are neither data nor malformed (empty ones, headers)


@dataclasses.dataclass(frozen=True)
class HeldOut:
    """Which lines are held out: a function of (seed, file number, line number) alone."""

    fraction: float
    seed: int

    def mask(self, file: tf.Tensor, number: tf.Tensor) -> tf.Tensor:
        """Bool [n] for int64 [n] file and line numbers: True for lines that are held out of training."""
        keys = tf.stack([tf.fill(tf.shape(number), np.int64(self.seed)), file, number], axis=1)
        bucket = tf.math.floormod(_fingerprint(keys), _SPLIT_BUCKETS)
        return bucket < int(round(self.fraction * _SPLIT_BUCKETS))


def _fingerprint(data: tf.Tensor) -> tf.Tensor:
    """int64 [n]: FarmHash64 of each entry of the first dimension."""
    return tf.bitcast(tf.fingerprint(data), tf.int64)


def field_ids(fields: Sequence[str], values: tf.Tensor) -> tf.Tensor:
    """int64 [n, fields] for string [n, fields]: the 64-bit hash of "field=value"; empty where missing."""
    keyed = tf.constant([f"{field}=" for field in fields]) + values
    # Flattened, because for a matrix the op would give one fingerprint per row.
    return tf.reshape(_fingerprint(tf.reshape(keyed, [-1])), [-1, len(fields)])


def combined_ids(ids: tf.Tensor) -> tf.Tensor:
    """int64 [n, m] for int64 [n, m, k]: one id for each combination of k ids."""
    _, combinations, size = ids.shape
    return tf.reshape(_fingerprint(tf.reshape(ids, [-1, size])), [-1, combinations])


def explain_undecodable(line: bytes) -> str | None:
    """Says where a line stops being UTF-8, or None where it is."""
    try:
        line.decode("utf-8")
    except UnicodeDecodeError as error:
        return f"byte {line[error.start]:#04x} at position {error.start} is not UTF-8"
    return None


def shown(value: str, width: int = 40) -> str:
    """A field as a message quotes it, cut to `width` characters."""
    return repr(value if len(value) <= width else value[:width] + "…")


def _numbered_lines(paths: Sequence[str]) -> tf.data.Dataset:
    """(place, text), line by line; `_file_and_number` says where a place is."""

    def lines_of(file: tf.Tensor, path: tf.Tensor) -> tf.data.Dataset:
        # One number for both, counted by a dataset: a function call for each line, or a dataset that repeats
        # the file's number, costs several times the reading of it.
        places = tf.data.Dataset.range(file * _LINES_PER_FILE + 1, (file + 1) * _LINES_PER_FILE)
        return tf.data.Dataset.zip((places, tf.data.TextLineDataset(path, buffer_size=1 << 20)))

    files = tf.data.Dataset.from_tensor_slices((np.arange(len(paths), dtype=np.int64), list(paths)))
    return files.flat_map(lines_of)


def _file_and_number(place: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """The file's position in the list of paths, and the line's number from 1."""
    return place // _LINES_PER_FILE, place % _LINES_PER_FILE


def read(
    paths: Sequence[str],
    line_format: LineFormat,
    bad_lines: BadLines,
    batch_size: int,
    keep: Callable[[tf.Tensor, tf.Tensor], tf.Tensor] | None = None,
    shuffle_seed: tf.Tensor | None = None,
    share: Share = WHOLE,
) -> tf.data.Dataset:
    """Streams the parsed lines of `paths` in batches of `batch_size`; the last may be smaller.

    keep(file numbers, line numbers) is a bool mask of the lines to read; None reads all. With `shuffle_seed`,
    a scalar int64 tensor, lines come in the order that this seed gives. Of the lines to read, in this order,
    only those of `share` are parsed. The stream ends early where there are too many malformed lines.
    """

    def report(file: np.ndarray, number: np.ndarray, text: np.ndarray) -> np.bool_:
        try:
            for file_number, line_number, line in zip(file, number, text, strict=True):
                bad_lines.add(paths[int(file_number)], int(line_number), line_format.explain(line))
        except TooManyBadLines:
            # Not an error here, where one rank would fail alone; the training loop asks the ledger.
            return np.True_
        return np.False_

    def kept_lines(place: tf.Tensor, text: tf.Tensor) -> tuple[tf.Tensor, ...]:
        file, number = _file_and_number(place)
        kept = tf.logical_not(tf.strings.regex_full_match(text, line_format.skip))
        if keep is not None:
            kept = tf.logical_and(kept, keep(file, number))
        return tuple(tf.boolean_mask(tensor, kept) for tensor in (file, number, text))

    def parse_block(*block: tf.Tensor) -> tuple[Batch, tf.Tensor]:
        file, number, text = (tensor[share.rank :: share.ranks] for tensor in block)
        good = tf.strings.regex_full_match(text, line_format.pattern)
        bad = tf.logical_not(good)
        bad_block = [tf.boolean_mask(tensor, bad) for tensor in (file, number, text)]
        too_many = tf.cond(
            tf.reduce_any(bad),
            lambda: tf.ensure_shape(tf.numpy_function(report, bad_block, tf.bool), []),
            lambda: tf.constant(False),
        )
        return line_format.parse(tf.boolean_mask(text, good)), too_many

    lines = _numbered_lines(paths)
    if shuffle_seed is not None:
        lines = lines.shuffle(_SHUFFLE_BUFFER, seed=shuffle_seed)
    # A multiple of the ranks, so that every `ranks`-th line of a block is every `ranks`-th of the stream.
    block = _BLOCK * share.ranks
    blocks = lines.batch(block).map(kept_lines).rebatch(block)
    parsed = blocks.map(parse_block, num_parallel_calls=2).take_while(
        lambda _, too_many: tf.logical_not(too_many)
    )
    return parsed.map(lambda batch, _: batch).rebatch(batch_size).prefetch(2)


def estimated_lines(paths: Sequence[str], sample_bytes: int = 16 << 20) -> int:
    """Lines in `paths`: exact for files up to `sample_bytes`, else by the mean length of the first lines."""
    total = 0
    for path in paths:
        with open(path, "rb") as stream:
            head = stream.read(sample_bytes)
        if head:
            lines = head.count(b"\n") + (not head.endswith(b"\n"))
            total += lines * os.path.getsize(path) // len(head)
    return total


def require_files(data_dir: str, names: Sequence[str], dataset: str) -> list[str]:
    """The paths of `names` in `data_dir`; FileNotFoundError that says what is missing and where."""
    paths = [os.path.join(data_dir, name) for name in names]
    missing = [name for name, path in zip(names, paths, strict=True) if not os.path.isfile(path)]
    if missing:
        raise FileNotFoundError(
            f"--dataset {dataset} needs {', '.join(names)} in --data_dir: "
            f"{data_dir!r} has no {', '.join(missing)}"
        )
    return paths
