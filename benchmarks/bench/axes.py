"""The parameters that a benchmark varies, and their command line flags."""

from __future__ import annotations

import argparse
import dataclasses
import itertools
from collections.abc import Callable, Sequence
from typing import Any

OPTIMIZERS = ("lazy_adam", "adam", "adagrad", "sgd", "rowwise_adagrad")
# Slot floats per float of a row.
_SLOTS = {"lazy_adam": 2, "adam": 2, "adagrad": 1, "sgd": 0}
BYTES_PER_FLOAT = 4


@dataclasses.dataclass(frozen=True)
class Tables:
    """The tables of one run, one per feature, all of the same size, and the optimizer that trains them."""

    features: int
    rows_per_table: int
    dim: int
    optimizer: str

    @property
    def bytes(self) -> int:
        """Bytes of the rows of all tables, without the optimizer's slots."""
        return self.features * self.rows_per_table * self.dim * BYTES_PER_FLOAT

    @property
    def record_floats(self) -> int:
        """Floats of a row with its optimizer slots."""
        if self.optimizer == "rowwise_adagrad":
            return self.dim + 1
        return self.dim * (1 + _SLOTS[self.optimizer])

    def bytes_moved(self, what: str, batch: int, ids: float, unique: float) -> float:
        """The fewest bytes that a call can move.

        It reads ids and distinct rows and writes outputs. A step also reads the outputs' gradients, and reads
        and writes the distinct records (rows and slots).

        Args:
          what: "forward", "lookup" or "step".
          batch: Bags per feature.
          ids: Ids of a call, over all features.
          unique: Distinct rows of a call, over all features.
        """
        row = self.dim * BYTES_PER_FLOAT
        outputs = self.features * batch * row
        lookup = 8 * ids + unique * row + outputs
        if what != "step":
            return lookup
        return lookup + outputs + 2 * unique * self.record_floats * BYTES_PER_FLOAT


@dataclasses.dataclass(frozen=True)
class Bags:
    """The ids of one run: `batch` bags per feature, with `hotness` ids each on average.

    Ids follow Zipf's law with this exponent; 0 is the uniform distribution.
    """

    batch: int
    hotness: int
    exponent: float


@dataclasses.dataclass(frozen=True)
class Axes:
    """One combination of the flags that change ids or the size of tables, and the values of the others."""

    features: int
    batch: int
    dims: tuple[int, ...]
    hotness: tuple[int, ...]
    exponent: float
    table_bytes: int
    rows: int | None
    optimizers: tuple[str, ...]
    threads: tuple[int, ...]
    batches: int
    rounds: int
    seed: int

    def rows_per_table(self, dim: int) -> int:
        """Rows per table: an equal share of `rows`, or of the rows that fit into `table_bytes`."""
        total = self.rows or self.table_bytes // (dim * BYTES_PER_FLOAT)
        return max(1, total // self.features)

    def all_tables(self) -> list[Tables]:
        """The sets of tables of a run; only one is in memory at a time."""
        return [
            Tables(self.features, self.rows_per_table(dim), dim, optimizer)
            for dim in self.dims
            for optimizer in self.optimizers
        ]

    def all_bags(self) -> list[Bags]:
        """The kinds of ids that are looked up in each set of tables."""
        return [Bags(self.batch, hotness, self.exponent) for hotness in self.hotness]


def add_flags(
    parser: argparse.ArgumentParser,
    optimizers: tuple[str, ...] = OPTIMIZERS[:4],
    threads: tuple[int, ...] = (2,),
) -> None:
    """Adds the flags that `from_flags` reads. `optimizers` and `threads` are defaults."""
    add = parser.add_argument
    count, number = list_of(at_least_one), list_of(positive)
    add("--features", type=count, default=(26,), help="features, each with its own table; several: 26,55")
    add("--batch", type=count, default=(4096,), help="bags per feature in a step")
    add("--dim", type=count, default=(16, 64), help="floats per row")
    add("--hotness", type=count, default=(1, 10), help="ids per bag, on average")
    add("--zipf", type=list_of(at_least_zero), default=(1.05,), help="Zipf exponent of ids; 0 is uniform")
    add("--table_mb", type=number, default=(640.0,), help="MB of rows, all tables together")
    add("--rows", type=at_least_one, default=None, help="rows of all tables together, instead of --table_mb")
    add(
        "--optimizer",
        type=list_of(one_of("optimizer", OPTIMIZERS)),
        default=optimizers,
        help="one or more of " + ",".join(OPTIMIZERS),
    )
    add("--threads", type=count, default=threads, help="threads; each number is measured in its own process")
    add("--batches", type=at_least_one, default=4, help="batches of ids that the steps rotate over")
    add("--rounds", type=at_least_one, default=7, help="interleaved rounds, without the warm-up")
    add("--seed", type=int, default=1, help="seed of ids, rows and gradients")


def from_flags(flags: argparse.Namespace) -> list[Axes]:
    """Every combination of the values in the parsed flags."""
    # --rows determines the size of tables alone; --table_mb is ignored.
    sizes = flags.table_mb if flags.rows is None else flags.table_mb[:1]
    return [
        Axes(
            features=features,
            batch=batch,
            dims=flags.dim,
            hotness=flags.hotness,
            exponent=exponent,
            table_bytes=int(table_mb * 1e6),
            rows=flags.rows,
            optimizers=flags.optimizer,
            threads=flags.threads,
            batches=flags.batches,
            rounds=flags.rounds,
            seed=flags.seed,
        )
        for table_mb, features, batch, exponent in itertools.product(
            sizes, flags.features, flags.batch, flags.zipf
        )
    ]


def at_least_one(text: str) -> int:
    """Parses an int of at least 1."""
    value = _parsed(int, text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{value} is below 1")
    return value


def positive(text: str) -> float:
    """Parses a finite number above 0."""
    value = _parsed(float, text)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{value} is not a positive number")
    return value


def at_least_zero(text: str) -> float:
    """Parses a finite number of at least 0."""
    value = _parsed(float, text)
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"{value} is not a finite number of at least 0")
    return value


def _parsed(kind: type, text: str) -> Any:
    try:
        return kind(text)
    except ValueError:
        what = "whole number" if kind is int else "number"
        raise argparse.ArgumentTypeError(f"{text!r} is not a {what}") from None


def one_of(what: str, known: Sequence[str]) -> Callable[[str], str]:
    """A parser of one of the `known` names; `what` says in the message what they name."""

    def parse(text: str) -> str:
        if text not in known:
            raise argparse.ArgumentTypeError(f"unknown {what} {text!r}; known are {', '.join(known)}")
        return text

    return parse


def list_of(item: Callable[[str], object]) -> Callable[[str], tuple]:
    """A parser of comma-separated items."""

    def parse(text: str) -> tuple:
        return tuple(item(part) for part in text.split(","))

    return parse
