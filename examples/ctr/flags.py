"""The command line flags, with defaults for each data set."""

from __future__ import annotations

import argparse
import dataclasses
import math
import os
from collections.abc import Callable, Sequence
from typing import Any

from ctr.models import MODELS
from ctr.tables import OPTIMIZERS


@dataclasses.dataclass(frozen=True)
class Defaults:
    """Default settings of a data set."""

    epochs: int
    batch_size: int
    dim: int
    hidden: tuple[int, ...]
    dropout: float
    embedding_l2: float
    learning_rate: float
    tensorflow_rows: int  # rows per table with `--tables tensorflow`
    evaluate_every: int | None = None  # steps; None: only at the end of each epoch


DEFAULTS = {
    "movielens": Defaults(10, 512, 16, (64, 32), 0.5, 5e-2, 2e-3, 1 << 16),
    "census": Defaults(8, 256, 8, (64, 32), 0.2, 1e-4, 1e-3, 1 << 15),
    "criteo": Defaults(1, 1024, 16, (128, 64), 0.0, 1e-5, 1e-3, 1 << 20),
    "synthetic": Defaults(1, 2048, 16, (128, 64), 0.0, 1e-5, 3e-3, 1 << 20, evaluate_every=70),
}

# Models that need other settings. DLRM's input is mainly products of embeddings, and a larger network would
# memorize MovieLens' pairs of user and movie.
MODEL_DEFAULTS = {("movielens", "dlrm"): {"epochs": 7, "hidden": (16,), "dropout": 0.3}}


def _parsed(kind: type, text: str) -> Any:
    try:
        return kind(text)
    except ValueError:
        what = "whole number" if kind is int else "number"
        raise argparse.ArgumentTypeError(f"{text!r} is not a {what}") from None


def _at_least(low: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        value = _parsed(int, text)
        if value < low:
            raise argparse.ArgumentTypeError(f"{value} is below {low}")
        return value

    return parse


def _number_in(low: float, high: float) -> Callable[[str], float]:
    def parse(text: str) -> float:
        value = _parsed(float, text)
        if not low <= value < high:
            raise argparse.ArgumentTypeError(f"{value} is not in [{low:g}, {high:g})")
        return value

    return parse


def _sizes(text: str) -> tuple[int, ...]:
    return tuple(_at_least(1)(part) for part in text.split(","))


def parse_flags(arguments: Sequence[str] | None = None, ranks: int = 1) -> argparse.Namespace:
    """Parses the flags and adds the data set's defaults. Exits if a flag is invalid.

    A given batch size must be a multiple of `ranks`; a default is rounded up to a multiple.
    """
    parser = argparse.ArgumentParser(
        description="Trains a click-through model with SOK's embedding tables, in a TensorFlow session.",
        epilog="Defaults of epochs, sizes and rates depend on the data set; see examples/README.md.",
    )
    _add_task_flags(parser)
    _add_training_flags(parser)
    flags = parser.parse_args(arguments)
    if flags.dataset is None:
        flags.dataset = "synthetic"
        if flags.data_dir is not None:
            parser.error("--data_dir needs --dataset movielens, census or criteo")
    if flags.api == "feature_column" and flags.tables != "sok":
        parser.error("--api feature_column needs --tables sok")
    for name in ("row_dtype", "slot_dtype", "rounding", "second_moment", "disk"):
        if flags.tables != "sok" and getattr(flags, name) != parser.get_default(name):
            parser.error(f"--{name} needs --tables sok")
    if flags.second_moment == "row" and flags.optimizer != "lazy_adam":
        parser.error("--second_moment row needs --optimizer lazy_adam")
    if flags.dataset == "synthetic" and flags.data_dir is not None:
        parser.error("--dataset synthetic takes no --data_dir, because its data is generated")
    if flags.dataset != "synthetic" and flags.data_dir is None:
        parser.error(
            f"--dataset {flags.dataset} needs --data_dir, the folder with its files; without both flags, the "
            "trainer uses generated data"
        )
    if flags.batch_size is not None and flags.batch_size % ranks:
        parser.error(f"--batch_size {flags.batch_size} is not a multiple of the number of ranks, {ranks}")
    defaults = {**vars(DEFAULTS[flags.dataset]), **MODEL_DEFAULTS.get((flags.dataset, flags.model), {})}
    for name, value in defaults.items():
        if getattr(flags, name) is None:
            setattr(flags, name, value)
    flags.batch_size = math.ceil(flags.batch_size / ranks) * ranks
    if flags.output_dir is None:
        kind = flags.tables if flags.api == "layer" else flags.api
        flags.output_dir = os.path.join("ctr_output", f"{flags.dataset}-{flags.model}-{kind}")
    return flags


def _add_task_flags(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--dataset", choices=list(DEFAULTS), help="what to train on (default: synthetic)")
    add("--data_dir", help="folder with the data set's files, as published")
    add("--model", choices=list(MODELS), default="dcn_v2", help="default: %(default)s")
    add("--tables", choices=["sok", "tensorflow"], default="sok", help="kind of tables (default: sok)")
    add(
        "--api",
        choices=["layer", "feature_column"],
        default="layer",
        help="how SOK's tables are looked up: with its layers, or with feature columns (default: layer)",
    )
    add("--device", choices=["cpu", "gpu"], help="of tables and network (default: a GPU if there is one)")
    add("--output_dir", help="for events, results.json and curves.png (default: ctr_output/<run>)")
    add(
        "--max_bad_lines",
        type=_at_least(0),
        default=100,
        help="malformed lines above which the run ends (default: %(default)s)",
    )
    add(
        "--held_out",
        type=_number_in(0, 1),
        default=0.2,
        help="fraction of movielens and criteo (default: 0.2)",
    )
    add("--samples", type=_at_least(1), default=1_000_000, help="synthetic: samples per epoch")
    add("--held_out_samples", type=_at_least(1), default=100_000, help="synthetic: held-out samples")
    add("--seed", type=_at_least(0), default=1, help="seed of split, order and initial values (default: 1)")


def _add_training_flags(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--epochs", type=_at_least(1))
    add("--max_steps", type=_at_least(1), help="stop after so many steps (default: no limit)")
    add(
        "--evaluate_every",
        type=_at_least(1),
        metavar="STEPS",
        help="also evaluate after so many steps (default: after each epoch; synthetic: 70)",
    )
    add("--batch_size", type=_at_least(1), help="samples per step over all ranks")
    add("--optimizer", choices=OPTIMIZERS, default="lazy_adam", help="default: %(default)s")
    add("--learning_rate", type=_number_in(0, float("inf")))
    add("--dim", type=_at_least(1), help="floats per embedding")
    add("--hidden", type=_sizes, help="units of the hidden layers, e.g. 128,64")
    add("--cross_layers", type=_at_least(1), default=2, help="cross layers of dcn_v2 (default: 2)")
    add("--dropout", type=_number_in(0, 1), help="dropout rate in the hidden layers")
    add("--embedding_l2", type=_number_in(0, float("inf")), help="L2 penalty on the rows that a batch uses")
    add("--row_dtype", choices=["float32", "bfloat16", "float16"], default="float32", help="of SOK's tables")
    add("--slot_dtype", choices=["float32", "bfloat16"], default="float32", help="of SOK's tables")
    add(
        "--rounding",
        choices=["stochastic", "nearest"],
        default="stochastic",
        help="of SOK's tables in 16 bits (default: %(default)s)",
    )
    add("--second_moment", choices=["element", "row"], default="element", help="of lazy_adam on SOK's tables")
    add("--disk", metavar="FOLDER", help="keeps rows of SOK's tables there that memory has no room for")
    add(
        "--memory_mb",
        type=_number_in(0, float("inf")),
        default=64.0,
        help="memory for the rows of each table with --disk (default: %(default)s)",
    )
    add("--tensorflow_rows", type=_at_least(1), help="rows per table with --tables tensorflow")
