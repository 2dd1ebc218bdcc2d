"""Reading checkpoints: rows of full ones and chains, single ids, waiting ids, entries that are refused."""

import numpy as np
import pytest

import checkpoint_files
from checkpoint_files import BLOOM, COUNTER, History
from same_length import zip_equal
from sparse_operation_kit.checkpoint import (
    CheckpointError,
    find_row,
    open_checkpoint,
    row_blocks,
    rows,
    waiting_ids,
)


def table_of(prefix):
    (entry,) = open_checkpoint(prefix).tables
    return entry.open()


def history(tmp_path, seed=0, **fields):
    return History(tmp_path, np.random.default_rng(seed), **fields)


def contents(table, columns=None):
    found = {}
    for block in row_blocks(table, columns or rows.columns_of(table)):
        for index, key in enumerate(block.keys.tolist()):
            assert key not in found
            found[key] = {name: array[index] for name, array in block.columns.items()}
    return found


def assert_rows(found, wanted):
    assert found.keys() == wanted.keys()
    for key, row in wanted.items():
        assert found[key].keys() == row.keys()
        for name, value in row.items():
            np.testing.assert_array_equal(found[key][name], value)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("admission", [None, COUNTER, BLOOM])
def test_every_checkpoint_of_a_chain_reads_as_its_state(tmp_path, seed, admission):
    description = checkpoint_files.table_description(admission=admission)
    made = history(tmp_path, seed, table=description, shards=1 + seed % 3)
    for step in range(6):
        made.train()
        made.save(f"model.ckpt-{step}", delta=step not in (0, 4))
    for saved in made.saved:
        table = table_of(saved.prefix)
        assert_rows(contents(table), saved.rows)
        assert rows.count_rows(table) == len(saved.rows)
        if admission == COUNTER:
            ids, counts, steps = waiting_ids(table)
            pairs = zip_equal(counts.tolist(), steps.tolist())
            assert dict(zip_equal(ids.tolist(), pairs)) == saved.waiting


def test_single_ids(tmp_path):
    made = history(tmp_path, table=checkpoint_files.table_description(admission=COUNTER))
    for step in range(6):
        made.train(60)
        saved = made.save(f"model.ckpt-{step}", delta=step > 0)
    table = table_of(saved.prefix)
    for key in made._random_keys(300):
        found = find_row(table, key)
        assert (found is not None) == (key in saved.rows)
        if found is not None:
            assert_rows({key: found}, {key: saved.rows[key]})
        assert rows.find_waiting(table, key) == saved.waiting.get(key)


def test_many_blocks_and_rows_that_straddle_them(tmp_path):
    description = checkpoint_files.table_description(dim=3001)
    made = history(tmp_path, table=description, slots=(), shards=1)
    for key in range(200):
        made._set(key)
    saved = made.save("model.ckpt-1")
    table = table_of(saved.prefix)
    assert len(table.last.shards[0].arrays["values"].crc32c) == 3
    assert_rows(contents(table), saved.rows)
    assert_rows({87: find_row(table, 87)}, {87: saved.rows[87]})


def test_rows_are_read_in_blocks(tmp_path, monkeypatch):
    monkeypatch.setattr(rows, "_TARGET_BYTES", 1000)
    made = history(tmp_path)
    for step in range(3):
        made.train(200)
        saved = made.save(f"model.ckpt-{step}", delta=step > 0)
    table = table_of(saved.prefix)
    assert max(len(block.keys) for block in row_blocks(table)) <= 1000 // 16
    assert_rows(contents(table), saved.rows)


def is_refused(saved, message, tensors):
    """Whether the checkpoint with these tensors cannot be opened, with an error that names its index."""
    checkpoint_files.write(saved.prefix, tensors)
    with pytest.raises(CheckpointError, match=message) as error:
        table_of(saved.prefix)
    assert f"{saved.prefix}.index" in str(error.value)


# Changes of a table's entry and of its shard's; //cc/checkpoint:manifest_test has more.
INVALID = [
    ("items", {"kind": "half"}, 'unknown "kind": "half"'),
    ("items", {"steps": ...}, 'has no "steps"'),
    ("items", {"steps": True}, '"steps"'),
    ("items", {"shards": 2}, "has no 'items#1'"),
    ("items", {"table__key_dtype": "int16"}, 'unknown "key_dtype"'),
    ("items", {"table__placement": "by_key"}, "names the placement that tables without one have"),
    ("items", {"table__placement": "nowhere"}, "placement"),
    ("items", {"table__admission": {"kind": "magic"}}, 'unknown "kind": "magic"'),
    ("items", {"optimizer": None}, "arrays that do not belong"),
    ("items", {"optimizer__slots__0__name": "../m"}, "a slot with the invalid name"),
    ("items", {"optimizer__history": {"first_step": 0}}, 'has no "beta1"'),
    ("items#0", {"rows": 5}, "has 5 rows in a shard whose table has"),
    ("items#0", {"table_rows": 5}, "rows in a shard whose table has 5"),
    ("items#0", {"rows": 5, "table_rows": 5}, "not int64 \\[5\\]"),
    ("items#0", {"rows": 2**63}, '"rows"'),
    ("items#0", {"arrays__keys__dtype": "<f16"}, "impossible type: <f16"),
    ("items#0", {"arrays__keys__crc32c": [2**32]}, '"crc32c"'),
    ("items#0", {"arrays__values__shape": [2**40, 2**40]}, "impossible type"),
]


@pytest.mark.parametrize(("entry", "changes", "message"), INVALID)
def test_invalid_entries_are_refused(tmp_path, entry, changes, message):
    made = history(tmp_path, shards=1)
    made.train()
    saved = made.save("model.ckpt-1")
    is_refused(saved, message, checkpoint_files.changed(saved.tensors, entry, **changes))


def test_tensors_that_are_not_what_the_table_says_are_refused(tmp_path):
    saved = history(tmp_path, shards=1).save("model.ckpt-1")
    values = saved.tensors["items#0/values"]
    for other in (values.astype("<f8"), values.reshape(4, 0), "text"):
        is_refused(saved, "but its table says float32", {**saved.tensors, "items#0/values": other})
    without = dict(saved.tensors)
    del without["items#0/values"]
    is_refused(saved, "has no 'items#0/values'", without)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"version": 2}, "version 2; this library reads version 1"),
        ({"format": "another"}, "other facts than those of tables"),
        ({"id": ...}, 'has no "id"'),
        ({"parts": 0}, '"parts"'),
        ({"chains": ["/etc"]}, "is not relative"),
        ({"chains": [7]}, "not strings"),
    ],
)
def test_invalid_facts_are_refused(tmp_path, changes, message):
    saved = history(tmp_path).save("model.ckpt-1")
    checkpoint_files.write(saved.prefix, checkpoint_files.changed(saved.tensors, "#sok", **changes))
    with pytest.raises(CheckpointError, match=message):
        open_checkpoint(saved.prefix)


def test_a_chain_of_another_optimizer_or_number_of_shards_is_refused(tmp_path):
    for field, value in (("slots", (("m", 4),)), ("shards", 3)):
        made = history(tmp_path / field)
        made.train()
        made.save("model.ckpt-0")
        setattr(made, field, value)
        made.bloom = made.bloom + made.bloom[:1]
        made.train()
        made._forget_changes()
        prefix = made.save("model.ckpt-1", delta=True).prefix
        what = "another optimizer" if field == "slots" else "another table"
        with pytest.raises(CheckpointError, match=f"model.ckpt-1.index:items' .*{what}"):
            table_of(prefix)


def test_lagging_rows_are_refused(tmp_path):
    made = history(tmp_path)
    made.train()
    made.save("model.ckpt-0")
    made.train()
    table = table_of(made.save("model.ckpt-1", delta=True, lagging=True).prefix)
    with pytest.raises(CheckpointError, match="exact Adam.*full checkpoint"):
        table.require_current()


def test_names_of_tables_that_look_like_entries(tmp_path):
    names = ["items", "items#x", "a#0", "größe", "#sok/x"]
    made = [
        history(tmp_path, number, table=checkpoint_files.table_description(name=name))
        for number, name in enumerate(names)
    ]
    for one in made:
        one.train()
    saved = checkpoint_files.save_all(made, "model.ckpt-1")
    checkpoint = open_checkpoint(tmp_path / "model.ckpt-1")
    assert [entry.name for entry in checkpoint.tables] == sorted(names)
    for name, one in zip_equal(names, saved):
        (entry,) = checkpoint.select([name])
        assert_rows(contents(entry.open()), one.rows)
