"""benchmarks/engine_parts.py runs, and its tables and goals are correct."""

import pathlib

import pytest

import goals as goals_program
from bench import goal, parts_report, ratio_plot
from bench.timing import Timing
from benchmark_support import run_program

PROGRAM = pathlib.Path(goals_program.__file__).with_name("engine_parts.py")
SMALL = ["--ids", "64", "--distinct", "100", "--keys", "50", "--dim", "4", "--table_mb", "0.01"]


def test_a_run_measures_every_part_and_its_comparison(tmp_path):
    path = tmp_path / "rows.json"
    flags = [
        *SMALL,
        "--rounds",
        "1",
        "--zipf",
        "1.2",
        "--json",
        str(path),
        "--plot",
        str(tmp_path / "plot.png"),
    ]
    done = run_program(PROGRAM, *flags)
    assert done.returncode == 0, done.stderr
    rows = parts_report.read_rows(path)
    assert [(row.part, row.threads) for row in rows] == [
        ("dedup", 1),
        ("dedup", 2),
        ("index", 1),
        ("gather", 1),
        ("gather", 2),
        ("pool", 1),
        ("pool", 2),
    ]
    for row in rows:
        names = [entry.name for entry in row.entries]
        if row.part == "dedup":
            assert row.held_to == "tf.unique" in names and row.least == 1
        else:
            assert len(names) == 4 and row.held_to in names and row.least == 0.8
            assert row.other.timing.median == min(entry.timing.median for entry in row.entries)
        assert row.megabytes > 0 and row.copy_ms > 0 and row.ratio > 0
        assert (row.hand_over_ns is not None) == (row.threads > 1)
        # The transfer of a cache line takes at least a few cycles.
        assert row.hand_over_ns is None or row.hand_over_ns[0] >= row.hand_over_ns[1] > 1
    assert done.stdout == parts_report.table(rows) + "\n"
    assert goals_program.read(path) == [row.goal() for row in rows]
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")


def test_an_unknown_part_is_an_error_that_lists_the_known():
    done = run_program(PROGRAM, "--part", "index,dedupe")
    assert done.returncode == 2
    assert "unknown part 'dedupe'; known are dedup, index, gather" in done.stderr


def timing(milliseconds):
    return Timing(milliseconds, milliseconds, milliseconds)


def row_of(ours, *bare):
    entries = tuple(parts_report.Entry(f"bare, {name}", timing(value)) for name, value in bare)
    return parts_report.Row(
        "gather", "dim 4", 2, 1000.0, 6.0, 3.0, (225.4, 47.0), timing(ours), entries, entries[0].name, 0.8
    )


@pytest.mark.parametrize(("ours", "verdict"), [(5.0, "reached"), (5.1, "missed")])
def test_ratios_are_of_speeds_and_only_the_fastest_bare_loop_is_shown(ours, verdict):
    row = row_of(ours, ("128", 4.0), ("32", 9.0))
    lines = parts_report.table([row]).splitlines()
    cells = [[cell.strip() for cell in line.split("|")[4:-1]] for line in lines[2:]]
    assert [line[0] for line in cells] == [
        "6.0 MB copied",
        "a cache line to the other core",
        "bare, 128",
        "engine",
    ]
    # 2 ms of copying at 3 GB/s; 1000 ids in 4 ms.
    assert cells[0][1] == "2.000"
    assert cells[1][1] == "225 ns (47)"
    assert cells[2][1:] == ["4.000 (4.000)", "4.000", "0", f"{4 / ours:.2f}", "2.0", ""]
    assert cells[3][-1] == f"{verdict}: {4 / ours:.2f} of 0.8"


def test_goals_are_listed_with_their_verdicts(tmp_path):
    goals = [goal.Goal("a step", "tfra", 9.0, 8.0, 12.0), goal.Goal("a lookup", "bare", 0.5, 0.8)]
    lines = goals_program.table(goals).splitlines()
    assert [cell.strip() for cell in lines[2].split("|")] == [
        "",
        "a step",
        "tfra",
        "9.00",
        "8",
        "12",
        "reached",
        "",
    ]
    assert [cell.strip() for cell in lines[3].split("|")] == [
        "",
        "a lookup",
        "bare",
        "0.50",
        "0.8",
        "",
        "missed",
        "",
    ]
    ratio_plot.write(tmp_path / "goals.png", goals)
    assert (tmp_path / "goals.png").read_bytes().startswith(b"\x89PNG")
