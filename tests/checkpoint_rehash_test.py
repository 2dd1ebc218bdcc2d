"""Checkpoints of string columns from before their keys were DeepRec's: rehash."""

import numpy as np
import pytest
import tensorflow as tf

import harness
from checkpoint_files import BLOCKS, BLOOM, COUNTER, History, table_description
from sparse_operation_kit import feature_columns
from sparse_operation_kit.checkpoint import (
    CheckpointError,
    cli,
    open_checkpoint,
    problems,
    rehash,
    row_blocks,
    waiting_ids,
)
from sparse_operation_kit.checkpoint.rehashing import new_keys

fc = tf.compat.v1.feature_column
WORDS = ["", "a", "ann", "\x00", "ä" * 50, *(f"word {n}" for n in range(40))]


def old_keys_of(words):
    """The keys that string columns once had."""
    return tf.bitcast(tf.fingerprint(words, method="farmhash64"), tf.int64)


def test_new_keys_are_those_of_the_columns():
    with harness.graph_and_session() as session:
        old = session.run(old_keys_of(WORDS))
        new = session.run(feature_columns.categorical_column.hash_strings(tf.constant(WORDS)))
    assert (old < 0).any() and (new >= 0).all()
    assert np.array_equal(new_keys(old), new)
    assert new.tolist() == [int(key) % 2**64 % (2**63 - 1) for key in old]
    assert np.array_equal(new_keys(new), new)


def rows_of(table, columns):
    """Returns {key: {column: value}}; fails if a key occurs twice."""
    found = {}
    for block in row_blocks(table, columns):
        for n, key in enumerate(block.keys.tolist()):
            assert key not in found
            found[key] = {name: block.columns[name][n] for name in columns}
    return found


def merged(saved):
    """The rows and the waiting ids that a saved state should become: a simple reference."""
    rows, waiting = {}, {}
    for old in sorted(saved.rows, key=lambda key: (-saved.rows[key]["frequency"], key % 2**64)):
        new = old % 2**64 % (2**63 - 1)
        if new in rows:
            rows[new]["frequency"] += saved.rows[old]["frequency"]
        else:
            rows[new] = dict(saved.rows[old])
    for old, (count, step) in saved.waiting.items():
        new = old % 2**64 % (2**63 - 1)
        if new in rows:
            rows[new]["frequency"] += count
        else:
            before = waiting.get(new, (0, 0))
            waiting[new] = (before[0] + count, max(before[1], step))
    return rows, waiting


@pytest.mark.parametrize("admission", [None, COUNTER, BLOOM, BLOCKS])
@pytest.mark.parametrize("shards", [1, 3])
def test_random_tables_whose_keys_meet(tmp_path, admission, shards):
    """The keys of a History are hostile: 1, -1 and -2^63 all become 1, and 2^63 - 1 becomes 0."""
    met = 0
    for seed in range(4):
        folder = tmp_path / str(seed)
        made = History(
            folder, np.random.default_rng(seed), table=table_description(admission=admission), shards=shards
        )
        for step in range(3):
            made.train(120)
            saved = made.save(f"model.ckpt-{step}", delta=step > 0)
        (done,) = rehash(open_checkpoint(saved.folder), folder / "new", ["items"])
        (entry,) = open_checkpoint(folder / "new").tables
        table = entry.open()
        assert list(problems(open_checkpoint(folder / "new"))) == []
        rows, waiting = merged(saved)
        found = rows_of(table, ["values", "slot-m", "slot-v", "frequency"])
        assert found.keys() == rows.keys()
        for key, row in rows.items():
            for name, value in row.items():
                assert np.array_equal(found[key][name], value), (key, name)
        ids, counts, steps = (array.tolist() for array in waiting_ids(table))
        assert dict(zip(ids, zip(counts, steps))) == waiting
        assert table.manifest.steps == made.steps
        if admission in (BLOOM, BLOCKS):
            assert all(not shard.array("bloom_counters").any() for shard in table.last.shards)
        assert (done.rows, done.dropped) == (len(saved.rows), len(saved.rows) - len(rows))
        assert done.changed == sum(key % 2**64 >= 2**63 - 1 for key in saved.rows)
        met += done.dropped
    assert met > 0


@pytest.mark.parametrize("shards", [1, 3])
def test_counts_of_waiting_ids_that_meet_are_added_up(tmp_path, shards):
    made = History(
        tmp_path, np.random.default_rng(0), table=table_description(admission=COUNTER), shards=shards
    )
    made.steps = 7
    made.waiting = {1: (1, 3), -1: (2, 7), -(2**63): (1, 5), 2**63 - 1: (1, 2), 8: (1, 1)}
    rehash(open_checkpoint(made.save("model.ckpt-0").folder), tmp_path / "new", ["items"])
    (entry,) = open_checkpoint(tmp_path / "new").tables
    ids, counts, steps = (array.tolist() for array in waiting_ids(entry.open()))
    assert dict(zip(ids, zip(counts, steps))) == {1: (4, 7), 0: (1, 2), 8: (1, 1)}


def test_of_rows_that_meet_the_preferred_one_stays(tmp_path):
    columns = ("frequency", "last_step", "last_used")
    made = History(tmp_path, np.random.default_rng(0), columns=columns)
    made.steps = 9
    rows = {
        0: (2, 9, 9),
        -2: (3, 1, 1),  # occurred more often
        1: (2, 1, 9),
        -1: (2, 5, 1),  # was updated later
        2: (2, 5, 1),
        -(2**63) + 1: (2, 5, 4),  # was looked up later
        3: (2, 5, 4),  # has the smallest key
        -(2**63) + 2: (2, 5, 4),
    }
    for key, numbers in rows.items():
        made._set(key)
        made.rows[key].update(zip(columns, map(np.int64, numbers)))
    rehash(open_checkpoint(made.save("model.ckpt-0").folder), tmp_path / "new", ["items"])
    (entry,) = open_checkpoint(tmp_path / "new").tables
    found = rows_of(entry.open(), ["values", "frequency"])
    assert {key: row["frequency"] for key, row in found.items()} == {0: 5, 1: 4, 2: 4, 3: 4}
    for new, old in {0: -2, 1: -1, 2: -(2**63) + 1, 3: 3}.items():
        np.testing.assert_array_equal(found[new]["values"], made.rows[old]["values"])


def test_what_cannot_be_rehashed(tmp_path, capsys):
    made = History(tmp_path, np.random.default_rng(0), table=table_description(key_dtype="int32"))
    folder = made.save("model.ckpt-0").folder
    with pytest.raises(CheckpointError, match="int32 keys"):
        rehash(open_checkpoint(folder), tmp_path / "new", ["items"])
    with pytest.raises(CheckpointError, match="has no table 'none'"):
        rehash(open_checkpoint(folder), tmp_path / "new", ["none"])
    with pytest.raises(CheckpointError, match="name the tables"):
        rehash(open_checkpoint(folder), tmp_path / "new", [])
    assert cli.main(["rehash", str(folder), "--table", "items", "--to", str(tmp_path / "new")]) == 2
    assert "int32 keys" in capsys.readouterr().err
    assert not list(tmp_path.glob("new*"))


def column_model(column, feature):
    """A column's layer over `feature`, trained by Adagrad; the layer and the step."""
    layer = fc.input_layer({"word": feature}, [fc.embedding_column(column, 4, combiner="sum")])
    step = tf.compat.v1.train.get_or_create_global_step()
    train = tf.compat.v1.train.AdagradOptimizer(0.1).minimize(tf.reduce_sum(layer * layer), step)
    return layer, train


def test_a_model_goes_on_with_todays_keys(tmp_path, capsys):
    """The old model has the old keys as integers; the new one has the strings themselves."""
    with harness.graph_and_session() as session:
        words = tf.constant([[word] for word in WORDS[1:]])
        old = tf.reshape(old_keys_of(tf.reshape(words, [-1])), [-1, 1])
        column = feature_columns.categorical_column_with_embedding("word", tf.int64)
        layer, train = column_model(column, old)
        harness.initialize(session)
        for _ in range(3):
            session.run(train)
        tf.compat.v1.train.Saver().save(session, str(tmp_path / "old"))
        session.run(train)
        after = session.run(layer)
    table = "input_layer/word_embedding/embedding_weights"
    command = ["rehash", str(tmp_path / "old"), "--table", table, "--to", str(tmp_path / "new")]
    assert cli.main(command) == 0
    assert f"{table}: " in capsys.readouterr().out
    with harness.graph_and_session() as session:
        words = tf.constant([[word] for word in WORDS[1:]])
        layer, train = column_model(feature_columns.categorical_column_with_embedding("word"), words)
        harness.initialize(session)
        tf.compat.v1.train.Saver().restore(session, str(tmp_path / "new"))
        session.run(train)
        np.testing.assert_array_equal(session.run(layer), after)
        assert session.run(tf.compat.v1.train.get_global_step()) == 4
