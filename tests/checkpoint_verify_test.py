# Not on GPUs: files, which are the same: see gpu_checkpoints_test
"""Verifying checkpoints: what is missing, wrong or damaged is found, and any damage in random places.

SOK_TEST_CORRUPTIONS sets the number of these places.
"""

import os
import shutil

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import checkpoint_files
from checkpoint_files import BLOCKS, BLOOM, COUNTER, History, shard, table_description, write_table
from sparse_operation_kit.checkpoint import (
    CheckpointError,
    find_row,
    open_checkpoint,
    problems,
    row_blocks,
    rows,
    verify,
)
from sparse_operation_kit.checkpoint.cli import main

CORRUPTIONS = int(os.environ.get("SOK_TEST_CORRUPTIONS", "250"))


def found(prefix):
    return list(problems(open_checkpoint(prefix)))


@pytest.mark.parametrize("admission", [None, COUNTER, BLOOM, BLOCKS])
def test_good_checkpoints(tmp_path, capsys, admission):
    made = History(tmp_path, np.random.default_rng(1), table=table_description(admission=admission))
    made.save_steps(3)
    for saved in made.saved:
        assert main(["verify", str(saved.prefix)]) == 0
        assert capsys.readouterr().out.startswith("1 table, ")


def test_a_problem_is_a_line_and_a_status(tmp_path, capsys):
    write_table(tmp_path / "model", [shard([0]), shard([2])])
    assert main(["verify", str(tmp_path / "model")]) == 1
    lines = capsys.readouterr().out.splitlines()
    file = tmp_path / "model.data-00001-of-00002"
    assert lines == [f"{file}:items#1/keys: key 2 belongs to shard 0 of 2, not to this one"]


@pytest.mark.parametrize("limit", [1, 50, 1000])
def test_duplicate_keys_among_many(tmp_path, monkeypatch, limit):
    monkeypatch.setattr(verify, "_SORTED_KEYS", limit)
    monkeypatch.setattr(verify, "_BLOCK_ROWS", 7)
    keys = np.random.default_rng(0).permutation(300).astype(np.int64) * 2 - 300
    write_table(tmp_path / "good", [shard(keys)])
    assert found(tmp_path / "good") == []
    keys[17] = keys[250]
    write_table(tmp_path / "bad", [shard(keys)])
    assert f"key {keys[17]} occurs twice" in found(tmp_path / "bad")[0]


@pytest.mark.parametrize(
    ("key_dtype", "good", "bad"),
    [("int32", -(2**31), 2**31), ("uint32", 2**32 - 1, -1), ("int64", -(2**63), None)],
)
def test_keys_outside_of_their_dtype(tmp_path, key_dtype, good, bad):
    write_table(tmp_path / "good", [shard([good])], table=table_description(key_dtype=key_dtype))
    assert found(tmp_path / "good") == []
    if bad is not None:
        write_table(tmp_path / "bad", [shard([bad])], table=table_description(key_dtype=key_dtype))
        assert f"key {bad} is not in" in found(tmp_path / "bad")[0]


def test_keys_outside_of_a_table_without_hashing(tmp_path):
    table = table_description(hashed=False, capacity=2)
    write_table(tmp_path / "good", [shard([0, 2]), shard([1, 3])], table=table)
    assert found(tmp_path / "good") == []
    write_table(tmp_path / "bad", [shard([0, 4]), shard([1, 3])], table=table)
    assert "key 4 is not in [0, 3]" in found(tmp_path / "bad")[0]


def test_more_rows_than_the_capacity(tmp_path):
    write_table(tmp_path / "a", [shard([0, 1, 2])], table=table_description(capacity=2))
    assert "3 rows, above the capacity of 2" in found(tmp_path / "a")[0]


@pytest.mark.parametrize(
    ("name", "value"), [("frequency", -1), ("last_step", 13), ("last_used", 15), ("last_step", -1)]
)
def test_counts_out_of_range(tmp_path, name, value):
    write_table(tmp_path / "a", [shard([0, 1], **{name: np.array([3, value], "<i8")})], steps=12, uses=14)
    assert f"/{name}: has {value}" in found(tmp_path / "a")[0]


def waiting(keys, counts, steps):
    arrays = {"waiting_keys": keys, "waiting_counts": counts, "waiting_last_step": steps}
    return {name: np.array(array, "<i8") for name, array in arrays.items()}


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        (waiting([1], [2], [0]), None),
        (waiting([1], [5], [0]), "waiting_counts: has 5"),
        (waiting([1], [1], [1]), "waiting_last_step: has 1"),
        (waiting([0], [1], [0]), "key 0 waits for admission, but has a row"),
        (waiting([1, 1], [1, 1], [0, 0]), "key 1 occurs twice"),
    ],
)
def test_waiting_ids(tmp_path, arrays, message):
    write_table(tmp_path / "a", [shard([0], **arrays)], table=table_description(admission=COUNTER))
    lines = found(tmp_path / "a")
    assert (lines == []) if message is None else (len(lines) == 1 and message in lines[0])


@pytest.mark.parametrize("counters", [np.zeros([57], "<u2"), np.zeros([58], "<u4")])
def test_another_bloom_filter(tmp_path, counters):
    table = table_description(admission=BLOOM)
    write_table(tmp_path / "a", [shard([0], bloom_counters=counters)], table=table)
    assert 'in the array "bloom_counters", not uint16 [58]' in found(tmp_path / "a")[0]


@pytest.mark.parametrize(
    ("blocks", "message"),
    [
        ([0, 1], None),
        ([], None),
        ([1, 2], "has the block 2 of a filter of 2 blocks"),
        ([-1, 0], "has the block -1 of"),
        ([0, 2**63 - 1], f"has the block {2**63 - 1} of"),
        ([1, 0], "has the block 0 after the block 1"),
        ([1, 1], "has the block 1 after the block 1"),
    ],
)
def test_blocks_of_a_bloom_filter(tmp_path, monkeypatch, blocks, message):
    """Also where a problem is between two pieces that are read one after the other."""
    numbers, counters = np.array(blocks, "<i8"), np.ones([len(blocks), 32], "<u2")
    arrays = {"bloom_blocks": numbers, "bloom_counters": counters}
    write_table(tmp_path / "a", [shard([0], **arrays)], table=table_description(admission=BLOCKS))
    for block in (1, 1 << 17):
        monkeypatch.setattr(verify, "_BLOCK_ROWS", block)
        lines = found(tmp_path / "a")
        assert (lines == []) if message is None else (len(lines) == 1 and message in lines[0])


@pytest.mark.parametrize("shape", [[3, 32], [2, 31], [64]])
def test_blocks_of_other_sizes(tmp_path, shape):
    arrays = {"bloom_blocks": np.array([0, 1], "<i8"), "bloom_counters": np.zeros(shape, "<u2")}
    write_table(tmp_path / "a", [shard([0], **arrays)], table=table_description(admission=BLOCKS))
    (line,) = found(tmp_path / "a")
    assert 'in the array "bloom_counters", not uint16 [2, 32]' in line


def test_a_link_that_builds_on_something_else(tmp_path):
    made = History(tmp_path, np.random.default_rng(1))
    made.save_steps(3)
    first, middle, last = made.saved
    chain = [{"prefix": first.prefix.name, "id": "f" * 16}]
    checkpoint_files.write(middle.prefix, checkpoint_files.changed(middle.tensors, "items", chain=chain))
    (problem,) = found(last.prefix)
    assert "is not number 2 of the chain of" in problem


def test_the_search_goes_on_after_a_damaged_table(tmp_path, capsys):
    made = [
        History(tmp_path, np.random.default_rng(seed), table=table_description(name=name), shards=1)
        for seed, name in enumerate("abc")
    ]
    for one in made:
        one._set(7)
    checkpoint_files.save_all(made, "m")
    data = tmp_path / "m.data-00000-of-00001"
    content = data.read_bytes()
    # The first shard's entry, and the last table's values.
    for piece in (b'"table_rows":1', made[2].rows[7]["values"].tobytes()):
        content = content.replace(piece, bytes(len(piece)), 1)
    data.write_bytes(content)
    assert main(["verify", str(tmp_path / "m")]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2, lines
    assert "its tensor 'a#0' does not match" in lines[0]
    assert f"{data}:c#0/values" in lines[1] and "is damaged" in lines[1]
    assert main(["verify", str(tmp_path / "m"), "--table", "b"]) == 0


def test_a_chain_with_a_wrong_number_of_rows(tmp_path):
    made = History(tmp_path, np.random.default_rng(1))
    made.save_steps(1)
    made._set(987654)
    made.deleted.add(next(key for key in made.rows if key not in made.changed))
    saved = made.save("model.ckpt-1", delta=True)
    assert len(found(saved.prefix)) == 1 and "with its chain applied" in found(saved.prefix)[0]


@pytest.fixture(scope="module")
def chain(tmp_path_factory):
    """A table's chain of three checkpoints, and another table's chain with the same file names and sizes."""
    directory = tmp_path_factory.mktemp("chain")
    description = checkpoint_files.table_description(admission=COUNTER)
    histories = [
        History(directory / name, np.random.default_rng(5), table=description) for name in ("ours", "theirs")
    ]
    for step in range(3):
        for made in histories:
            made.train(60)
            # Every byte of the files matters: nothing is between arrays.
            made.save(f"model.ckpt-{step}", delta=step > 0, alignment=1)
        for row in histories[1].rows.values():
            row["values"] += np.float32(1)
    return histories


def files(directory):
    return sorted(path for path in directory.rglob("*") if path.is_file())


def damage(draw, target, theirs):
    """Damages the files below `target` in a random way; returns whether anything changed."""
    path = draw(st.sampled_from(files(target)))
    data = path.read_bytes()
    how = draw(st.sampled_from(["flip", "set", "zero", "cut", "grow", "remove", "swap", "foreign"]))
    if how == "flip":
        position = draw(st.integers(0, len(data) * 8 - 1))
        changed = bytearray(data)
        changed[position // 8] ^= 1 << position % 8
    elif how in ("set", "zero"):
        begin = draw(st.integers(0, len(data) - 1))
        length = draw(st.integers(1, 600))
        piece = bytes(length) if how == "zero" else draw(st.binary(min_size=length, max_size=length))
        changed = data[:begin] + piece[: len(data) - begin] + data[begin + length :]
    elif how == "cut":
        changed = data[: draw(st.integers(0, len(data) - 1))]
    elif how == "grow":
        changed = data + draw(st.binary(min_size=1, max_size=10))
    elif how == "swap":
        other = draw(st.sampled_from(files(target)))
        changed = other.read_bytes()
        other.write_bytes(data)
    elif how == "foreign":
        changed = (theirs / path.relative_to(target)).read_bytes()
    else:
        path.unlink()
        return True
    path.write_bytes(changed)
    # What a data file has after its last tensor has no meaning.
    return bytes(changed) != data and not (how == "grow" and ".data-" in path.name)


@settings(max_examples=CORRUPTIONS, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_random_corruptions(chain, tmp_path_factory, data):
    ours, theirs = chain
    target = tmp_path_factory.mktemp("damaged") / "copy"
    try:
        shutil.copytree(ours.directory, target)
        assume(damage(data.draw, target, theirs.directory))
        saved = ours.saved[-1]
        last = target / saved.prefix.name
        assert _found(last), "verify found nothing"
        _read_or_refuse(last, saved.rows)
        _find_or_refuse(last, list(saved.rows)[:8], saved.rows)
    finally:
        shutil.rmtree(target.parent)


def _found(prefix):
    try:
        return list(problems(open_checkpoint(prefix)))
    except CheckpointError as error:
        return [str(error)]


def _read_or_refuse(prefix, wanted):
    """Checks that all blocks before an error are correct, and that without an error none is missing."""
    found = set()
    try:
        table = open_checkpoint(prefix).tables[0].open()
        for block in row_blocks(table, rows.columns_of(table)):
            for index, key in enumerate(block.keys.tolist()):
                found.add(key)
                for name, array in block.columns.items():
                    np.testing.assert_array_equal(array[index], wanted[key][name])
    except CheckpointError:
        return
    assert found == wanted.keys()


def _find_or_refuse(prefix, keys, wanted):
    """Checks that each key has its row or is refused. Opens the table once, which parses its entries."""
    try:
        table = open_checkpoint(prefix).tables[0].open()
    except CheckpointError:
        return
    for key in keys:
        try:
            found = find_row(table, key)
        except CheckpointError:
            continue
        for name, value in wanted[key].items():
            np.testing.assert_array_equal(found[name], value)
