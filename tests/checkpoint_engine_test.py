"""The engine and the command line's reader read the same tables from the same checkpoints."""

import json

import numpy as np
import pytest

import harness  # noqa: F401 - quiets TensorFlow
from checkpoint_files import (
    BLOCKS,
    BLOOM,
    COUNTER,
    KEYS,
    History,
    by_owner,
    table_description,
    write_folder,
    write_manifest,
)
from sparse_operation_kit.checkpoint import (
    CheckpointError,
    cli,
    compare,
    engine,
    open_checkpoint,
    problems,
    row_blocks,
)


def engine_history(directory, **fields):
    """A History that the engine accepts: with its optimizer's slots, and blocks of 1 MiB."""
    slots = (("m", 4), ("v", 4))
    return History(directory, np.random.default_rng(2), slots=slots, **fields)


def table_of(path):
    (entry,) = open_checkpoint(path).tables
    return entry.open()


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize(
    ("admission", "columns"),
    [(None, ()), (COUNTER, ("frequency",)), (BLOOM, ("frequency",)), (BLOCKS, ("frequency",))],
)
def test_both_readers_agree_after_compaction(tmp_path, shards, admission, columns):
    description = table_description(admission=admission)
    made = engine_history(tmp_path, table=description, columns=columns, shards=shards)
    for step in range(4):
        made.train(100)
        saved = made.save(f"model.ckpt-{step}", delta=step > 0)
    engine.compact(table_of(saved.folder), tmp_path / "engine", "0123456789abcdef")
    assert list(problems(open_checkpoint(tmp_path / "engine.sok"))) == []
    assert cli.main(["compact", str(saved.folder), "--to", str(tmp_path / "ours")]) == 0
    # The engine writes such a small filter in full, which is no difference.
    found = compare(table_of(tmp_path / "engine.sok"), table_of(tmp_path / "ours.sok"))
    assert found.is_empty, found
    if admission == BLOCKS:
        made.train()
        other = table_of(made.save("other").folder)
        assert compare(table_of(tmp_path / "engine.sok"), other).bloom


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


def write(folder, shards, steps, **fields):
    history = fields.pop("history", None)
    hyper = {"alpha": 0.01, "beta1": 0.9, "beta2": 0.999, "epsilon": 1e-7}
    slots = [{"name": name, "width": 4, "fill": 0.0} for name in "mv"]
    optimizer = {"name": "adam", "steps": steps, "hyper": hyper, "slots": slots, "history": history}
    return write_folder(folder, shards, steps=steps, uses=steps, optimizer=optimizer, **fields)


@pytest.mark.parametrize("missed", [1, 5, 400])
def test_rows_of_exact_adam_are_brought_up_to_date(tmp_path, missed):
    rng = np.random.default_rng(missed)
    names = ("values", "slot-m", "slot-v")
    rows = {
        key: {name: np.abs(rng.normal(size=4)).astype("<f4").astype(float) for name in names}
        for key in KEYS.tolist()
    }
    full = tmp_path / "model.ckpt-0.sok" / "items-0000000000000000"
    crc = write(full, shards_of(rows), 10)
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
    delta = tmp_path / "model.ckpt-1.sok" / "items-1111111111111111"
    shards = shards_of(written, adam_step=current_at)
    for arrays in shards:
        arrays["deleted"] = np.zeros([0], "<i8")
    shards[0]["alphas"] = alphas
    history = {
        "beta1": 0.9,
        "beta2": 0.999,
        "epsilon": 1e-7,
        "first_step": 10,
        "alphas": "shard-00000/alphas.npy",
    }
    write(
        delta,
        shards,
        10 + missed,
        kind="delta",
        chain=[{"path": f"../../{full.parent.name}/{full.name}", "crc32": crc}],
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
    made = engine_history(tmp_path, columns=())
    made.train(10)
    made.save("model.ckpt-0")
    made.train(10)
    saved = made.save("model.ckpt-1", delta=True)
    table = table_of(saved.folder)
    path = saved.folder / "shard-00000" / "values.npy"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(CheckpointError, match="values.npy"):
        engine.compact(table, tmp_path / "new", "0123456789abcdef")
    assert list(row_blocks(table, ()))


def test_the_engine_refuses_a_chain_whose_middle_builds_on_another_checkpoint(tmp_path):
    made = engine_history(tmp_path, columns=())
    made.train(10)
    first = made.save("model.ckpt-0")
    made.rows.popitem()
    made.save("another-0")
    for number in (1, 2):
        made.train(10)
        saved = made.save(f"model.ckpt-{number}", delta=True)
    table = table_of(saved.folder)
    manifest = json.loads((saved.folder / "manifest.json").read_bytes())
    link = {"path": f"../../{first.folder.parent.name}/{first.folder.name}", "crc32": first.crc32}
    manifest["chain"][0] = link
    write_manifest(saved.folder, manifest)
    with pytest.raises(CheckpointError, match="is not number 2 of the chain of"):
        engine.compact(table, tmp_path / "new", "0123456789abcdef")
