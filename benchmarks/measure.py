"""Measures a workload: `measure.py WORKLOAD [FLAG]...`. README.md describes the workloads and their tables.

Every workload is a module in workloads/ with its flags and defaults (FLAGS) and a function `measure`, which
returns the results for one value of each flag, or `measure_rank`, which ranks run. This program calls it for
every combination of the flags' values, and prints the results as a table. `measure.py WORKLOAD --help` lists
the flags.
"""

from __future__ import annotations

import functools
import importlib
import pathlib
import pkgutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence

from bench import flags, machine, plots, ranks, report
from bench.processes import say

WORKLOADS = sorted(
    module.name for module in pkgutil.iter_modules([str(pathlib.Path(__file__).with_name("workloads"))])
)


def main(arguments: Sequence[str]) -> int:
    """Runs the program; returns its exit status."""
    if not arguments or arguments[0] not in WORKLOADS:
        say(f"{__doc__}\nWorkloads: {', '.join(WORKLOADS)}")
        return 0 if arguments and arguments[0] in ("-h", "--help") else 2
    name = arguments[0]
    workload = importlib.import_module(f"workloads.{name}")
    parser = flags.make_parser(f"measure.py {name}", workload.__doc__, workload.FLAGS)
    values, others = parser.parse_known_args(arguments[1:])
    if others and not hasattr(workload, "PASSED_ON"):
        parser.error(f"unknown flags: {' '.join(others)}")
    values.others = others
    results: list[report.Result] = []
    if values.saved:
        results = report.joined([result for path in values.saved for result in report.read(path)])
    elif getattr(workload, "ONE_PROCESS", False) and len(values.threads) > 1:
        for threads in values.threads:
            results += _in_child([*arguments, "--threads", str(threads)])
    else:
        measure = getattr(workload, "measure", None) or functools.partial(ranks.launch, name)
        for point in flags.points(values, getattr(workload, "TOGETHER", ())):
            results += measure(point)
    if values.json is not None and not values.saved:
        report.write(values.json, name, machine.describe(), results)
    if values.plot is not None and results:
        getattr(workload, "draw", _draw)(values.plot, results)
    text = getattr(workload, "table", report.table)(results)
    if values.into is not None:
        report.replace_tables(values.into, text)
    print(text)
    return 0


def _in_child(arguments: Sequence[str]) -> list[report.Result]:
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "results.json")
        command = [sys.executable, str(pathlib.Path(__file__).absolute()), *arguments, "--json", str(path)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        return report.read(path)


def _draw(path: pathlib.Path, results: Sequence[report.Result]) -> None:
    """The picture of a workload without `draw`: its goals, or else bars."""
    if any(result.goals for result in results):
        plots.goals(path, results)
    else:
        plots.bars(path, plots.panels_of(results, ()), "ms")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
