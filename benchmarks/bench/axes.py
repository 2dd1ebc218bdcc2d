"""What a benchmark varies, and the command line flags for it."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Callable

OPTIMIZERS = ("lazy_adam", "adam", "adagrad", "sgd")
# Floats that an optimizer keeps for each float of a row.
SLOTS = {"lazy_adam": 2, "adam": 2, "adagrad": 1, "sgd": 0}
BYTES_PER_FLOAT = 4


@dataclasses.dataclass(frozen=True)
class Tables:
    """Tables of one run: one for each feature, all alike, with the optimizer that trains them."""

    features: int
    rows_per_table: int
    dim: int
    optimizer: str

    @property
    def bytes(self) -> int:
        """Bytes of the rows of all tables, without the optimizer's slots."""
        return self.features * self.rows_per_table * self.dim * BYTES_PER_FLOAT


@dataclasses.dataclass(frozen=True)
class Bags:
    """Ids of one run: `batch` bags a feature, of about `hotness` ids each, skewed by Zipf's `exponent`."""

    batch: int
    hotness: int
    exponent: float


@dataclasses.dataclass(frozen=True)
class Axes:
    """All that the flags say."""

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
        """Rows of one table: an equal share of `rows`, or of as many rows as fill `table_bytes`."""
        total = self.rows or self.table_bytes // (dim * BYTES_PER_FLOAT)
        return max(1, total // self.features)

    def all_tables(self) -> list[Tables]:
        """The sets of tables of a run, one after the other in memory."""
        return [
            Tables(self.features, self.rows_per_table(dim), dim, optimizer)
            for dim in self.dims
            for optimizer in self.optimizers
        ]

    def all_bags(self) -> list[Bags]:
        """The kinds of ids that are looked up in each set of tables."""
        return [Bags(self.batch, hotness, self.exponent) for hotness in self.hotness]


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of all axes; `from_flags` reads them."""
    add = parser.add_argument
    add("--features", type=at_least_one, default=26, help="features, each with a table of its own")
    add("--batch", type=at_least_one, default=4096, help="bags of a feature in a step")
    add("--dim", type=list_of(at_least_one), default=(16, 64), help="floats of a row; several: 16,64")
    add("--hotness", type=list_of(at_least_one), default=(1, 10), help="ids of a bag, on average")
    add("--zipf", type=positive, default=1.05, help="how skewed ids are: the exponent of Zipf's law")
    add("--table_mb", type=positive, default=640.0, help="MB of rows of all tables together")
    add("--rows", type=at_least_one, default=None, help="rows of all tables together, instead of --table_mb")
    add("--optimizer", type=list_of(optimizer), default=OPTIMIZERS, help="some of " + ",".join(OPTIMIZERS))
    add("--threads", type=list_of(at_least_one), default=(2,), help="each number in a process of its own")
    add("--batches", type=at_least_one, default=4, help="batches of ids that the steps rotate over")
    add("--rounds", type=at_least_one, default=7, help="interleaved rounds that count")
    add("--seed", type=int, default=1, help="of ids, rows and gradients")


def from_flags(flags: argparse.Namespace) -> Axes:
    """The axes that the parsed flags describe."""
    return Axes(
        features=flags.features,
        batch=flags.batch,
        dims=flags.dim,
        hotness=flags.hotness,
        exponent=flags.zipf,
        table_bytes=int(flags.table_mb * 1e6),
        rows=flags.rows,
        optimizers=flags.optimizer,
        threads=flags.threads,
        batches=flags.batches,
        rounds=flags.rounds,
        seed=flags.seed,
    )


def at_least_one(text: str) -> int:
    """An int of a flag that counts something."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{value} is below 1")
    return value


def positive(text: str) -> float:
    """A finite number above 0."""
    value = float(text)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{value} is not a positive number")
    return value


def optimizer(text: str) -> str:
    """One of OPTIMIZERS."""
    if text not in OPTIMIZERS:
        raise argparse.ArgumentTypeError(f"unknown optimizer {text!r}; known are {', '.join(OPTIMIZERS)}")
    return text


def list_of(item: Callable[[str], object]) -> Callable[[str], tuple]:
    """What parses a flag of one or several items, between them commas."""

    def parse(text: str) -> tuple:
        return tuple(item(part) for part in text.split(","))

    return parse
