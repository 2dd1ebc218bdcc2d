"""Measures training steps through `input_layer`, with TensorFlow's columns and with a group of columns.

`--help` lists the flags; README.md explains the table.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import pathlib
import sys
from collections.abc import Sequence

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

from bench import axes, ids, machine  # noqa: E402
from bench.column_sides import KINDS, Columns, ColumnsSide, SokColumns, TensorFlowColumns  # noqa: E402
from bench.timing import CallContender, Timing, measure  # noqa: E402

TOLERANCE = 1e-5
# Long enough that most steps follow a step of the same side, as in training: steps of the other side evict
# this side's rows from the caches.
TURN_MS = 400.0
MAX_CALLS = 50


@dataclasses.dataclass(frozen=True)
class Result:
    """Measurements of one side with one set of columns."""

    kind: str
    features: int
    side: str  # "plain" or "grouped"
    ops_in_graph: int
    ops_in_step: int
    step: Timing


def main(arguments: Sequence[str]) -> int:
    """Runs the program; returns its exit status."""
    flags = _parser().parse_args(arguments)
    tf.compat.v1.logging.set_verbosity(tf.compat.v1.logging.ERROR)
    results = []
    for kind in flags.kind:
        for features in flags.features:
            print(f"{kind}, {features} features", file=sys.stderr, flush=True)
            results += _measure(flags, kind, features)
    if flags.json is not None:
        content = {"machine": machine.describe(), "rows": [dataclasses.asdict(row) for row in results]}
        flags.json.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    print(_table(results))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add(
        "--features", type=axes.list_of(axes.at_least_one), default=(26, 107), help="columns; several: 26,107"
    )
    kinds = axes.list_of(axes.one_of("kind", KINDS))
    add("--kind", type=kinds, default=KINDS, help="kinds of columns: " + ",".join(KINDS))
    add("--batch", type=axes.at_least_one, default=4096, help="samples per step")
    add("--dim", type=axes.at_least_one, default=16, help="floats per row")
    add("--hotness", type=axes.at_least_one, default=1, help="ids per feature and sample, on average")
    add("--zipf", type=axes.positive, default=1.05, help="Zipf exponent of ids")
    add("--rows", type=axes.at_least_one, default=100_000, help="rows per table")
    optimizer = axes.one_of("optimizer", axes.OPTIMIZERS)
    add("--optimizer", type=optimizer, default="adagrad", help="one of " + ",".join(axes.OPTIMIZERS))
    add("--threads", type=axes.at_least_one, default=2, help="threads in each of TensorFlow's pools")
    add("--batches", type=axes.at_least_one, default=4, help="batches of ids that the steps rotate over")
    add("--rounds", type=axes.at_least_one, default=9, help="interleaved rounds, without the warm-up")
    add("--seed", type=int, default=1, help="seed of ids, rows and gradients")
    add("--json", type=pathlib.Path, default=None, help="file to write all numbers to")
    return parser


def _measure(flags: argparse.Namespace, kind: str, features: int) -> list[Result]:
    columns = Columns(kind, features, flags.rows, flags.dim, flags.optimizer, flags.batch)
    bags = axes.Bags(flags.batch, flags.hotness, flags.zipf)
    batches = ids.make_batches(bags, features, flags.rows, flags.batches, flags.seed)
    if kind == "hash":
        batches = [[_as_strings(feature) for feature in batch] for batch in batches]
    arguments = columns, batches, flags.threads, flags.seed
    with TensorFlowColumns(*arguments) as plain, SokColumns(*arguments) as grouped:
        for side in (plain, grouped):
            side.start()
        if kind == "identity":
            grouped.load(plain.tables())
            check_agreement(plain, grouped, flags.batches)
        sides: dict[str, ColumnsSide] = {"plain": plain, "grouped": grouped}
        for side in sides.values():
            for _ in range(flags.batches):  # inserts the rows of all keys
                side.step()
        contenders = [CallContender(name, side.step) for name, side in sides.items()]
        timings = measure(contenders, flags.rounds, TURN_MS, MAX_CALLS)
        return [
            Result(kind, features, name, side.ops_in_graph, side.ops_of_a_step(), timings[name])
            for name, side in sides.items()
        ]


def _as_strings(bags: ids.FeatureBags) -> ids.FeatureBags:
    return dataclasses.replace(bags, ids=np.char.mod("item %d", bags.ids).astype("S"))


def check_agreement(plain: ColumnsSide, grouped: ColumnsSide, count: int) -> None:
    """Compares both sides' outputs for each of `count` batches, before and after a step on each.

    Raises:
      AssertionError: Outputs differ by more than TOLERANCE.
    """
    for when in ("before training", "after training"):
        for a, b in zip(plain.outputs(count), grouped.outputs(count)):
            # Not an assert statement, which python -O removes.
            np.testing.assert_allclose(a, b, rtol=0, atol=TOLERANCE, err_msg=when)
        if when == "before training":
            for side in (plain, grouped):
                for _ in range(count):
                    side.step()


def _table(results: Sequence[Result]) -> str:
    head = ["kind", "features", "side", "ops in graph", "ops in step", "step ms", "cpu ms", "times as fast"]
    lines = [head]
    for plain, grouped in zip(results[::2], results[1::2]):
        for result in (plain, grouped):
            timing = result.step
            ratio = f"{plain.step.median / timing.median:.2f}"
            lines.append(
                [
                    result.kind,
                    str(result.features),
                    result.side,
                    str(result.ops_in_graph),
                    str(result.ops_in_step),
                    f"{timing.median:.2f} ({timing.minimum:.2f})",
                    f"{timing.median_cpu:.2f}",
                    ratio,
                ]
            )
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    return "\n".join("  ".join(cell.rjust(width) for cell, width in zip(line, widths)) for line in lines)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
