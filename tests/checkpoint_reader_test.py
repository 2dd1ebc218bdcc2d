"""Reading checkpoints without TensorFlow: rows of full ones and chains, single ids, waiting ids, errors."""

import io
import json
import subprocess
import sys

import numpy as np
import pytest

import checkpoint_files
from checkpoint_files import BLOOM, COUNTER, History
from same_length import zip_equal
from sparse_operation_kit.checkpoint import (
    CheckpointError,
    Table,
    find_row,
    manifest,
    row_blocks,
    rows,
    waiting_ids,
)
from sparse_operation_kit.checkpoint.npy import header


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


@pytest.mark.parametrize("shards", [1, 2, 3])
@pytest.mark.parametrize("rows_each", [0, 1, 300])
def test_full_checkpoint(tmp_path, shards, rows_each):
    made = history(tmp_path, shards=shards)
    if rows_each:
        made.train(rows_each)
    saved = made.save("model.ckpt-1")
    table = Table.open(saved.folder, saved.crc32)
    assert_rows(contents(table), saved.rows)
    assert sum(shard.rows for shard in table.last.shards) == len(saved.rows)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("admission", [None, COUNTER, BLOOM])
def test_every_checkpoint_of_a_chain_reads_as_its_state(tmp_path, seed, admission):
    description = checkpoint_files.table_description(admission=admission)
    made = history(tmp_path, seed, table=description, shards=1 + seed % 3)
    for step in range(6):
        made.train()
        made.save(f"model.ckpt-{step}", delta=step not in (0, 4))
    for saved in made.saved:
        table = Table.open(saved.folder, saved.crc32)
        assert_rows(contents(table), saved.rows)
        assert rows.count_rows(table) == len(saved.rows)
        if admission == COUNTER:
            ids, counts, steps = waiting_ids(table)
            pairs = zip_equal(counts.tolist(), steps.tolist())
            assert dict(zip_equal(ids.tolist(), pairs)) == saved.waiting


def test_the_shards_of_a_chain_have_all_its_rows(tmp_path):
    made = history(tmp_path)
    for step in range(3):
        made.train()
        saved = made.save(f"model.ckpt-{step}", delta=step > 0)
    table = Table.open(saved.folder)
    shards, found = len(table.last.shards), {}
    assert shards > 1
    for number in range(shards):
        for block in row_blocks(table, (), number):
            keys = block.keys.tolist()
            assert all(key % 2**64 % shards == number for key in keys)
            found.update(dict.fromkeys(keys))
    assert found.keys() == saved.rows.keys()


def test_single_ids(tmp_path):
    made = history(tmp_path, table=checkpoint_files.table_description(admission=COUNTER))
    for step in range(4):
        made.train(60)
        saved = made.save(f"model.ckpt-{step}", delta=step > 0)
    table = Table.open(saved.folder)
    for key in made._random_keys(300):
        found = find_row(table, key)
        assert (found is not None) == (key in saved.rows)
        if found is not None:
            assert_rows({key: found}, {key: saved.rows[key]})
        assert rows.find_waiting(table, key) == saved.waiting.get(key)


def test_many_blocks_and_rows_that_straddle_them(tmp_path, monkeypatch):
    monkeypatch.setattr(manifest, "BLOCK_BYTES", 64)
    made = history(tmp_path, block_bytes=64, shards=1)
    made.train(200)
    saved = made.save("model.ckpt-1")
    table = Table.open(saved.folder)
    assert len(table.last.shards[0].arrays["values"].spec.crc32) > 10
    assert_rows(contents(table), saved.rows)


def test_rows_are_read_in_blocks(tmp_path, monkeypatch):
    monkeypatch.setattr(rows, "_TARGET_BYTES", 1000)
    made = history(tmp_path)
    for step in range(3):
        made.train(200)
        saved = made.save(f"model.ckpt-{step}", delta=step > 0)
    table = Table.open(saved.folder)
    assert max(len(block.keys) for block in row_blocks(table)) <= 1000 // 24
    assert_rows(contents(table), saved.rows)


def change_manifest(folder, **changes):
    document = json.loads((folder / "manifest.json").read_bytes())
    for path, value in changes.items():
        holder = document
        *parents, last = path.split("__")
        for name in parents:
            holder = holder[int(name) if name.isdigit() else name]
        if value is ...:
            del holder[last]
        else:
            holder[last] = value
    return checkpoint_files.write_manifest(folder, document)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": "another"}, "of the format 'another'"),
        ({"version": 6}, "version 6; this program reads versions 1 to 5"),
        ({"version": 3}, "version 3 with a table of version 1"),
        ({"version": 2}, "version 2 with a table of version 1"),
        ({"table__placement": "all_ranks"}, "version 1 with a table of version 2"),
        ({"kind": "half"}, "kind is 'half'"),
        ({"kind": "delta"}, "a delta checkpoint with a chain of 0"),
        ({"steps": ...}, "lacks 'steps'"),
        ({"steps": -1}, "steps is -1"),
        ({"steps": True}, "steps is True"),
        ({"rows": 3}, "3 rows, but its shards"),
        ({"shards": []}, "no shards"),
        ({"block_bytes": 0}, "block_bytes is 0"),
        ({"table__dim": 5}, "'values' of shard 0 has shape"),
        ({"table__dim": 0}, "dim is 0"),
        ({"table__key_dtype": "int16"}, "key_dtype is 'int16'"),
        ({"table__admission": {"kind": "magic"}}, "kind is 'magic'"),
        ({"optimizer__slots": []}, "array 'slot-m' of shard 0 is unknown"),
        ({"optimizer": None}, "array 'slot-m' of shard 0 is unknown"),
        ({"optimizer__slots__0__name": "../m"}, "a slot is named"),
        ({"shards__0__rows": 5}, "has .* rows, and its shard 5"),
        ({"shards__0__table_rows": 5}, "5"),
        ({"rows": 3, "shards__0__table_rows": 3}, "holds .* rows of 3"),
        ({"optimizer__history": {"first_step": 0}}, "lacks 'beta1'"),
        ({"shards__0__arrays__keys": ...}, "array|lacks"),
        ({"shards__0__arrays__keys__file": "../keys.npy"}, "is in the unexpected file '../keys.npy'"),
        ({"shards__0__arrays__keys__dtype": "<f8"}, "is <f8, not <i8"),
        ({"shards__0__arrays__keys__crc32": []}, "0 checksums"),
        ({"shards__0__arrays__keys__bytes": 8}, "checksums|bytes"),
        ({"shards__0__arrays__keys__shape": [-1]}, "shape"),
    ],
)
def test_invalid_manifests_are_refused(tmp_path, changes, message):
    made = history(tmp_path, shards=1)
    made.train()
    folder = made.save("model.ckpt-1").folder
    change_manifest(folder, **changes)
    with pytest.raises(CheckpointError, match=message) as error:
        Table.open(folder)
    assert str(folder / "manifest.json") in str(error.value)


@pytest.mark.parametrize("text", [b"", b"{}", b"[" * 100000, b'{"a": NaN,\n "crc32": 1\n}', b"\xff\xfe"])
def test_text_that_is_not_a_manifest_is_refused(tmp_path, text):
    made = history(tmp_path)
    folder = made.save("model.ckpt-1").folder
    (folder / "manifest.json").write_bytes(text)
    with pytest.raises(CheckpointError, match="manifest.json"):
        Table.open(folder)


def test_a_manifest_with_another_checksum_is_refused(tmp_path):
    made = history(tmp_path)
    saved = made.save("model.ckpt-1")
    change_manifest(saved.folder, uses=77)
    Table.open(saved.folder)
    with pytest.raises(CheckpointError, match="is not the one that was saved"):
        Table.open(saved.folder, saved.crc32)


def test_an_unfinished_folder_is_refused(tmp_path):
    saved = history(tmp_path).save("model.ckpt-1")
    unfinished = saved.folder.with_name(saved.folder.name + ".unfinished")
    saved.folder.rename(unfinished)
    with pytest.raises(CheckpointError, match="not complete"):
        Table.open(unfinished)


@pytest.mark.parametrize("how", ["missing", "other", "reordered", "name"])
def test_a_broken_chain_is_refused(tmp_path, how):
    made = history(tmp_path)
    for step in range(3):
        made.train()
        made.save(f"model.ckpt-{step}", delta=step > 0)
    first, middle, last = made.saved
    chain = json.loads((last.folder / "manifest.json").read_bytes())["chain"]
    if how == "missing":
        middle.folder.rename(tmp_path / "elsewhere")
    elif how == "other":
        change_manifest(first.folder, uses=99)
    elif how == "reordered":
        change_manifest(last.folder, chain=chain[::-1])
    else:
        crc = change_manifest(first.folder, table__name="others")
        change_manifest(last.folder, chain=[{**chain[0], "crc32": crc}, chain[1]])
    message = {
        "missing": "manifest.json: cannot be read: No such file",
        "other": "is not the one that was saved",
        "reordered": "is a delta checkpoint as part 0",
        "name": "has name 'items', but .* has 'others'",
    }
    with pytest.raises(CheckpointError, match=message[how]):
        Table.open(last.folder)


def test_a_chain_of_another_optimizer_or_number_of_shards_is_refused(tmp_path):
    for field, value in (("slots", (("m", 4),)), ("shards", 3)):
        made = history(tmp_path / field)
        made.train()
        made.save("model.ckpt-0")
        setattr(made, field, value)
        made.bloom = made.bloom + made.bloom[:1]
        made.train()
        made._forget_changes()
        folder = made.save("model.ckpt-1", delta=True).folder
        with pytest.raises(CheckpointError, match=f"has {field} .*of its chain has"):
            Table.open(folder)


def test_lagging_rows_are_refused(tmp_path):
    made = history(tmp_path)
    made.train()
    made.save("model.ckpt-0")
    made.train()
    table = Table.open(made.save("model.ckpt-1", delta=True, lagging=True).folder)
    with pytest.raises(CheckpointError, match="exact Adam.*full checkpoint"):
        table.require_current()


@pytest.mark.parametrize("shape", [(0,), (3, 5), (0, 7), (10**12,), (10**15, 2**28)])
@pytest.mark.parametrize("dtype", ["<i8", "<f4", "|u1"])
def test_headers_are_those_of_numpy(shape, dtype):
    ours = header(np.dtype(dtype), shape)
    assert len(ours) % 64 == 0
    stream = io.BytesIO(ours)
    assert np.lib.format.read_magic(stream) == (1, 0)
    assert np.lib.format.read_array_header_1_0(stream) == (shape, False, np.dtype(dtype))
    assert stream.tell() == len(ours)


def test_reading_needs_no_tensorflow(tmp_path):
    made = history(tmp_path)
    made.train()
    saved = made.save("model.ckpt-1")
    program = """
import importlib.util, sys, types
sys.modules["tensorflow"] = None
package = types.ModuleType("sparse_operation_kit")
package.__path__ = [sys.argv[1]]
sys.modules["sparse_operation_kit"] = package
from sparse_operation_kit import checkpoint
table = checkpoint.open_checkpoint(sys.argv[2]).tables[0].open()
print(sum(len(block.keys) for block in checkpoint.row_blocks(table)))
"""
    import sparse_operation_kit

    package = sparse_operation_kit.__path__[0]
    for path in (saved.folder, saved.folder.parent):
        command = [sys.executable, "-c", program, package, str(path)]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        assert result.returncode == 0, result.stderr
        assert int(result.stdout) == len(saved.rows)
