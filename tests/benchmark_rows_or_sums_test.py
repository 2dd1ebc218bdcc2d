"""benchmarks/rows_or_sums.py runs, and both exchange modes send the expected amounts."""

import pathlib

import ranks
from benchmark_support import run_program

PROGRAM = pathlib.Path(__file__).absolute().parents[1] / "benchmarks" / "rows_or_sums.py"
SMALL = [
    "--features",
    "2",
    "--batch",
    "1024",
    "--rows",
    "100000",
    "--dim",
    "16",
    "--rounds",
    "1",
    "--calls",
    "1",
]


def test_sums_send_less_for_long_bags_of_distinct_ids():
    ranks.require("mpi")
    # Nearly uniform ids, of which few are equal.
    launch = ["--transport", "mpi", "--ranks", "2", "--zipf", "0.1", "--hotness", "1,64"]
    done = run_program(PROGRAM, *SMALL, *launch)
    assert done.returncode == 0, done.stderr
    lines = [line.strip("| ").split(" | ") for line in done.stdout.splitlines()[2:]]
    assert [line[0] for line in lines] == ["1", "64"]
    short, long = ([float(cell) for cell in line[2:4]] for line in lines)
    assert 0 < short[0] <= short[1]
    assert 0 < long[1] < long[0]


def test_an_unknown_transport_is_an_error_that_names_the_known():
    done = run_program(PROGRAM, *SMALL, "--transport", "ucx")
    assert done.returncode == 1
    assert "There is no transport 'ucx': use --transport mpi or gloo." in done.stderr


def test_what_is_no_number_is_an_error_that_says_so():
    done = run_program(PROGRAM, *SMALL, "--hotness", "2,many")
    assert done.returncode == 2
    assert "argument --hotness: 'many' is not a whole number" in done.stderr
