"""What a benchmark varies, and the command line flags for it."""

from __future__ import annotations

import argparse
import dataclasses
import itertools
from collections.abc import Callable

OPTIMIZERS = ("lazy_adam", "adam", "adagrad", "sgd", "rowwise_adagrad")
# Floats that an optimizer keeps for each float of a row.
_SLOTS = {"lazy_adam": 2, "adam": 2, "adagrad": 1, "sgd": 0}
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

    @property
    def record_floats(self) -> int:
        """Floats of a row together with what the optimizer keeps for it."""
        if self.optimizer == "rowwise_adagrad":
            return self.dim + 1
        return self.dim * (1 + _SLOTS[self.optimizer])

    def bytes_moved(self, what: str, batch: int, ids: float, unique: float) -> float:
        """Bytes that a call moves at least.

        Ids read, distinct rows read, outputs written; for a step also the outputs' gradients read, and the
        distinct records (rows and slots) read and written.

        Args:
          what: "forward", "lookup" or "step".
          batch: Bags of a feature.
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
    """Ids of one run: `batch` bags a feature, of about `hotness` ids each, skewed by Zipf's `exponent`.

    An exponent of 0 draws all ids alike.
    """

    batch: int
    hotness: int
    exponent: float


@dataclasses.dataclass(frozen=True)
class Axes:
    """One point on the axes that change the ids or the size of tables, and all that the other flags say."""

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


def add_flags(
    parser: argparse.ArgumentParser,
    optimizers: tuple[str, ...] = OPTIMIZERS[:4],
    threads: tuple[int, ...] = (2,),
) -> None:
    """Adds the flags of all axes, with these defaults; `from_flags` reads them."""
    add = parser.add_argument
    count, number = list_of(at_least_one), list_of(positive)
    add(
        "--features", type=count, default=(26,), help="features, each with a table of its own; several: 26,55"
    )
    add("--batch", type=count, default=(4096,), help="bags of a feature in a step")
    add("--dim", type=count, default=(16, 64), help="floats of a row")
    add("--hotness", type=count, default=(1, 10), help="ids of a bag, on average")
    add("--zipf", type=list_of(at_least_zero), default=(1.05,), help="how skewed ids are, 0: not at all")
    add("--table_mb", type=number, default=(640.0,), help="MB of rows of all tables together")
    add("--rows", type=at_least_one, default=None, help="rows of all tables together, instead of --table_mb")
    add("--optimizer", type=list_of(optimizer), default=optimizers, help="some of " + ",".join(OPTIMIZERS))
    add("--threads", type=count, default=threads, help="each number in processes of its own")
    add("--batches", type=at_least_one, default=4, help="batches of ids that the steps rotate over")
    add("--rounds", type=at_least_one, default=7, help="interleaved rounds that count")
    add("--seed", type=int, default=1, help="of ids, rows and gradients")


def from_flags(flags: argparse.Namespace) -> list[Axes]:
    """The points that the parsed flags describe: every combination of what they list."""
    # With --rows tables have one size, whatever --table_mb lists.
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


def at_least_zero(text: str) -> float:
    """A finite number that is not negative."""
    value = float(text)
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"{value} is not a number from 0 on")
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
