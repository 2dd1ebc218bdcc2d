"""MovieLens 100K as published by GroupLens: u.data, u.user and u.item. A rating of 4 or 5 is a click.

u.data   user id, item id, rating, time of the rating; tab-separated
u.user   user id | age | gender | occupation | zip code
u.item   movie id | title | release date | video release date | URL | 19 genre flags; latin-1

A random fraction of the ratings, chosen by the seed, is held out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf

from ctr.bad_lines import BadLines
from ctr.batches import WHOLE, Batch, Schema, Share
from ctr.parsing import (
    HeldOut,
    LineFormat,
    SamplesOfLines,
    field_ids,
    require_files,
    shown,
    split_columns,
)

_GENRES = 19
_USER_FIELDS = ("age", "gender", "occupation", "zip")
_ITEM_FIELDS = ("year",)
_RATING_PATTERN = r"[0-9]{1,18}\t[0-9]{1,18}\t[1-5]\t[0-9]{1,18}"


class MovieLens(SamplesOfLines):
    """Ratings joined with the features of their users and movies."""

    name = "movielens"
    schema = Schema(
        dense=("age", "year"),
        one_hot=("user", "item") + _USER_FIELDS + _ITEM_FIELDS,
        multi_hot=("genres",),
        max_nnz=_GENRES,
        crosses=(("gender", "item"), ("age", "item"), ("occupation", "item")),
    )

    def __init__(
        self,
        data_dir: str,
        seed: int,
        held_out_fraction: float,
        bad_lines: BadLines,
        share: Share = WHOLE,
    ) -> None:
        """Reads u.user and u.item; ratings are streamed later. Raises FileNotFoundError, TooManyBadLines."""
        ratings, users, items = require_files(data_dir, ("u.data", "u.user", "u.item"), self.name)
        line_format = LineFormat(_RATING_PATTERN, self._parse, _explain_rating)
        split = HeldOut(held_out_fraction, seed)
        super().__init__([ratings], [ratings], line_format, bad_lines, share, split)
        # Every rank reads these files completely; only the first rank reports their malformed lines.
        side_lines = bad_lines if share.rank == 0 else None
        self._users = _Users(_read_side_file(users, "utf-8", _parse_user, side_lines))
        self._items = _Items(_read_side_file(items, "latin-1", _parse_item, side_lines))

    def _parse(self, text: tf.Tensor) -> Batch:
        # All lines matched the pattern, so every one has four columns.
        columns = split_columns(text, "\t", 4)
        users, items = self._users.lookup(columns[:, 0]), self._items.lookup(columns[:, 1])
        one_hot = tf.concat([columns[:, :2], users["fields"], items["fields"]], axis=1)
        genres = tf.constant([[f"genre={genre}" for genre in range(_GENRES)]])
        genre_ids = field_ids(("genres",) * _GENRES, genres)
        return {
            "label": tf.cast(tf.strings.to_number(columns[:, 2]) >= 4, tf.float32),
            "dense": tf.stack([users["age"], items["year"]], axis=1),
            "one_hot": field_ids(self.schema.one_hot, one_hot),
            "multi_hot": tf.tile(genre_ids[:, tf.newaxis, :], [tf.shape(text)[0], 1, 1]),
            "multi_hot_present": items["genres"][:, tf.newaxis, :],
        }


class _Joined:
    """Columns by id; row 0 has the values of unknown ids."""

    def __init__(self, ids: Sequence[int]) -> None:
        # Row 0 has the id -1, which no line can have, because the pattern allows no sign.
        self._ids = np.array([-1] + list(ids), np.int64)

    def rows(self, ids: tf.Tensor) -> tf.Tensor:
        """int64 [n]: the rows of string [n] decimal ids."""
        numbers = tf.strings.to_number(ids, tf.int64)
        found = tf.searchsorted(self._ids, numbers, out_type=tf.int64)
        found = tf.minimum(found, len(self._ids) - 1)
        return tf.where(tf.equal(tf.gather(self._ids, found), numbers), found, tf.zeros_like(found))


class _Users(_Joined):
    def __init__(self, lines: dict[int, tuple[int, str, str, str]]) -> None:
        super().__init__(sorted(lines))
        users = [lines[user] for user in sorted(lines)]
        self._fields = np.array(
            [[""] * len(_USER_FIELDS)] + [[f"{min(age, 99) // 5}", *rest] for age, *rest in users]
        )
        self._age = np.array([0.0] + [(user[0] - 33) / 12 for user in users], np.float32)

    def lookup(self, ids: tf.Tensor) -> dict[str, tf.Tensor]:
        rows = self.rows(ids)
        return {"fields": tf.gather(self._fields, rows), "age": tf.gather(self._age, rows)}


class _Items(_Joined):
    def __init__(self, lines: dict[int, tuple[str, list[bool]]]) -> None:
        super().__init__(sorted(lines))
        items = [lines[item] for item in sorted(lines)]
        self._fields = np.array([[""]] + [[year] for year, _ in items])
        self._year = np.array(
            [0.0] + [(int(year) - 1985) / 15 if year else 0.0 for year, _ in items], np.float32
        )
        self._genres = np.array([[False] * _GENRES] + [genres for _, genres in items])

    def lookup(self, ids: tf.Tensor) -> dict[str, tf.Tensor]:
        rows = self.rows(ids)
        return {
            "fields": tf.gather(self._fields, rows),
            "year": tf.gather(self._year, rows),
            "genres": tf.gather(self._genres, rows),
        }


def _parse_user(line: str) -> tuple[int, tuple[int, str, str, str]]:
    columns = _split(line, "|", 5)
    # The first three characters of a zip code name a region; whole zip codes would identify single users.
    return _whole_number(columns, 0), (_whole_number(columns, 1), columns[2], columns[3], columns[4][:3])


def _parse_item(line: str) -> tuple[int, tuple[str, list[bool]]]:
    columns = _split(line, "|", 5 + _GENRES)
    date = re.fullmatch(r"(\d{1,2}-[A-Z][a-z][a-z]-(\d{4}))?", columns[2])
    if not date:
        raise ValueError(f"column 3 is {shown(columns[2])}, not a date like 01-Jan-1995")
    for position, flag in enumerate(columns[5:], start=6):
        if flag not in ("0", "1"):
            raise ValueError(f"column {position} is {shown(flag)}, not 0 or 1")
    return _whole_number(columns, 0), (date.group(2) or "", [flag == "1" for flag in columns[5:]])


def _explain_rating(line: bytes) -> str:
    try:
        columns = _split(line.decode("latin-1"), "\t", 4)
        for position in (0, 1, 3):
            _whole_number(columns, position)
    except ValueError as error:
        return str(error)
    return f"column 3 is {shown(columns[2])}, not a rating from 1 to 5"


def _split(line: str, separator: str, count: int) -> list[str]:
    columns = line.split(separator)
    if len(columns) != count:
        raise ValueError(f"{len(columns)} columns instead of {count}")
    return columns


def _whole_number(columns: Sequence[str], position: int) -> int:
    if not re.fullmatch(r"[0-9]{1,18}", columns[position]):
        raise ValueError(f"column {position + 1} is {shown(columns[position])}, not a whole number")
    return int(columns[position])


def _read_side_file(
    path: str, encoding: str, parse: Callable, bad_lines: BadLines | None
) -> dict[int, tuple]:
    """{id: values} of a small file; of several lines with the same id, the last one counts."""
    values = {}
    with open(path, "rb") as stream:
        for number, line in enumerate(stream, start=1):
            try:
                text = line.decode(encoding).rstrip("\r\n")
                if text.strip():
                    key, columns = parse(text)
                    values[key] = columns
            except ValueError as error:  # includes UnicodeDecodeError
                if bad_lines is not None:
                    bad_lines.add(path, number, str(error))
    return values
