"""What engine_benchmark of cuda/programs measured on a GPU, by the length of rows."""

from __future__ import annotations

import argparse
import json
import pathlib
import sys
from collections.abc import Sequence

from bench import flags, plots
from bench.report import Result, markdown

FLAGS = {"results": flags.Flag(pathlib.Path, "the --json file of engine_benchmark")}

# What is drawn, and what is shown in this order.
_DRAWN = ("find rows", "gather", "pool", "lookup", "update", "backward")
_SHOWN = (
    "find rows",
    "gather",
    "pool",
    "lookup",
    "find or insert",
    "insert",
    "update",
    "backward",
    "group step",
)


def measure(point: argparse.Namespace) -> list[Result]:
    """Reads the cases with batches of the usual size."""
    try:
        values = json.loads(point.results.read_text(encoding="utf-8"))
        if values["program"] != "engine_benchmark" or values["format"] != 1:
            raise ValueError("not of this program, or of another version")
    except (AttributeError, OSError, KeyError, ValueError) as error:
        sys.exit(f"--results {point.results} is no file of engine_benchmark: {error!r}")
    device = values["machine"]["device"]
    if values["device"] == "host":
        device += ": the kernels ran on the host, so times mean nothing"
    # Leaves out copies, which have no ids, and batches of other sizes, which are not shown by dim.
    other_sizes = (0, *values["options"]["more_ids"])
    cases = [
        case for case in values["cases"] if case.get("ids", 0) not in other_sizes and case["what"] in _SHOWN
    ]
    results = {}
    for case in sorted(cases, key=lambda case: (_SHOWN.index(case["what"]), case["ids_per_bag"] > 0)):
        bags = f"{case['ids_per_bag']:.0f} ids per bag" if case["ids_per_bag"] else ""
        name = ", ".join(part for part in (case["what"], case.get("optimizer", ""), bags) if part)
        question = {"device": device, "ids": case["ids_drawn"], "what": name, "dim": case["dim"]}
        counts = {"% of copy": 100 * case["share_of_copy"], "G ids/s": case["ids_per_s"] / 1e9}
        results.setdefault(tuple(question.values()), Result(question, {}, counts=counts))
    for what in values["left_out"]:
        print(f"left out: {what}")
    return list(results.values())


def _by_dim(results: Sequence[Result], count: str) -> dict[str, dict[str, dict[int, float]]]:
    """By how ids are drawn, what was measured, and the dim."""
    panels: dict[str, dict[str, dict[int, float]]] = {}
    for result in results:
        lines = panels.setdefault(f"{result.question['ids']} ids", {})
        lines.setdefault(result.question["what"], {})[result.question["dim"]] = result.counts[count]
    return panels


def table(results: Sequence[Result]) -> str:
    """A table for each way of drawing ids: share of the copy bandwidth, and G ids/s, by dim."""
    dims = sorted({result.question["dim"] for result in results})
    speeds, parts = _by_dim(results, "G ids/s"), [results[0].question["device"]]
    for drawn, lines in _by_dim(results, "% of copy").items():
        cells = [
            (name, *(f"{of[dim]:.0f} %, {speeds[drawn][name][dim]:.2f}" if dim in of else "" for dim in dims))
            for name, of in lines.items()
        ]
        head = ("", *(f"dim {dim}" for dim in dims))
        parts.append(f"{drawn}: share of the copy bandwidth, G ids/s\n\n{markdown(head, cells)}")
    return "\n\n".join(parts)


def draw(path: pathlib.Path, results: Sequence[Result]) -> None:
    """Draws shares of the copy bandwidth by dim."""
    drawn = [result for result in results if result.question["what"].split(",")[0] in _DRAWN]
    title, y = results[0].question["device"], "% of the bandwidth of a copy"
    plots.lines(path, title, _by_dim(drawn, "% of copy"), "floats of a row", y)
