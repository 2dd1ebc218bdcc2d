"""Parquet files of census income, Criteo and MovieLens 100K, from the published files or generated."""

from __future__ import annotations

import collections
import os
import random
from typing import Any

import pyarrow
import pyarrow.parquet

PARTS = 4
# One sample in this many is held out.
HELD_OUT = 5
HISTORY = 20

CENSUS_NUMBERS = ["age", "education_num", "capital_gain", "capital_loss", "hours_per_week"]
CENSUS_CATEGORIES = [
    "workclass",
    "education",
    "marital_status",
    "occupation",
    "relationship",
    "race",
    "gender",
    "native_country",
]
CRITEO_NUMBERS = [f"I{column}" for column in range(1, 14)]
CRITEO_CATEGORIES = [f"C{column}" for column in range(1, 27)]
MOVIELENS_USER = ["user", "gender", "occupation", "zip"]
# The labels of each data set. A film is liked with four stars or more.
LABELS = {"census": ["label"], "criteo": ["label"], "movielens": ["watched", "liked", "loved"]}

Columns = "dict[str, list[Any]]"


def write_parquet(name: str, data_location: str | None, samples: int | None, folder: str) -> tuple:
    """Writes `PARTS` files of training samples and one of held-out samples: (their paths, its path)."""
    columns = _READERS[name](data_location, samples) if data_location else _GENERATORS[name](samples or 4000)
    rows = len(columns[LABELS[name][0]])
    parts = [[row for row in range(rows) if row % HELD_OUT and row % PARTS == part] for part in range(PARTS)]
    paths = [os.path.join(folder, f"train-{part}.parquet") for part in range(PARTS)]
    held_out = os.path.join(folder, "held_out.parquet")
    for path, chosen in zip([*paths, held_out], [*parts, range(0, rows, HELD_OUT)]):
        table = {key: [values[row] for row in chosen] for key, values in columns.items()}
        # Ranks share a file by its row groups.
        groups = max(1, len(chosen) // 4)
        pyarrow.parquet.write_table(
            pyarrow.table(table, schema=_schema(columns)), path, row_group_size=groups
        )
    return paths, held_out


def _schema(columns: Columns) -> pyarrow.Schema:
    types = {float: pyarrow.float32(), int: pyarrow.int64(), str: pyarrow.string()}

    def type_of(name: str, value: Any) -> pyarrow.DataType:
        return (
            pyarrow.list_(types[int if name == "history" else str])
            if isinstance(value, list)
            else types[type(value)]
        )

    return pyarrow.schema([(name, type_of(name, values[0])) for name, values in columns.items()])


def _empty() -> Columns:
    return collections.defaultdict(list)


def _lines(folder: str, name: str, encoding: str = "utf-8") -> list[str]:
    with open(os.path.join(folder, name), encoding=encoding) as file:
        return [line.rstrip("\n") for line in file]


def _census(folder: str, samples: int | None) -> Columns:
    columns = _empty()
    for line in _lines(folder, "adult.data")[:samples]:
        values = [value.strip() for value in line.split(",")]
        if len(values) != 15:  # the last line is empty
            continue
        for name, place in zip(CENSUS_NUMBERS, (0, 4, 10, 11, 12)):
            columns[name].append(float(values[place]))
        for name, place in zip(CENSUS_CATEGORIES, (1, 3, 5, 6, 7, 8, 9, 13)):
            columns[name].append(values[place])
        columns["label"].append(float(values[14] == ">50K"))
    return columns


def _generated_census(samples: int) -> Columns:
    generator = random.Random(1)
    columns = _empty()
    for _ in range(samples):
        age, job = generator.randint(18, 80), generator.randrange(12)
        for name in CENSUS_NUMBERS:
            columns[name].append(float(generator.randrange(10)))
        for name in CENSUS_CATEGORIES:
            columns[name].append(f"{name} {generator.randrange(9)}")
        columns["age"][-1], columns["occupation"][-1] = float(age), f"job {job}"
        columns["label"].append(float(age + 5 * job + generator.randrange(20) > 85))
    return columns


def _criteo(folder: str, samples: int | None) -> Columns:
    columns = _empty()
    for line in _lines(folder, "train.txt")[:samples]:
        # Some lines lack empty columns at their end.
        values = (line.split("\t") + [""] * 40)[:40]
        columns["label"].append(float(values[0]))
        for name, value in zip(CRITEO_NUMBERS, values[1:14]):
            columns[name].append(float(value or 0))
        for name, value in zip(CRITEO_CATEGORIES, values[14:]):
            columns[name].append(value)
    return columns


def _generated_criteo(samples: int) -> Columns:
    generator = random.Random(2)
    columns = _empty()
    for sample in range(samples):
        # The last category is different in each sample, as some are in Criteo's data.
        values = [*(generator.randrange(30) for _ in CRITEO_CATEGORIES[1:]), sample]
        counts = [float(generator.randrange(20)) for _ in CRITEO_NUMBERS]
        for name, count in zip(CRITEO_NUMBERS, counts):
            columns[name].append(count)
        for name, value in zip(CRITEO_CATEGORIES, values):
            columns[name].append(f"{value * 2654435761 % 2**32:08x}")
        columns["label"].append(float(values[0] % 3 + values[1] % 2 + (counts[0] > 9) >= 2))
    return columns


def _movielens(folder: str, samples: int | None) -> Columns:
    users = {line.split("|")[0]: line.split("|")[1:] for line in _lines(folder, "u.user")}
    films = {line.split("|")[0]: line.split("|") for line in _lines(folder, "u.item", "latin-1")}
    ratings = []
    for line in _lines(folder, "u.data")[:samples]:
        user, item, rating, time = line.split("\t")
        genres = [f"genre {genre}" for genre, flag in enumerate(films[item][5:]) if flag == "1"]
        ratings.append((int(time), user, int(item), int(rating), users[user], films[item][2][-4:], genres))
    return _with_history(sorted(ratings, key=lambda rating: rating[:3]))


def _generated_movielens(samples: int) -> Columns:
    generator = random.Random(3)
    ratings = []
    for time in range(samples):
        user, item = generator.randint(1, 100), generator.randint(1, 80)
        rating = generator.randint(4, 5) if user % 3 == item % 3 else generator.randint(1, 4)
        about = [str(18 + user % 50), "MF"[user % 2], f"job {user % 7}", str(10000 + user)]
        ratings.append((time, str(user), item, rating, about, str(1970 + item % 30), [f"genre {item % 5}"]))
    return _with_history(ratings)


def _with_history(ratings: list[tuple]) -> Columns:
    """Columns of ratings in the order of time; `history` has the last films that the user liked before."""
    columns = _empty()
    liked = collections.defaultdict(list)
    seen = collections.Counter()
    for _, user, item, rating, (age, gender, occupation, code), year, genres in ratings:
        sample = {"user": user, "age": float(age), "gender": gender, "occupation": occupation, "zip": code}
        sample.update(
            item=item, year=year, genres=genres, item_seen=seen[item], history=liked[user][-HISTORY:]
        )
        sample.update(watched=float(rating >= 3), liked=float(rating >= 4), loved=float(rating == 5))
        for name, value in sample.items():
            columns[name].append(value)
        seen[item] += 1
        if rating >= 4:
            liked[user].append(item)
    return columns


_READERS = {"census": _census, "criteo": _criteo, "movielens": _movielens}
_GENERATORS = {
    "census": _generated_census,
    "criteo": _generated_criteo,
    "movielens": _generated_movielens,
}
