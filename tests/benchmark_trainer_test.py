"""benchmarks/trainer.py runs, and its ratios are those of samples per second."""

import pathlib

import goals as goals_program
import trainer as program
from bench.timing import Timing
from benchmark_support import run_program

PROGRAM = pathlib.Path(program.__file__)
SMALL = ["--samples", "300", "--batch_size", "32", "--dim", "4", "--hidden", "8", "--tensorflow_rows", "500"]


def test_a_run_trains_on_both_kinds_of_tables_and_skips_missing_data_sets(tmp_path):
    path = tmp_path / "rows.json"
    done = run_program(PROGRAM, "--rounds", "1", "--turn_ms", "50", "--ops", "2", "--json", str(path), *SMALL)
    assert done.returncode == 0, done.stderr
    assert "movielens is left out" in done.stderr
    (row,) = program.read_rows(path)
    assert (row.dataset, row.model, row.optimizer, row.batch) == ("synthetic", "dcn_v2", "lazy_adam", 32)
    assert list(row.timings) == ["sok", "tensorflow", "no tables", "batches alone"]
    assert all(timing.median > 0 and timing.median_cpu > 0 for timing in row.timings.values())
    assert list(row.ops) == ["sok", "tensorflow", "no tables"]
    assert row.ops["sok"]["SokGroupLookup"] > 0 and "SokGroupLookup" not in row.ops["tensorflow"]
    assert done.stdout == program.table([row]) + "\n\n" + program.ops_table(row) + "\n"
    assert goals_program.read(path) == [row.goal()]


def test_the_ratio_is_of_samples_per_second():
    timings = {name: Timing(value, value, value) for name, value in (("sok", 2.0), ("tensorflow", 5.0))}
    row = program.Row("synthetic", "dlrm", "sgd", 100, timings)
    assert (row.speed("sok"), row.speed("tensorflow")) == (50_000, 20_000)
    assert (row.goal().ratio, row.goal().verdict()) == (2.5, "missed")


def test_an_unknown_data_set_is_an_error_that_lists_the_known():
    done = run_program(PROGRAM, "--dataset", "census")
    assert done.returncode == 2
    assert "unknown data set 'census'; known are movielens, synthetic" in done.stderr
