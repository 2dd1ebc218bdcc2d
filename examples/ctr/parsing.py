"""Streams the lines of text files through `tf.data` and parses them block by block with TensorFlow's ops.

A regular expression separates the good lines of a block from the malformed ones. It is an RE2 expression: its
time is linear, and it rejects lines that are not UTF-8. Python code only sees malformed lines, to explain the
error.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from ctr.bad_lines import BadLines, TooManyBadLines
from ctr.batches import WHOLE, Batch, Share, rebatch, take_while

# Lines that a rank parses per call: enough that the cost of a call does not matter, and few enough to start
# quickly.
_BLOCK = 2048
# Lines in the shuffle buffer: all of MovieLens, and about 25 MB of Criteo's lines.
_SHUFFLE_BUFFER = 100_000
# More than any file has. The place of a line is its number plus this times the index of its file.
_LINES_PER_FILE = 1 << 40
# Resolution of the held-out fraction.
_SPLIT_BUCKETS = 1 << 20


@dataclasses.dataclass(frozen=True)
class LineFormat:
    """How to read the lines of a data set."""

    pattern: str  # RE2; a line that does not fully match is malformed
    parse: Callable[[tf.Tensor], Batch]  # from string [n], all of which match `pattern`, to a batch of n
    explain: Callable[[bytes], str]  # explains why a line does not match
    skip: str = r"\s*"  # RE2; lines that are neither data nor malformed (empty ones, headers)


@dataclasses.dataclass(frozen=True)
class HeldOut:
    """Which lines are held out: a function of (seed, file number, line number)."""

    fraction: float
    seed: int

    def mask(self, file: tf.Tensor, number: tf.Tensor) -> tf.Tensor:
        """Bool [n] for int64 [n] file and line numbers: True for lines that are held out of training."""
        keys = tf.stack([tf.fill(tf.shape(number), np.int64(self.seed)), file, number], axis=1)
        bucket = tf.math.floormod(_fingerprint(keys), _SPLIT_BUCKETS)
        return bucket < int(round(self.fraction * _SPLIT_BUCKETS))


def _fingerprint(data: tf.Tensor) -> tf.Tensor:
    """int64 [n]: FarmHash64 of each entry of the first dimension."""
    # Without entries, the op of TensorFlow 1.15 divides by zero, which ends the process.
    hashes = tf.cond(tf.size(data) > 0, lambda: tf.fingerprint(data), lambda: tf.zeros([0, 8], tf.uint8))
    return tf.bitcast(hashes, tf.int64)


def field_ids(fields: Sequence[str], values: tf.Tensor) -> tf.Tensor:
    """int64 [n, fields]: the 64-bit hashes of "field=value" for string [n, fields], "" for missing values."""
    keyed = tf.constant([f"{field}=" for field in fields]) + values
    # Flattened, because the op would compute one fingerprint per row of a matrix.
    return tf.reshape(_fingerprint(tf.reshape(keyed, [-1])), [-1, len(fields)])


def combined_ids(ids: tf.Tensor) -> tf.Tensor:
    """int64 [n, m] for int64 [n, m, k]: one id for each combination of k ids."""
    _, combinations, size = ids.shape.as_list()
    return tf.reshape(_fingerprint(tf.reshape(ids, [-1, size])), [-1, combinations])


def split_columns(text: tf.Tensor, separator: str, count: int) -> tf.Tensor:
    """The columns of string [n]: string [n, count]. Missing columns at the end of a line are empty.

    A line with more columns raises an error that shows the line: the separator is wrong or the file is
    damaged, and dropping columns would hide that.
    """
    # By version 1's function, because TensorFlow 1.15 has RaggedTensors without `to_tensor(shape=...)`.
    columns = tf.compat.v1.strings.split(text, separator)
    too_long = tf.gather(text, tf.boolean_mask(columns.indices[:, 0], columns.indices[:, 1] >= count))
    message = f"A line has more than {count} columns"
    check = tf.compat.v1.assert_equal(tf.size(too_long), 0, data=[message, too_long], summarize=1)
    shape = tf.stack([tf.size(text, out_type=tf.int64), count])
    with tf.control_dependencies([check]):
        values = tf.identity(columns.values)
    return tf.ensure_shape(
        tf.sparse.to_dense(tf.SparseTensor(columns.indices, values, shape), ""), [None, count]
    )


def explain_undecodable(line: bytes) -> str | None:
    """Tells where a line is not UTF-8; None if it is UTF-8."""
    try:
        line.decode("utf-8")
    except UnicodeDecodeError as error:
        return f"byte {line[error.start]:#04x} at position {error.start} is not UTF-8"
    return None


def shown(value: str, width: int = 40) -> str:
    """A field for a message: quoted, and cut to `width` characters."""
    return repr(value if len(value) <= width else value[:width] + "…")


def _numbered_lines(paths: Sequence[str]) -> tf.data.Dataset:
    """(place, text) of each line; `_file_and_number` decodes the place."""

    @tf.autograph.experimental.do_not_convert  # see `read`
    def lines_of(file: tf.Tensor, path: tf.Tensor) -> tf.data.Dataset:
        # One number encodes file and line, because it can be counted by a dataset. A function call per line,
        # or a dataset that repeats the file's number, would take several times as long as reading the line.
        places = tf.data.Dataset.range(file * _LINES_PER_FILE + 1, (file + 1) * _LINES_PER_FILE)
        return tf.data.Dataset.zip((places, tf.data.TextLineDataset(path, buffer_size=1 << 20)))

    files = tf.data.Dataset.from_tensor_slices((np.arange(len(paths), dtype=np.int64), list(paths)))
    return files.flat_map(lines_of)


def _file_and_number(place: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """The index of the file in the list of paths, and the number of the line, from 1."""
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
    a scalar int64 tensor, lines are shuffled by this seed. Of the lines to read, in this order, only those of
    `share` are parsed. The stream ends early if there are too many malformed lines.
    """

    def report(file: np.ndarray, number: np.ndarray, text: np.ndarray) -> np.bool_:
        try:
            for file_number, line_number, line in zip(file, number, text):
                bad_lines.add(paths[int(file_number)], int(line_number), line_format.explain(line))
        except TooManyBadLines:
            # Not raised here, where only one rank would fail; the training loop checks `bad_lines` on all
            # ranks.
            return np.True_
        return np.False_

    # No function here branches on a tensor in Python, and AutoGraph would take a second to convert them.
    @tf.autograph.experimental.do_not_convert
    def kept_lines(place: tf.Tensor, text: tf.Tensor) -> tuple[tf.Tensor, ...]:
        file, number = _file_and_number(place)
        kept = tf.logical_not(tf.strings.regex_full_match(text, line_format.skip))
        if keep is not None:
            kept = tf.logical_and(kept, keep(file, number))
        return tuple(tf.boolean_mask(tensor, kept) for tensor in (file, number, text))

    @tf.autograph.experimental.do_not_convert
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
    # A multiple of `ranks`, so that every `ranks`-th line of a block is every `ranks`-th line of the stream.
    block = _BLOCK * share.ranks
    blocks = rebatch(lines.batch(block).map(kept_lines), block)
    parsed = blocks.map(parse_block, num_parallel_calls=2)
    good = take_while(parsed, lambda _, too_many: tf.logical_not(too_many))
    batches = good.map(tf.autograph.experimental.do_not_convert(lambda batch, _: batch))
    return rebatch(batches, batch_size).prefetch(2)


def estimated_lines(paths: Sequence[str], sample_bytes: int = 16 << 20) -> int:
    """Lines in `paths`: exact for files up to `sample_bytes`, else estimated from the file's beginning."""
    total = 0
    for path in paths:
        with open(path, "rb") as stream:
            head = stream.read(sample_bytes)
        if head:
            lines = head.count(b"\n") + (not head.endswith(b"\n"))
            total += lines * os.path.getsize(path) // len(head)
    return total


def require_files(data_dir: str, names: Sequence[str], dataset: str) -> list[str]:
    """The paths of `names` in `data_dir`. Raises FileNotFoundError with the missing names."""
    paths = [os.path.join(data_dir, name) for name in names]
    missing = [name for name, path in zip(names, paths) if not os.path.isfile(path)]
    if missing:
        raise FileNotFoundError(
            f"--dataset {dataset} needs {', '.join(names)} in --data_dir: "
            f"{data_dir!r} has no {', '.join(missing)}"
        )
    return paths


class SamplesOfLines:
    """The base class of data sets whose samples are lines of files."""

    def __init__(
        self,
        training: Sequence[str],
        held_out: Sequence[str],
        line_format: LineFormat,
        bad_lines: BadLines,
        share: Share,
        split: HeldOut | None = None,
    ) -> None:
        """Paths of the lines to train on, and of those held out; the same paths with a `split`."""
        self._training, self._held_out = training, held_out
        self._format, self._bad_lines, self._share, self._split = line_format, bad_lines, share, split

    def training(self, batch_size: int, shuffle_seed: tf.Tensor) -> tf.data.Dataset:
        """One epoch; lines are shuffled by the seed, within a window of the stream."""
        split = self._split
        keep = None if split is None else lambda *line: tf.logical_not(split.mask(*line))
        return self._read(self._training, batch_size, keep, shuffle_seed)

    def held_out(self, batch_size: int) -> tf.data.Dataset:
        """The held-out lines, in the order of the files."""
        return self._read(self._held_out, batch_size, self._split and self._split.mask, None)

    def training_size(self) -> int:
        """Estimated samples per epoch over all ranks."""
        fraction = 0 if self._split is None else self._split.fraction
        return round(estimated_lines(self._training) * (1 - fraction))

    def _read(self, paths: Sequence[str], batch_size: int, *how: Any) -> tf.data.Dataset:
        return read(paths, self._format, self._bad_lines, batch_size, *how, self._share)
