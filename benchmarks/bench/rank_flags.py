"""Flags that programs pass on to the ranks that they start."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

_FLAGS = {
    "transport": (str, "mpi (mpirun) or gloo (horovodrun)"),
    "cycle_time": (float, "HOROVOD_CYCLE_TIME, ms"),
    "features": (int, "features, each with its own table"),
    "batch": (int, "samples per step over all ranks"),
    "hotness": (int, "ids per bag, on average"),
    "dim": (int, "floats per row"),
    "rows": (int, "rows of all tables together"),
    "hidden": (int, "units of the model's hidden layer"),
    "zipf": (float, "Zipf exponent of ids"),
    "optimizer": (str, "lazy_adam, adagrad or sgd"),
    "batches": (int, "batches of ids that the steps of a rank rotate over"),
    "rounds": (int, "interleaved rounds, without the warm-up"),
    "calls": (int, "steps of each side in a round"),
    "seed": (int, "seed of ids and rows"),
}


def add(parser: argparse.ArgumentParser, **defaults: object) -> tuple[str, ...]:
    """Adds the flags that `defaults` names to a program's parser; returns their names."""
    for name, default in defaults.items():
        kind, text = _FLAGS[name]
        parser.add_argument(f"--{name}", type=kind, default=default, help=text)
    return tuple(defaults)


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Parses a rank's flags, and the path for its results as `output`."""
    parser = argparse.ArgumentParser()
    for name, (kind, _) in _FLAGS.items():
        parser.add_argument(f"--{name}", type=kind, default=argparse.SUPPRESS)
    parser.add_argument("output")
    return parser.parse_args(arguments)
