"""Flags of programs that start ranks, which their ranks get as well."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

_FLAGS = {
    "transport": (str, "mpi (mpirun) or gloo (horovodrun)"),
    "cycle_time": (float, "HOROVOD_CYCLE_TIME, ms"),
    "features": (int, "features, each with a table of its own"),
    "batch": (int, "samples of a step over all ranks"),
    "hotness": (int, "ids of a bag, on average"),
    "dim": (int, "floats of a row"),
    "rows": (int, "rows of all tables together"),
    "hidden": (int, "units of the model's dense layer"),
    "zipf": (float, "how skewed ids are: the exponent of Zipf's law"),
    "optimizer": (str, "lazy_adam, adagrad or sgd"),
    "batches": (int, "batches of ids that the steps of a rank rotate over"),
    "rounds": (int, "interleaved rounds that count"),
    "calls": (int, "steps of each side in a round"),
    "seed": (int, "of ids and rows"),
}


def add(parser: argparse.ArgumentParser, **defaults: object) -> tuple[str, ...]:
    """Adds the flags that `defaults` names to a program's parser; returns their names."""
    for name, default in defaults.items():
        kind, text = _FLAGS[name]
        parser.add_argument(f"--{name}", type=kind, default=default, help=text)
    return tuple(defaults)


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The flags that a rank was started with, and the path to write results to as `output`."""
    parser = argparse.ArgumentParser()
    for name, (kind, _) in _FLAGS.items():
        parser.add_argument(f"--{name}", type=kind, default=argparse.SUPPRESS)
    parser.add_argument("output")
    return parser.parse_args(arguments)
