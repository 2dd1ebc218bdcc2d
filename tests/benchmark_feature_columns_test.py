"""benchmarks/feature_columns.py runs, and fails if the two sides compute different results."""

import json
import os
import pathlib
import sys

import pytest

import feature_columns as program
import forked
import harness
from bench import axes, ids
from bench.column_sides import Columns, SokColumns, TensorFlowColumns
from same_length import zip_equal

BATCH = harness.GLOBAL_BATCH_SIZE  # sok.Init accepts only one value per process
PROGRAM = pathlib.Path(program.__file__)
SMALL = ["--features", "2,5", "--batch", "8", "--rows", "30", "--dim", "4", "--rounds", "2", "--batches", "2"]


def run_program(*flags):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    return forked.run(PROGRAM, *SMALL, *flags, env=environment)


def test_a_run_prints_a_table_and_writes_every_number(tmp_path):
    path = tmp_path / "rows.json"
    done = run_program("--json", str(path))
    assert done.returncode == 0, done.stderr
    rows = json.loads(path.read_text())["rows"]
    assert [(row["kind"], row["features"], row["side"]) for row in rows] == [
        (kind, features, side)
        for kind in ("identity", "hash")
        for features in (2, 5)
        for side in ("plain", "grouped")
    ]
    assert len(done.stdout.splitlines()) == 1 + len(rows)
    for plain, grouped in zip_equal(rows[::2], rows[1::2]):
        assert grouped["ops_in_graph"] < plain["ops_in_graph"] / 3
        assert 0 < grouped["ops_in_step"] < plain["ops_in_step"] / 2
        assert 0 < grouped["step"]["minimum"] <= grouped["step"]["median"]


def test_unknown_columns_are_refused():
    done = run_program("--kind", "crossed")
    assert done.returncode == 2
    assert "unknown kind 'crossed'; known are identity, hash" in done.stderr


@pytest.mark.parametrize("equal_rows", [True, False])
def test_the_outputs_of_both_sides_are_compared(equal_rows):
    columns = Columns("identity", features=3, rows=20, dim=2, optimizer="adagrad", batch=BATCH)
    batches = ids.make_batches(axes.Bags(batch=BATCH, hotness=2, exponent=1.1), 3, 20, count=2, seed=5)
    with TensorFlowColumns(columns, batches, 1, harness.SEED) as plain:
        with SokColumns(columns, batches, 1, harness.SEED) as grouped:
            plain.start()
            grouped.start()
            if equal_rows:
                grouped.load(plain.tables())
                program.check_agreement(plain, grouped, len(batches))
                return
            with pytest.raises(AssertionError, match="before training"):
                program.check_agreement(plain, grouped, len(batches))
