"""benchmarks/lookup_prefetch.py runs on one and on several ranks, and prints its results."""

import json
import pathlib

import pytest

import ranks
from benchmark_support import run_program
from same_length import zip_equal

PROGRAM = pathlib.Path(__file__).absolute().parents[1] / "benchmarks" / "lookup_prefetch.py"
SMALL = ["--features", "3", "--batch", "12", "--rows", "90", "--dim", "3", "--hidden", "4"]
SMALL += ["--rounds", "1", "--calls", "2"]


@pytest.mark.parametrize("hotness, sizes", [("1", [1, 3]), ("4", [2])])
def test_a_run_measures_both_sides_at_every_number_of_ranks(hotness, sizes, tmp_path):
    ranks.require("mpi")
    path = tmp_path / "rows.json"
    launches = ["--ranks", ",".join(map(str, sizes)), "--hotness", hotness]
    done = run_program(PROGRAM, *SMALL, *launches, "--json", str(path))
    assert done.returncode == 0, done.stderr
    rows = json.loads(path.read_text())["rows"]
    assert [row["ranks"] for row in rows] == sizes
    for row, line in zip_equal(rows, done.stdout.splitlines()[2:]):
        plain, ahead = (row["timings"][name]["median"] for name in ("plain", "ahead"))
        assert plain > 0 and ahead > 0
        assert line.endswith(f"| {plain / ahead:.2f} |")
    if hotness == "1":
        assert [row["ids"] for row in rows] == [36, 12]
