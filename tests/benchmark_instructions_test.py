"""benchmarks/instructions.py reads callgrind's output and computes the counts of parts and steps."""

import shutil

import pytest

import instructions as program
from bench import callgrind
from bench.callgrind import Counts
from benchmark_support import BAZEL_BIN

LISTING = """
----------------------------------------------------------------------
Ir              D1mr         D1mw         DLmr         DLmw            file:function
----------------------------------------------------------------------
2,000 (100.0%)  30 (100.0%)  20 (100.0%)  5 (100.0%)  4 (100.0%)  PROGRAM TOTALS

1,900 (95.00%)  30 (100.0%)  20 (100.0%)  5 (100.0%)  .           ???:main [/bin/a b]
  700 (35.00%)   9 (30.00%)   1 ( 5.00%)  . (20.00%)  2 (50.00%)  x.cc:sok::Find(int)'2 [/bin/a b]
  800 (40.00%)  10 (33.33%)  .            1 (20.00%)  2 (50.00%)  ???:sok::Find(int) [/bin/a b]
"""


def test_a_listing_is_read_by_function():
    assert callgrind.parse(LISTING) == {
        callgrind.TOTAL: Counts(2000, 50, 9),
        "main": Counts(1900, 50, 5),
        "sok::Find(int)'2": Counts(700, 10, 2),
        "sok::Find(int)": Counts(800, 10, 3),
    }


def test_a_part_that_calls_itself_counts_once():
    costs = callgrind.parse(LISTING)
    assert program.of(costs, ("sok::Find(",)) == Counts(800, 10, 3)
    assert program.of(costs, ("sok::Gone(",)) == Counts()


def test_the_table_has_counts_before_and_after():
    def result(counts):
        return program.Result(1, 10.0, 5.0, {"dedup": counts})

    lines = program.table([result(Counts(50, 2, 1))], [result(Counts(100, 4, 1.5))]).splitlines()
    assert [cell.strip() for cell in lines[2].split("|")[1:-1]] == [
        "1",
        "dedup",
        "100",
        "50.00",
        "1.50",
        "1.00",
    ]


@pytest.mark.skipif(shutil.which("callgrind_annotate") is None, reason="needs valgrind")
def test_a_run_counts_every_part_of_a_step(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("SOK_BAZEL_BIN", str(BAZEL_BIN))
    path = tmp_path / "rows.json"
    flags = ["--features", "2", "--rows", "60", "--dim", "4", "--batch", "8", "--json", str(path)]
    assert program.main(flags) == 0
    for result in program.read_json(path):
        *parts, step = result.parts.values()
        assert list(result.parts) == [*program.PARTS, program.REST, program.STEP]
        assert all(result.parts[name].instructions > 0 for name in program.PARTS)
        assert sum(counts.instructions for counts in parts) == pytest.approx(step.instructions)
    printed = capsys.readouterr().out
    plot = tmp_path / "plot.png"
    assert program.main(["--show", str(path), "--plot", str(plot)]) == 0
    assert plot.read_bytes().startswith(b"\x89PNG")
    assert capsys.readouterr().out == printed
