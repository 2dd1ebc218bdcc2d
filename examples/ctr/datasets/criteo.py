"""Criteo's display-advertising data as published: lines of a label, 13 integers and 26 hashed categories.

Columns are tab-separated. An empty column is a missing value; empty categories at the end of a line may be
omitted. `--data_dir` has `train.txt` (the Kaggle challenge) or `day_0`, `day_1`, … (the terabyte logs).
Held-out lines are chosen by a hash of their number, which needs no memory.
"""

from __future__ import annotations

import os
import re

import tensorflow as tf

from ctr.bad_lines import BadLines
from ctr.batches import WHOLE, Batch, Schema, Share
from ctr.parsing import (
    HeldOut,
    LineFormat,
    SamplesOfLines,
    explain_undecodable,
    field_ids,
    require_files,
    shown,
    split_columns,
)

_INTEGERS = 13
_CATEGORIES = 26
_COLUMNS = 1 + _INTEGERS + _CATEGORIES
_PATTERN = r"[01](\t(-?[0-9]{1,18})?){13}(\t[^\t]*){0,26}"


class Criteo(SamplesOfLines):
    """Whether an advertisement was clicked."""

    name = "criteo"
    # Integers are used twice: as numbers, and in buckets as categories, which represent missing values too.
    schema = Schema(
        dense=tuple(f"I{column}" for column in range(1, _INTEGERS + 1)),
        one_hot=tuple(f"C{column}" for column in range(1, _CATEGORIES + 1))
        + tuple(f"I{column}" for column in range(1, _INTEGERS + 1)),
    )

    def __init__(
        self,
        data_dir: str,
        seed: int,
        held_out_fraction: float,
        bad_lines: BadLines,
        share: Share = WHOLE,
    ) -> None:
        """Raises FileNotFoundError."""
        paths, split = _find_files(data_dir), HeldOut(held_out_fraction, seed)
        line_format = LineFormat(_PATTERN, self._parse, _explain)
        super().__init__(paths, paths, line_format, bad_lines, share, split)

    def _parse(self, text: tf.Tensor) -> Batch:
        columns = split_columns(text, "\t", _COLUMNS)
        integers = columns[:, 1 : 1 + _INTEGERS]
        missing = tf.equal(integers, "")
        numbers = tf.strings.to_number(tf.where(missing, tf.fill(tf.shape(integers), "0"), integers))
        # Counts are heavy-tailed, and a few are negative.
        logs = tf.math.log1p(tf.maximum(numbers, 0))
        # Buckets of the squared logarithm, which are narrow for small counts, where most of the information
        # is.
        buckets = tf.where(numbers > 2, tf.math.floor(tf.square(logs)), numbers)
        bucket_names = tf.strings.as_string(tf.cast(tf.maximum(buckets, -3), tf.int64))
        bucket_names = tf.where(missing, tf.zeros_like(bucket_names), bucket_names)
        categories = tf.concat([columns[:, 1 + _INTEGERS :], bucket_names], axis=1)
        return {
            "label": tf.strings.to_number(columns[:, 0]),
            "dense": logs / 3,
            "one_hot": field_ids(self.schema.one_hot, categories),
        }


def _find_files(data_dir: str) -> list[str]:
    if os.path.isdir(data_dir):
        days = [name for name in os.listdir(data_dir) if re.fullmatch(r"day_\d+", name)]
        if days:
            return [os.path.join(data_dir, name) for name in sorted(days, key=lambda day: int(day[4:]))]
    return require_files(data_dir, ("train.txt",), Criteo.name)


def _explain(line: bytes) -> str:
    undecodable = explain_undecodable(line)
    if undecodable:
        return undecodable
    values = line.decode("utf-8").split("\t")
    if not 1 + _INTEGERS <= len(values) <= _COLUMNS:
        return f"{len(values)} columns instead of {_COLUMNS}"
    for position, value in enumerate(values[1 : 1 + _INTEGERS], start=1):
        if not re.fullmatch(r"(-?[0-9]{1,18})?", value):
            return f"I{position} is {shown(value)}, not a whole number"
    return f"the label is {shown(values[0])}, not 0 or 1"
