"""benchmarks/lookups_over_ranks.py runs, and its counts agree with the formula in docs/design.md."""

import json
import pathlib

import pytest

import ranks
from benchmark_support import run_program

PROGRAM = pathlib.Path(__file__).absolute().parents[1] / "benchmarks" / "lookups_over_ranks.py"
SMALL = ["--features", "3", "--batch", "12", "--rows", "90", "--dim", "3", "--rounds", "1", "--calls", "1"]


@pytest.mark.parametrize(("transport", "size"), [("mpi", 3)])
def test_exchanges_and_bytes_are_those_of_the_formula(transport, size, tmp_path):
    ranks.require(transport)
    path = tmp_path / "rows.json"
    launch = ["--transport", transport, "--ranks", str(size), "--cycle_time", "1", "--json", str(path)]
    launch += ["--plot", str(tmp_path / "plot.png")]
    done = run_program(PROGRAM, *SMALL, *launch)
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(path.read_text())["rows"]
    assert row["exchanges"] == 3
    # Rows of three floats do not fill whole words, so messages are rounded up.
    assert row["bytes_sent"] == row["bytes_by_formula"] > 0
    assert len(done.stdout.splitlines()) == 2
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")
    assert all(0 < timing["minimum"] <= timing["median"] for timing in row["timings"].values())
