# Not on GPUs: a program; the tests gpu_* have one
"""The parts of benchmarks/bench: jobs and their ids, timing, agreement, tables, goals and flags."""

import argparse
import dataclasses
import time

import numpy as np
import pytest

import harness
from bench import compare, flags, plots, report, timing
from bench.jobs import Job
from bench.report import Goal, Result
from bench.session_sides import SokSide, TensorFlowSide
from bench.timing import Timing
from same_length import zip_equal
from workloads import feature_columns, instructions

BATCH = harness.GLOBAL_BATCH_SIZE  # sok.Init accepts only one value per process


def test_ids_are_skewed_and_bags_have_the_hotness_asked_for():
    job = Job(features=1, rows=5000, batch=2000, hotness=10, zipf=1.2, batches=2, seed=3)
    batches = job.make_batches()
    bags = batches[0][0]
    lengths = np.diff(bags.offsets)
    assert bags.offsets[0] == 0 and bags.offsets[-1] == bags.ids.size
    assert 1 <= lengths.min() and lengths.max() == bags.longest() and 9.5 < lengths.mean() < 10.5
    assert bags.ids.min() >= 0 and bags.ids.max() < 5000
    counts = np.sort(np.bincount(bags.ids))[::-1]
    # Zipf's law: the first is about 2^1.2 times as frequent as the second.
    assert 1.9 < counts[0] / counts[1] < 2.8
    # Frequent ids are the same in every batch.
    assert np.bincount(bags.ids).argmax() == np.bincount(batches[1][0].ids).argmax()


def test_zipf_0_is_uniform():
    ((bags,),) = Job(features=1, rows=10, batch=20000, batches=1).make_batches()
    assert np.bincount(bags.ids, minlength=10).min() > 1800


def test_ids_are_read_as_written(tmp_path):
    job = Job(features=2, rows=50, dim=4, batch=6, hotness=3, zipf=1.2, batches=3, seed=7)
    written = job.make_batches()
    for before, after in zip_equal(written, job.write_ids(written, tmp_path / "ids").read_ids()):
        for a, b in zip_equal(before, after):
            np.testing.assert_array_equal(a.ids, b.ids)
            np.testing.assert_array_equal(a.offsets, b.offsets)
    assert not np.array_equal(job.row_values(0), job.row_values(1))


@pytest.mark.parametrize(
    ("optimizer", "record"), [("sgd", 4), ("adagrad", 8), ("lazy_adam", 12), ("rowwise_adagrad", 5)]
)
def test_bytes_moved_are_ids_rows_outputs_gradients_and_records(optimizer, record):
    job = Job(features=2, rows=100, dim=4, optimizer=optimizer, batch=10)
    forward = 8 * 30 + 20 * 16 + 2 * 10 * 16
    assert job.bytes_moved("forward", 30, 20) == forward
    assert job.bytes_moved("step", 30, 20) == forward + 2 * 10 * 16 + 2 * 20 * record * 4


@pytest.mark.parametrize("equal_rows", [True, False])
def test_sides_must_agree_before_and_after_training(equal_rows, tmp_path):
    job = Job(2, 20, 3, "lazy_adam", batch=BATCH, hotness=3, zipf=1.1, batches=2, seed=harness.SEED)
    job = job.write_ids(job.make_batches(), tmp_path / "ids")
    ours, theirs = SokSide(job), TensorFlowSide(job)
    if equal_rows:
        compare.check_agreement({"sok": ours, "tensorflow": theirs}, tmp_path)
        return
    theirs.train()  # changes its rows
    with pytest.raises(AssertionError, match="tensorflow and sok"):
        compare.check_agreement({"sok": ours, "tensorflow": theirs}, tmp_path)


@pytest.mark.parametrize("equal_rows", [True, False])
def test_feature_columns_must_agree(equal_rows):
    job = Job(3, 20, 2, "adagrad", batch=BATCH, hotness=2, zipf=1.1, batches=2, seed=harness.SEED)
    batches = job.make_batches()
    columns = feature_columns.plain_column, feature_columns.grouped_column
    plain, grouped = (
        feature_columns.Side(job, batches, lambda key, of=of: of(job, "identity", key)) for of in columns
    )
    if equal_rows:
        grouped.load(plain)
        feature_columns.check_agreement(plain, grouped)
        return
    with pytest.raises(AssertionError, match="before training"):
        feature_columns.check_agreement(plain, grouped)


def test_the_call_before_is_not_timed(monkeypatch):
    calls = []
    # Seconds on the clock: those of all calls so far.
    seconds = {"before": 50.0, "call": 0.25}
    monkeypatch.setattr(time, "perf_counter", lambda: sum(seconds[call] for call in calls))
    taken = timing.sample_after(lambda: calls.append("before"), lambda: calls.append("call"), 3)
    assert taken.wall == 250
    assert calls == ["before", "call"] * 3


def test_contenders_take_turns_of_equal_length():
    calls = []

    def run(name, milliseconds):
        return lambda count: calls.append((name, count)) or timing.Sample(milliseconds, 2 * milliseconds)

    timings = timing.measure({"a": run("a", 8.0), "b": run("b", 50.0)}, rounds=2)
    assert timings["a"] == Timing(8, 8, 16) and timings["b"] == Timing(50, 50, 100)
    warm_up = [("a", 1), ("a", 2), ("b", 1), ("b", 2)]
    assert calls == warm_up + 2 * [("a", 1), ("a", 5), ("b", 1)]
    calls.clear()
    timing.measure({"a": run("a", 8.0)}, rounds=1, calls=3)
    assert calls == [("a", 1), ("a", 2), ("a", 1), ("a", 3)]


def result_of(ours, other, **fields):
    timings = {"sok": Timing(ours, ours - 0.5, 1.5 * ours), "torch": Timing(other, other - 1, other - 1)}
    return Result({"dim": 16, "what": "step", **fields}, timings, "sok", {"ids": 20.0}, 0.5, "M ids")


def test_a_table_has_a_line_for_each_contender_and_what_varies():
    lines = report.table([result_of(4.0, 10.0, hotness=1), result_of(2.0, 3.0, hotness=10)]).splitlines()
    assert lines[:2] == ["dim 16, what step", ""]
    head, _, *cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines[2:]]
    assert head == ["hotness", "ids", "who", "ms (min)", "cpu ms", "/ours", "cpu /ours", "M ids/s"]
    assert cells == [
        ["1", "20", "sok", "4.000 (3.500)", "6.000", "1.00", "1.00", "125"],
        ["", "", "torch", "10.000 (9.000)", "9.000", "2.50", "1.50", "50"],
        ["10", "20", "sok", "2.000 (1.500)", "3.000", "1.00", "1.00", "250"],
        ["", "", "torch", "3.000 (2.000)", "2.000", "1.50", "0.67", "166.7"],
    ]


def test_results_are_read_as_written_and_goals_are_reached_or_missed(tmp_path):
    reached = dataclasses.replace(result_of(4.0, 10.0), goals=(Goal("torch", 2.5, 3.0),))
    missed = dataclasses.replace(result_of(4.0, 10.0), goals=(Goal("torch", 2.6),))
    report.write(tmp_path / "results.json", "peers", {}, [reached, missed])
    read = report.read(tmp_path / "results.json")
    assert read == [reached, missed]
    lines = [
        [cell.strip() for cell in line.split("|")[1:-1]] for line in report.goals_table(read).splitlines()[2:]
    ]
    assert lines == [
        ["dim 16, what step", "torch", "2.50", "2.5", "3", "reached"],
        ["dim 16, what step", "torch", "2.50", "2.6", "", "missed"],
    ]
    (both,) = report.joined(read)
    assert report.goals_table([both]) == report.goals_table(read)
    plots.goals(tmp_path / "goals.png", read)
    assert (tmp_path / "goals.png").read_bytes().startswith(b"\x89PNG")


def test_flags_with_several_values_are_combined_except_those_that_stay_together():
    parser = flags.make_parser("", "", {"features": (26,), "dim": 16, "zipf": (1.05,)})
    values = parser.parse_args(["--features", "26,55", "--zipf", "0,1.2"])
    points = [(point.features, point.dim, point.zipf) for point in flags.points(values, ["zipf"])]
    assert points == [(26, 16, (0, 1.2)), (55, 16, (0, 1.2))]
    assert len(list(flags.points(values))) == 4
    assert isinstance(values, argparse.Namespace)


LISTING = """
----------------------------------------------------------------------
Ir              D1mr         D1mw         DLmr         DLmw            file:function
----------------------------------------------------------------------
2,000 (100.0%)  30 (100.0%)  20 (100.0%)  5 (100.0%)  4 (100.0%)  PROGRAM TOTALS

1,900 (95.00%)  30 (100.0%)  20 (100.0%)  5 (100.0%)  .           ???:main [/bin/a b]
  700 (35.00%)   9 (30.00%)   1 ( 5.00%)  . (20.00%)  2 (50.00%)  x.cc:sok::Find(int)'2 [/bin/a b]
  800 (40.00%)  10 (33.33%)  .            1 (20.00%)  2 (50.00%)  ???:sok::Find(int) [/bin/a b]
"""


def test_callgrinds_listing_is_read_by_function_and_recursion_counts_once():
    costs = instructions.parse(LISTING)
    assert {name: list(counts) for name, counts in costs.items()} == {
        "PROGRAM TOTALS": [2000, 50, 9],
        "main": [1900, 50, 5],
        "sok::Find(int)'2": [700, 10, 2],
        "sok::Find(int)": [800, 10, 3],
    }
    assert list(instructions.of(costs, "sok::Find(")) == [800, 10, 3]
    assert list(instructions.of(costs, "sok::Gone(")) == [0, 0, 0]
