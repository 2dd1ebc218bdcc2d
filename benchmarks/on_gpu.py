"""Shows what cuda/programs/engine_benchmark measured on a GPU: a table by dim, and a picture.

tools/python.sh benchmarks/on_gpu.py FOLDER/benchmark.json --plot on_gpu.png
"""

from __future__ import annotations

import argparse
import json
import pathlib
import sys
from collections.abc import Sequence

from bench import markdown
from bench.gpu_results import GpuResults, Line, read


def main(arguments: Sequence[str]) -> int:
    """Runs the program; returns its exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("results", type=pathlib.Path, help="the --json file of engine_benchmark")
    parser.add_argument("--plot", type=pathlib.Path, default=None, help="picture to draw, .png or .svg")
    flags = parser.parse_args(arguments)
    try:
        results = read(flags.results)
    except (OSError, KeyError, json.JSONDecodeError, ValueError) as error:
        sys.exit(f"{flags.results} is no file of engine_benchmark: {error!r}")
    print(results.title)
    for drawn in results.distributions():
        print(f"\n{drawn}: share of the copy bandwidth, G ids/s\n")
        print(_table(results, drawn))
    for what in results.left_out:
        print(f"left out: {what}")
    if flags.plot is not None:
        from bench import gpu_plot

        gpu_plot.write(flags.plot, results)
    return 0


def _table(results: GpuResults, drawn: str) -> str:
    lines = results.lines(drawn)
    dims = sorted({dim for line in lines for dim in line.points})
    return markdown.table(
        ("", *(f"dim {dim}" for dim in dims)),
        [(line.name, *(_cell(line, dim) for dim in dims)) for line in lines],
    )


def _cell(line: Line, dim: int) -> str:
    point = line.points.get(dim)
    return "" if point is None else f"{100 * point.share_of_copy:.0f} %, {point.ids_per_s / 1e9:.2f}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
