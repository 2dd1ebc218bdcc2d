# Not on GPUs: files, which are the same: see gpu_checkpoints_test
"""Reading checkpoints: rows of full ones and chains, single and waiting ids, placement, exact Adam,
compaction, and entries and files that are refused."""

import numpy as np
import pytest

import checkpoint_files
import harness
from checkpoint_files import (
    BLOOM,
    COUNTER,
    KEYS,
    History,
    by_owner,
    owner_of,
    shard,
    table_description,
    write_table,
)
from same_length import zip_equal
from sparse_operation_kit.checkpoint import (
    CheckpointError,
    cli,
    compact,
    find_row,
    open_checkpoint,
    problems,
    row_blocks,
    rows,
    waiting_ids,
)
from sparse_operation_kit.checkpoint.cli import main
from sparse_operation_kit.checkpoint.rows import count_rows


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
        harness.assert_equal_dicts(found[key], row)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("admission", [None, COUNTER, BLOOM])
def test_every_checkpoint_of_a_chain_reads_as_its_state(tmp_path, seed, admission):
    description = table_description(admission=admission)
    made = history(tmp_path, seed, table=description, shards=1 + seed % 3)
    made.save_steps(6, fulls=(0, 4))
    for saved in made.saved:
        table = table_of(saved.prefix)
        assert_rows(contents(table), saved.rows)
        assert rows.count_rows(table) == len(saved.rows)
        if admission == COUNTER:
            ids, counts, steps = waiting_ids(table)
            pairs = zip_equal(counts.tolist(), steps.tolist())
            assert dict(zip_equal(ids.tolist(), pairs)) == saved.waiting


def test_single_ids(tmp_path):
    made = history(tmp_path, table=table_description(admission=COUNTER))
    saved = made.save_steps(6, 60)
    table = table_of(saved.prefix)
    for key in made._random_keys(300):
        found = find_row(table, key)
        assert (found is not None) == (key in saved.rows)
        if found is not None:
            assert_rows({key: found}, {key: saved.rows[key]})
        assert rows.find_waiting(table, key) == saved.waiting.get(key)


def test_many_blocks_and_rows_that_straddle_them(tmp_path):
    description = table_description(dim=3001)
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
    saved = made.save_steps(3, 200)
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
    saved = history(tmp_path, shards=1).save_steps(1)
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
        made.save_steps(1)
        setattr(made, field, value)
        made.bloom = made.bloom + made.bloom[:1]
        made.train()
        made._forget_changes()
        prefix = made.save("model.ckpt-1", delta=True).prefix
        what = "another optimizer" if field == "slots" else "another table"
        with pytest.raises(CheckpointError, match=f"model.ckpt-1.index:items' .*{what}"):
            table_of(prefix)


def test_names_of_tables_that_look_like_entries(tmp_path):
    names = ["items", "items#x", "a#0", "größe", "#sok/x"]
    made = [
        history(tmp_path, number, table=table_description(name=name)) for number, name in enumerate(names)
    ]
    saved = checkpoint_files.save_steps(made, 1)
    checkpoint = open_checkpoint(tmp_path / "model.ckpt-0")
    assert [entry.name for entry in checkpoint.tables] == sorted(names)
    for name, one in zip_equal(names, saved):
        (entry,) = checkpoint.select([name])
        assert_rows(contents(entry.open()), one.rows)


SHARDS = 3
PLACEMENTS = ["by_key", "one_rank:0", "one_rank:2", "all_ranks", "ranges:0,110,110,140", "ranges:0,0,120,130"]


def described(text, **more):
    """A table's description; that of a table placed by key does not name its placement."""
    return table_description(**more, **({} if text == "by_key" else {"placement": text}))


def values_of(table, number=None):
    found = {}
    for block in row_blocks(table, ("values",), number):
        found.update(zip_equal(block.keys.tolist(), block.columns["values"].tolist()))
    return found


@pytest.mark.parametrize("text", PLACEMENTS)
def test_owners_are_those_of_the_definition(tmp_path, text):
    keys = [0, 1, 109, 110, 111, 139, 140, 2**62, 2**63 - 1, -1, -(2**63)]
    write_table(tmp_path / "a", [shard([])] * SHARDS, table=described(text))
    owners = table_of(tmp_path / "a").last.owner(np.array(keys, np.int64))
    assert owners.tolist() == [owner_of(key, SHARDS, text) for key in keys]


@pytest.mark.parametrize("text", PLACEMENTS)
@pytest.mark.parametrize("admission", [None, COUNTER])
def test_chains(tmp_path, text, admission):
    description = described(text, admission=admission)
    made = History(tmp_path, np.random.default_rng(3), table=description, shards=SHARDS)
    saved = made.save_steps(4)
    table = table_of(saved.prefix)
    wanted = {key: row["values"].tolist() for key, row in saved.rows.items()}
    assert values_of(table) == wanted
    for number in range(SHARDS):
        of_shard = values_of(table, number)
        assert of_shard.keys() == {key for key in wanted if owner_of(key, SHARDS, text) == number}
        assert count_rows(table, number) == len(of_shard)
    for key in wanted:
        assert find_row(table, key)["values"].tolist() == wanted[key]
    assert list(problems(open_checkpoint(saved.prefix))) == []
    assert main(["compact", str(saved.prefix), "--to", str(tmp_path / "full")]) == 0
    full = table_of(tmp_path / "full")
    assert values_of(full) == wanted
    assert full.last.table.get("placement", "by_key") == text
    assert list(problems(open_checkpoint(tmp_path / "full"))) == []


@pytest.mark.parametrize(
    ("text", "rows"), [("one_rank:1", [0, 5]), ("all_ranks", [5, 0]), ("ranges:0,2,7", [2, 5])]
)
def test_tables_without_hashing(tmp_path, text, rows):
    description = table_description(placement=text, hashed=False, capacity=5)
    keys = np.split(np.arange(sum(rows)), np.cumsum(rows)[:-1])
    write_table(tmp_path / "a", [shard(one) for one in keys], table=description)
    assert list(problems(open_checkpoint(tmp_path / "a"))) == []
    keys[int(np.argmax(rows))][-1] += 100
    write_table(tmp_path / "b", [shard(one) for one in keys], table=description)
    (problem,) = problems(open_checkpoint(tmp_path / "b"))
    assert f"is not in [0, {sum(rows) - 1}]" in problem


def test_a_key_in_another_shard_than_its_own(tmp_path, capsys):
    description = table_description(placement="one_rank:1")
    write_table(tmp_path / "a", [shard([7]), shard([1, 2])], table=description)
    assert main(["verify", str(tmp_path / "a")]) == 1
    assert "key 7 belongs to shard 1 of 2" in capsys.readouterr().out


def test_a_chain_has_one_placement(tmp_path):
    made = history(tmp_path, 3, table=table_description(placement="one_rank:1"))
    made.save_steps(1)
    made.table = table_description(placement="one_rank:0")
    made.train()
    saved = made.save("model.ckpt-1", delta=True)
    (problem,) = problems(open_checkpoint(saved.prefix))
    assert "is of another table than" in problem


def test_inspect_names_the_placement(tmp_path, capsys):
    saved = history(tmp_path, 3, table=table_description(placement="all_ranks")).save_steps(1)
    assert main(["inspect", str(saved.prefix)]) == 0
    assert "placement   all_ranks" in capsys.readouterr().out


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
    made = history(tmp_path, 2)
    saved = made.save_steps(2, 10)
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
