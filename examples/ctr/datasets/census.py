"""UCI's census income (Adult), split as published: adult.data is for training, adult.test is held out.

Lines have fourteen columns and the label, separated by a comma and a space; a missing value is `?`.
adult.test may begin with a header (`|1x3 Cross validator`), and its labels end with a dot. Both files may end
with an empty line.
"""

from __future__ import annotations

import re

import tensorflow as tf

from ctr.bad_lines import BadLines
from ctr.batches import WHOLE, Batch, Schema, Share
from ctr.parsing import (
    LineFormat,
    SamplesOfLines,
    explain_undecodable,
    field_ids,
    require_files,
    shown,
    split_columns,
)

_COLUMNS = (
    "age",
    "workclass",
    "fnlwgt",
    "education",
    "education_num",
    "marital_status",
    "occupation",
    "relationship",
    "race",
    "sex",
    "capital_gain",
    "capital_loss",
    "hours_per_week",
    "native_country",
)
_NUMBERS = ("age", "fnlwgt", "education_num", "capital_gain", "capital_loss", "hours_per_week")
_LABEL_PATTERN = r"(<=50K|>50K)\.?"
_PATTERN = (
    "".join((r"[0-9]{1,9}" if column in _NUMBERS else "[^,]*") + r",\s*" for column in _COLUMNS)
    + _LABEL_PATTERN
    + r"\s*"
)


class Census(SamplesOfLines):
    """Whether a person's income is above 50,000 dollars."""

    name = "census"
    schema = Schema(
        # Without fnlwgt, which is the number of people that a line represents.
        dense=("age", "education_num", "capital_gain", "capital_loss", "hours_per_week"),
        one_hot=(
            "workclass",
            "education",
            "marital_status",
            "occupation",
            "relationship",
            "race",
            "sex",
            "native_country",
            "age_bucket",
            "hours_bucket",
            "gain_bucket",
            "loss_bucket",
        ),
        crosses=(
            ("education", "occupation"),
            ("marital_status", "occupation"),
            ("age_bucket", "education"),
            ("age_bucket", "occupation"),
            ("native_country", "occupation"),
        ),
    )

    def __init__(self, data_dir: str, bad_lines: BadLines, share: Share = WHOLE) -> None:
        """Raises FileNotFoundError."""
        training, held_out = require_files(data_dir, ("adult.data", "adult.test"), self.name)
        line_format = LineFormat(_PATTERN, self._parse, _explain, skip=r"\s*|\|1x3 Cross validator\s*")
        super().__init__([training], [held_out], line_format, bad_lines, share)

    def _parse(self, text: tf.Tensor) -> Batch:
        values = tf.strings.strip(split_columns(text, ",", len(_COLUMNS) + 1))
        column = dict(zip(_COLUMNS + ("label",), tf.unstack(values, axis=1)))
        number = {name: tf.strings.to_number(column[name]) for name in _NUMBERS}
        column.update(
            age_bucket=_bucket(number["age"] / 5),
            hours_bucket=_bucket(number["hours_per_week"] / 5),
            gain_bucket=_bucket(tf.math.log1p(number["capital_gain"]) * 4),
            loss_bucket=_bucket(tf.math.log1p(number["capital_loss"]) * 8),
        )
        dense = [
            (number["age"] - 38) / 14,
            (number["education_num"] - 10) / 2.5,
            tf.math.log1p(number["capital_gain"]) / 4,
            tf.math.log1p(number["capital_loss"]) / 4,
            (number["hours_per_week"] - 40) / 12,
        ]
        return {
            "label": tf.cast(tf.strings.regex_full_match(column["label"], r">.*"), tf.float32),
            "dense": tf.stack(dense, axis=1),
            "one_hot": field_ids(
                self.schema.one_hot, tf.stack([column[name] for name in self.schema.one_hot], axis=1)
            ),
        }


def _bucket(values: tf.Tensor) -> tf.Tensor:
    return tf.strings.as_string(tf.cast(values, tf.int64))


def _explain(line: bytes) -> str:
    undecodable = explain_undecodable(line)
    if undecodable:
        return undecodable
    values = [value.strip() for value in line.decode("utf-8").split(",")]
    if len(values) != len(_COLUMNS) + 1:
        return f"{len(values)} columns instead of {len(_COLUMNS) + 1}"
    for column, value in zip(_COLUMNS, values[:-1]):
        if column in _NUMBERS and not re.fullmatch(r"[0-9]{1,9}", value):
            return f"{column} is {shown(value)}, not a whole number"
    return f"the label is {shown(values[-1])}, not <=50K or >50K"
