"""Reading, verifying and compacting checkpoints of tables that are not placed by key."""

import numpy as np
import pytest

from checkpoint_files import COUNTER, History, owner_of, table_description, write_table
from same_length import zip_equal
from sparse_operation_kit.checkpoint import find_row, open_checkpoint, problems, row_blocks
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
