"""Counts the instructions and cache misses of the parts of an engine's training step, with callgrind.

Counts do not depend on the machine's load. `--help` lists the flags; README.md explains the table. Needs
valgrind, and `bazel build //benchmarks/engine:group_benchmark`.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import pathlib
import sys
import tempfile
from collections.abc import Sequence

from bench import axes, callgrind, ids, markdown
from bench.engine_process import find_program

STEP, REST = "step", "everything else"
# The parts of a step, with prefixes of the names of their functions. An update sums gradients block by block,
# so these sums are included in its counts and must be subtracted.
PARTS = {
    "dedup": ("sok::Deduplicator::Run(",),
    "index find": ("sok::IdIndex::Find(",),
    "rows to outputs": ("sok::WriteOutput(",),
    "sort gradients by row": ("sok::PartGradients::Prepare(",),
    "sum gradients": ("sok::SegmentSums::Take(",),
    "update rows": ("sok::TouchedRowsOptimizer<sok::LazyAdam>::Apply(",),
}
_INSIDE = {"update rows": "sum gradients"}
# The difference between a run with more steps and one with fewer contains neither the start nor the first
# steps.
_FEW, _MORE = 2, 6


@dataclasses.dataclass(frozen=True)
class Result:
    """The counts of a step's parts for one kind of bags."""

    hotness: int
    ids: float  # per step
    unique: float
    parts: dict[str, callgrind.Counts]  # per id


def main(arguments: Sequence[str]) -> int:
    """Runs the program; returns its exit status."""
    flags = _parser().parse_args(arguments)
    if flags.show is None:
        results = _measure(flags)
    else:
        results = read_json(flags.show)
    if flags.json is not None:
        rows = [dataclasses.asdict(result) for result in results]
        flags.json.write_text(json.dumps({"rows": rows}, indent=1) + "\n", encoding="utf-8")
    before = None if flags.before is None else read_json(flags.before)
    if flags.plot is not None:
        _plot(flags.plot, results, before)
    print(table(results, before))
    return 0


def _plot(path: pathlib.Path, results: Sequence[Result], before: Sequence[Result] | None) -> None:
    from bench import instructions_plot

    earlier = {result.hotness: result.parts for result in before or ()}
    now = [
        (f"{result.hotness} ids per bag" if result.hotness > 1 else "one id per bag", result.parts)
        for result in results
    ]
    instructions_plot.write(path, now, [earlier.get(result.hotness) for result in results])


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--program", type=pathlib.Path, default=None, help="another checkout's group_benchmark")
    add("--features", type=axes.at_least_one, default=26, help="features, each with its own table")
    add("--rows", type=axes.at_least_one, default=1_000_000, help="rows of all tables together")
    add("--dim", type=axes.at_least_one, default=16, help="floats per row")
    add("--batch", type=axes.at_least_one, default=4096, help="bags per feature in a step")
    add("--hotness", type=axes.list_of(axes.at_least_one), default=(1, 10), help="ids per bag, on average")
    add("--zipf", type=axes.positive, default=1.05, help="Zipf exponent of ids")
    add("--seed", type=int, default=1, help="seed of ids")
    add("--json", type=pathlib.Path, default=None, help="file to write all numbers to")
    add("--before", type=pathlib.Path, default=None, help="--json file of an earlier run, to compare with")
    add("--show", type=pathlib.Path, default=None, help="--json file to show instead of measuring")
    add("--plot", type=pathlib.Path, default=None, help="picture to draw, .png or .svg")
    return parser


def read_json(path: pathlib.Path) -> list[Result]:
    """Reads the --json file of a run."""
    rows = json.loads(path.read_text(encoding="utf-8"))["rows"]
    return [
        Result(
            **{**row, "parts": {name: callgrind.Counts(**counts) for name, counts in row["parts"].items()}}
        )
        for row in rows
    ]


def _measure(flags: argparse.Namespace) -> list[Result]:
    program = flags.program or find_program()
    if program is None:
        sys.exit(
            "There is no group_benchmark: build it with `bazel build //benchmarks/engine:group_benchmark`."
        )
    return [_measure_bags(flags, program, hotness) for hotness in flags.hotness]


def _measure_bags(flags: argparse.Namespace, program: pathlib.Path, hotness: int) -> Result:
    rows_per_table = max(1, flags.rows // flags.features)
    bags = axes.Bags(flags.batch, hotness, flags.zipf)
    batches = ids.make_batches(bags, flags.features, rows_per_table, 2, flags.seed)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        ids.write_batches(batches, folder / "ids")
        command = [str(program), "--optimizer", "lazy_adam", "--threads", "1", "--batches", "2"]
        command += ["--features", str(flags.features), "--rows", str(rows_per_table)]
        command += ["--dim", str(flags.dim), "--batch", str(flags.batch)]
        command += ["--dense" if hotness == 1 else "--mean", str(folder / "ids")]
        few, more = (
            callgrind.run(command, f"0 step {steps}\n", folder / f"{steps}.out") for steps in (_FEW, _MORE)
        )
    id_count = ids.ids_per_step(batches)
    scale = 1 / (id_count * (_MORE - _FEW))
    parts = {name: (of(more, begins) - of(few, begins)) * scale for name, begins in PARTS.items()}
    for name, inside in _INSIDE.items():
        parts[name] = parts[name] - parts[inside]
    step = (more[callgrind.TOTAL] - few[callgrind.TOTAL]) * scale
    parts[REST] = step - sum(parts.values(), callgrind.Counts())
    return Result(hotness, id_count, ids.unique_per_step(batches), {**parts, STEP: step})


def of(costs: dict[str, callgrind.Counts], begins: Sequence[str]) -> callgrind.Counts:
    """The counts of the functions whose names start with one of `begins`, including the functions they call.

    If several names match, the largest count is returned: a matching function that another one calls, as in
    recursion, must not count twice.
    """
    counts = [cost for name, cost in costs.items() if name.startswith(tuple(begins))]
    return max(counts, key=lambda cost: cost.instructions, default=callgrind.Counts())


def table(results: Sequence[Result], before: Sequence[Result] | None) -> str:
    """The counts per id as a table in Markdown, with those of `before` if given."""
    if before is None:
        head = ("ids per bag", "part", "instructions per id", "L1 misses per id", "L2 misses per id")
        lines = [
            (str(result.hotness), name, *map(_number, dataclasses.astuple(counts)))
            for result in results
            for name, counts in result.parts.items()
        ]
        return markdown.table(head, lines)
    head = (
        "ids per bag",
        "part",
        "instructions per id, before",
        "after",
        "L2 misses per id, before",
        "after",
    )
    earlier = {result.hotness: result.parts for result in before}
    lines = []
    for result in results:
        for name, counts in result.parts.items():
            was = earlier.get(result.hotness, {}).get(name, callgrind.Counts())
            pairs = was.instructions, counts.instructions, was.l2_misses, counts.l2_misses
            lines.append((str(result.hotness), name, *map(_number, pairs)))
    return markdown.table(head, lines)


def _number(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.2f}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
