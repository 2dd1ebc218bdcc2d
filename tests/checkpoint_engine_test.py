"""Compaction, which loads tables into an engine: rows of exact Adam, and errors."""

import numpy as np
import pytest

import checkpoint_files
import harness  # noqa: F401 - quiets TensorFlow
from checkpoint_files import KEYS, History, by_owner, write_table
from sparse_operation_kit.checkpoint import (
    CheckpointError,
    cli,
    compact,
    open_checkpoint,
    problems,
    row_blocks,
)

BETA1, BETA2, EPSILON = (float(np.float32(value)) for value in (0.9, 0.999, 1e-7))


def adam_step(row, alpha, gradient=0.0):
    """Adam's step on one row of float64 arrays."""
    row["slot-m"] = BETA1 * row["slot-m"] + (1 - BETA1) * gradient
    row["slot-v"] = BETA2 * row["slot-v"] + (1 - BETA2) * gradient * gradient
    row["values"] = row["values"] - alpha * row["slot-m"] / (np.sqrt(row["slot-v"]) + EPSILON)


def shards_of(rows, **more):
    """The arrays of two shards, from `rows` and `more`, which are dicts by key."""
    shards = []
    for keys in by_owner(list(rows), 2):
        arrays = {"keys": np.array(keys, "<i8")}
        for name in ("values", "slot-m", "slot-v"):
            arrays[name] = np.array([rows[key][name] for key in keys], "<f4").reshape(-1, 4)
        arrays.update({name: np.array([column[key] for key in keys], "<u4") for name, column in more.items()})
        shards.append(arrays)
    return shards


def write(prefix, shards, steps, **fields):
    history = fields.pop("history", None)
    hyper = {"alpha": 0.01, "beta1": 0.9, "beta2": 0.999, "epsilon": 1e-7}
    slots = [{"name": name, "width": 4, "fill": 0.0} for name in "mv"]
    optimizer = {"name": "adam", "steps": steps, "hyper": hyper, "slots": slots, "history": history}
    return write_table(prefix, shards, steps=steps, uses=steps, optimizer=optimizer, **fields)


@pytest.mark.parametrize("missed", [1, 5, 400])
def test_rows_of_exact_adam_are_brought_up_to_date(tmp_path, missed):
    rng = np.random.default_rng(missed)
    names = ("values", "slot-m", "slot-v")
    rows = {
        key: {name: np.abs(rng.normal(size=4)).astype("<f4").astype(float) for name in names}
        for key in KEYS.tolist()
    }
    write(tmp_path / "model.ckpt-0", shards_of(rows), 10)
    # All rows move on each step; a delta has only the touched rows, with the values from when they were
    # touched.
    alphas = rng.uniform(0.001, 0.02, missed).astype("<f4")
    written, current_at = {}, {}
    for number, alpha in enumerate(alphas.astype(float)):
        touched = rng.choice(KEYS, 2).tolist() if number < missed // 2 + 1 else []
        for key, row in rows.items():
            adam_step(row, alpha, rng.normal(size=4) if key in touched else 0.0)
            if key in touched:
                written[key], current_at[key] = dict(row), 11 + number
    delta = tmp_path / "model.ckpt-1"
    shards = shards_of(written, adam_step=current_at)
    for arrays in shards:
        arrays["deleted"] = np.zeros([0], "<i8")
    shards[0]["alphas"] = alphas
    history = {"beta1": 0.9, "beta2": 0.999, "epsilon": 1e-7, "first_step": 10}
    write(
        delta,
        shards,
        10 + missed,
        kind="delta",
        chain=[{"prefix": "model.ckpt-0", "id": "0123456789abcdef"}],
        table_rows=[len(keys) for keys in by_owner(list(rows), 2)],
        history=history,
    )
    assert list(problems(open_checkpoint(delta))) == []
    assert cli.main(["compact", str(delta), "--to", str(tmp_path / "new")]) == 0
    checkpoint = open_checkpoint(tmp_path / "new")
    assert list(problems(checkpoint)) == []
    found = 0
    for block in row_blocks(checkpoint.tables[0].open(), names):
        for index, key in enumerate(block.keys.tolist()):
            found += 1
            for name in names:
                np.testing.assert_allclose(block.columns[name][index], rows[key][name], rtol=2e-5, atol=1e-6)
    assert found == len(rows)


def test_an_error_of_the_engine_is_a_checkpoint_error_that_names_the_file(tmp_path):
    made = History(tmp_path, np.random.default_rng(2))
    made.train(10)
    made.save("model.ckpt-0")
    made.train(10)
    saved = made.save("model.ckpt-1", delta=True)
    checkpoint = open_checkpoint(saved.prefix)
    path = tmp_path / "model.ckpt-0.data-00000-of-00002"
    content = path.read_bytes()
    values = made.saved[0].tensors["items#0/values"].tobytes()
    path.write_bytes(content.replace(values, bytes(len(values))))
    with pytest.raises(CheckpointError, match=f"{path}:items#0/values"):
        compact(checkpoint, tmp_path / "new")
    assert not list(tmp_path.glob("new*"))


def test_a_chain_whose_middle_builds_on_another_checkpoint_is_refused(tmp_path):
    made = History(tmp_path, np.random.default_rng(2))
    made.train(10)
    first = made.save("model.ckpt-0")
    made.rows.popitem()
    made.save("another-0")
    for number in (1, 2):
        made.train(10)
        saved = made.save(f"model.ckpt-{number}", delta=True)
    chain = [{"prefix": one.prefix.name, "id": one.id} for one in (first, *made.saved[2:-1])]
    checkpoint_files.write(saved.prefix, checkpoint_files.changed(saved.tensors, "items", chain=chain))
    with pytest.raises(CheckpointError, match="is not number 2 of the chain of"):
        compact(open_checkpoint(saved.prefix), tmp_path / "new")
