"""benchmarks/lookup_and_step.py runs, and fails if the two sides compute different results."""

import pathlib
import time

import numpy as np
import pytest
import tensorflow as tf

from bench import ids, report
from bench.agreement import check_agreement
from bench.axes import Bags, Tables
from bench.inputs import RotatingBatches
from bench.sides import SokSide, TensorFlowSide
from bench.timing import AfterwardsContender
from benchmark_support import run_program
from harness import graph_and_session, initialize

PROGRAM = pathlib.Path(__file__).absolute().parents[1] / "benchmarks" / "lookup_and_step.py"
SMALL = ["--features", "3", "--batch", "8", "--rows", "90", "--dim", "4", "--rounds", "1", "--batches", "2"]


def test_a_run_prints_a_table_and_writes_every_number(tmp_path):
    path = tmp_path / "rows.json"
    flags = ["--optimizer", "lazy_adam,adam", "--threads", "1,2", "--hotness", "1"]
    done = run_program(PROGRAM, *SMALL, *flags, "--json", str(path))
    assert done.returncode == 0, done.stderr
    rows = report.read_rows(path)
    # 2 numbers of threads, 2 optimizers; the forward lookup, the lookup and the step.
    assert len(rows) == 2 * 2 * 3
    assert len(done.stdout.splitlines()) == 1 + len(rows)
    for row in rows:
        assert [peer.name for peer in row.peers] == ["tf.gather", "tf sparse"]
        assert 0 < row.timing.minimum <= row.timing.median and row.timing.median_cpu > 0
        assert 0 < row.unique < row.ids and row.bound_ms > 0
        assert 0 < row.run_alone.minimum <= row.run_alone.median


def test_an_unknown_optimizer_is_an_error_that_lists_the_known():
    done = run_program(PROGRAM, *SMALL, "--optimizer", "adamm")
    assert done.returncode == 2
    assert "unknown optimizer 'adamm'; known are lazy_adam" in done.stderr


def check_agreement_of_two_sides(equal_rows):
    tables = Tables(features=2, rows_per_table=20, dim=3, optimizer="lazy_adam")
    batches = ids.make_batches(Bags(batch=6, hotness=3, exponent=1.1), 2, 20, count=2, seed=5)
    with graph_and_session() as session:
        ours, theirs = SokSide(tables), TensorFlowSide(tables)
        rotation = RotatingBatches(batches)
        gradients = [tf.ones([6, 3]), tf.fill([6, 3], 2.0)]
        targets = [side.targets("sparse", rotation.features, gradients) for side in (ours, theirs)]
        initialize(session)
        if equal_rows:
            ours.copy_rows(session, theirs)
        check_agreement(session, rotation, len(batches), *targets, {})


def test_sides_with_equal_rows_agree_before_and_after_training():
    check_agreement_of_two_sides(equal_rows=True)


def test_sides_with_different_rows_are_refused():
    with pytest.raises(AssertionError, match="before training"):
        check_agreement_of_two_sides(equal_rows=False)


def test_ids_are_skewed_and_bags_have_the_hotness_asked_for():
    batches = ids.make_batches(Bags(batch=2000, hotness=10, exponent=1.2), 1, 5000, count=2, seed=3)
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


def test_the_call_before_is_not_timed(monkeypatch):
    calls = []
    # Seconds on the clock: those of all calls so far.
    seconds = {"before": 50.0, "call": 0.25}
    monkeypatch.setattr(time, "perf_counter", lambda: sum(seconds[call] for call in calls))
    contender = AfterwardsContender("", lambda: calls.append("before"), lambda: calls.append("call"))
    assert contender.sample(3).wall == 250
    assert calls == ["before", "call"] * 3
