"""Reading, verifying and compacting checkpoints: placement, rows of exact Adam, and errors of the engine."""

import numpy as np
import pytest

import checkpoint_files
import harness  # noqa: F401 - quiets TensorFlow
from checkpoint_files import COUNTER, KEYS, History, by_owner, owner_of, table_description, write_table
from same_length import zip_equal
from sparse_operation_kit.checkpoint import (
    CheckpointError,
    cli,
    compact,
    find_row,
    open_checkpoint,
    problems,
    row_blocks,
)
from sparse_operation_kit.checkpoint.cli import main
from sparse_operation_kit.checkpoint.rows import count_rows

SHARDS = 3
PLACEMENTS = ["by_key", "one_rank:0", "one_rank:2", "all_ranks", "ranges:0,110,110,140", "ranges:0,0,120,130"]


def described(text, **more):
    """A table's description; that of a table placed by key does not name its placement."""
    return table_description(**more, **({} if text == "by_key" else {"placement": text}))


def shard(keys):
    keys = np.array(keys, "<i8")
    return {"keys": keys, "values": np.zeros([len(keys), 4], "<f4")}


def table_of(prefix):
    (entry,) = open_checkpoint(prefix).tables
    return entry.open()


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
    for step in range(4):
        made.train()
        saved = made.save(f"model.ckpt-{step}", delta=step > 0)
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
    made = History(tmp_path, np.random.default_rng(3), table=table_description(placement="one_rank:1"))
    made.train()
    made.save("model.ckpt-0")
    made.table = table_description(placement="one_rank:0")
    made.train()
    saved = made.save("model.ckpt-1", delta=True)
    (problem,) = problems(open_checkpoint(saved.prefix))
    assert "is of another table than" in problem


def test_inspect_names_the_placement(tmp_path, capsys):
    made = History(tmp_path, np.random.default_rng(3), table=table_description(placement="all_ranks"))
    made.train()
    saved = made.save("model.ckpt-0")
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
