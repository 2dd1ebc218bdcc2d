# Tags: versions
"""Statistics of tables, as tensors and as summaries."""

import numpy as np
import pytest
import tensorflow as tf

import harness
import sparse_operation_kit as sok
from row_policy_model import StatisticsReference
from same_length import zip_equal
from sparse_operation_kit.lookup import group
from sparse_operation_kit.tables.storage_option import CacheStrategy, StorageOption, StorageType

session = harness.session

v1 = tf.compat.v1


def test_they_count_by_the_definition(session):
    rng = np.random.default_rng(0)
    tables = [
        sok.EmbeddingVariable("zeta", 2),
        sok.EmbeddingVariable("alpha", 3, admission=sok.CounterFilter(4), key_dtype=tf.int32),
    ]
    keys = [v1.placeholder(tf.int64, [None]), v1.placeholder(tf.int32, [None])]
    # Two lookups per table, in one group.
    halves = [tf.split(key, [tf.size(key) // 2, -1]) for key in keys]
    rows = group.lookup_group(
        [group.DenseLookup(table, half) for table, pair in zip_equal(tables, halves) for half in pair]
    )
    reads = group.lookup_group(
        [group.DenseLookup(table, key) for table, key in zip_equal(tables, keys)], training=False
    )
    statistics = sok.table_statistics()
    assert list(statistics) == ["alpha", "zeta"]
    harness.initialize(session)
    references = {"zeta": StatisticsReference(), "alpha": StatisticsReference(filter_freq=4)}
    for step in range(8):
        got = session.run(statistics)
        for name, reference in references.items():
            assert got[name]._asdict() == reference.statistics()
        if step == 4:
            fed = [np.zeros(0, np.int64), np.zeros(0, np.int32)]
        else:
            fed = [np.concatenate([harness.HOSTILE_KEYS, harness.zipf_keys(rng, 50)])]
            fed.append(rng.zipf(1.3, 40).clip(max=2**31 - 1).astype(np.int32))
        feed = dict(zip_equal(keys, fed))
        session.run(rows, feed)
        session.run(reads, feed)
        for table, values in zip_equal(tables, fed):
            references[table.m_var_name].look_up(values)
    assert session.run(statistics["alpha"].filtered_ids) > 0


def test_a_failed_lookup_counts_nothing(session):
    table = sok.EmbeddingVariable("table", 2, capacity=2)
    rows = tf.nn.embedding_lookup(table, tf.constant([1, 2, 3], tf.int64))
    statistics = sok.table_statistics([table, table])
    harness.initialize(session)
    with pytest.raises(tf.errors.ResourceExhaustedError):
        session.run(rows)
    assert set(session.run(statistics)["table"]) == {0}


def test_a_new_table_counts_from_zero(session):
    table = sok.EmbeddingVariable("table", 2, capacity=4, use_hashtable=False)
    rows = tf.nn.embedding_lookup(table, tf.constant([1, 2, 2], tf.int64))
    statistics = sok.table_statistics()["table"]
    harness.initialize(session)
    session.run(rows)
    of_a_disk = (0,) * 7
    assert session.run(statistics) == (4, 3, 2, 0, 0, 0, *of_a_disk, 2 / 3)
    harness.initialize(session)
    assert session.run(statistics) == (4, 0, 0, 0, 0, 0, *of_a_disk, 0)


def test_wrong_variables_are_refused():
    with tf.Graph().as_default():
        with pytest.raises(ValueError, match="no embedding variables"):
            sok.table_statistics()
        plain = v1.get_variable("plain", [2])
        with pytest.raises(TypeError, match="plain"):
            sok.table_statistics([plain])


def test_before_its_initializer_a_table_is_an_error(session):
    sok.EmbeddingVariable("table", 2)
    statistics = sok.table_statistics()
    with pytest.raises(tf.errors.FailedPreconditionError, match="'table'"):
        session.run(statistics)


class Model:
    """Step s, from 0, looks up s + 4 distinct keys: s + 3 that are new, and key 7, which is new in step 0."""

    def __init__(self):
        sok.Init(global_batch_size=harness.GLOBAL_BATCH_SIZE, seed=harness.SEED)
        self.global_step = v1.train.get_or_create_global_step()
        table = sok.EmbeddingVariable("all", 2, initializer=1.0)
        rare = sok.EmbeddingVariable("rare", 2, initializer=1.0, admission=sok.CounterFilter(3))
        keys = tf.concat([self.global_step * 100 + tf.range(self.global_step + 3, dtype=tf.int64), [7]], 0)
        loss = tf.add_n([tf.reduce_sum(tf.nn.embedding_lookup(variable, keys)) for variable in (table, rare)])
        self.step = v1.train.GradientDescentOptimizer(0.1).minimize(loss, self.global_step)


def train(steps, hook, **arguments):
    """Trains a model, and reads its global step between steps."""
    with tf.Graph().as_default():
        model = Model()
        with v1.train.MonitoredTrainingSession(hooks=[hook], **arguments) as session:
            for _ in range(steps):
                session.run(model.step)
                session.run(model.global_step)  # not a step


def summaries(folder):
    """{(tag, step): value} of all events in a folder."""
    found = {}
    for path in sorted(folder.glob("events*")):
        for event in v1.train.summary_iterator(str(path)):
            for value in event.summary.value:
                if value.tag.startswith("embedding/"):
                    assert (value.tag, event.step) not in found
                    found[value.tag, event.step] = value.simple_value
    return found


def test_the_hook_writes_what_a_disk_does(tmp_path):
    """Three steps look up 4, 4 and the first 4 keys again, of which memory holds 4 rows of 16 bytes."""
    below = StorageOption(StorageType.DRAM_SSDHASH, str(tmp_path / "rows"), [64], CacheStrategy.LRU)
    with tf.Graph().as_default(), tf.device("/CPU:0"):
        sok.Init(global_batch_size=harness.GLOBAL_BATCH_SIZE, seed=harness.SEED)
        step = v1.train.get_or_create_global_step()
        table = sok.EmbeddingVariable("table", 4, memory=below)
        rows = tf.nn.embedding_lookup(table, 4 * (step % 2) + tf.range(4, dtype=tf.int64))
        with tf.control_dependencies([rows]):
            train = v1.assign_add(step, 1)
        hook = sok.TableSummaryHook(str(tmp_path), save_steps=1)
        with v1.train.MonitoredTrainingSession(hooks=[hook]) as session:
            for _ in range(3):
                session.run(train)
    got = summaries(tmp_path)
    names = ("bytes_down_per_step", "bytes_up_per_step")
    found = [[got[f"embedding/table/{name}", number] for name in names] for number in (1, 2, 3)]
    assert found == [[0, 0], [64, 0], [64, 64]]
    # No step finds its rows in memory.
    assert [got["embedding/table/memory_hit_ratio", number] for number in (1, 2, 3)] == [0, 0, 0]


def test_the_hook_writes_averages_of_steps(tmp_path):
    train(10, sok.TableSummaryHook(str(tmp_path), save_steps=4))
    got = summaries(tmp_path)
    assert {step for _, step in got} == {4, 8}
    expected = {
        ("rows", 4): 3 + 4 + 5 + 6 + 1,
        ("admitted_ids_per_step", 4): (3 + 4 + 5 + 6 + 1) / 4,
        ("filtered_ids_per_step", 4): 0,
        ("exchange_bytes_per_step", 4): 0,
        ("unique_ratio", 4): 1,
        ("rows", 8): 3 + 4 + 5 + 6 + 7 + 8 + 9 + 10 + 1,
        ("admitted_ids_per_step", 8): (7 + 8 + 9 + 10) / 4,
        ("filtered_ids_per_step", 8): 0,
        ("exchange_bytes_per_step", 8): 0,
        ("unique_ratio", 8): 1,
    }
    assert {key: value for key, value in got.items() if key[0].startswith("embedding/all/")} == pytest.approx(
        {(f"embedding/all/{what}", step): value for (what, step), value in expected.items()}
    )
    # Only key 7 occurs often enough.
    assert got["embedding/rare/rows", 4] == got["embedding/rare/rows", 8] == 1
    assert got["embedding/rare/filtered_ids_per_step", 4] == (3 + 4 + 5 + 6 + 2) / 4
    assert got["embedding/rare/filtered_ids_per_step", 8] == (7 + 8 + 9 + 10) / 4


def test_a_restored_session_goes_on(tmp_path):
    for _ in range(2):
        hook = sok.TableSummaryHook(str(tmp_path), save_steps=4, variables=None)
        train(6, hook, checkpoint_dir=str(tmp_path), save_checkpoint_steps=3)
    got = summaries(tmp_path)
    assert {step for _, step in got} == {4, 8, 12}
    # The average of steps 6 and 7, since the session began.
    assert got["embedding/all/admitted_ids_per_step", 8] == (9 + 10) / 2
    assert got["embedding/all/rows", 8] == sum(range(3, 11)) + 1


def test_a_writer_can_be_given(tmp_path):
    with tf.Graph().as_default():
        writer = v1.summary.FileWriter(str(tmp_path))
    train(3, sok.TableSummaryHook(summary_writer=writer, save_steps=1))
    assert {step for _, step in summaries(tmp_path)} == {1, 2, 3}


def test_the_hook_refuses_bad_arguments(tmp_path):
    writer = object()
    for arguments in ({}, {"output_dir": str(tmp_path), "summary_writer": writer}):
        with pytest.raises(ValueError, match="output_dir or summary_writer"):
            sok.TableSummaryHook(**arguments)
    with pytest.raises(ValueError, match="save_steps must be at least 1, not 0"):
        sok.TableSummaryHook(str(tmp_path), save_steps=0)
    with pytest.raises(TypeError, match="save_steps must be an int"):
        sok.TableSummaryHook(str(tmp_path), save_steps=2.5)
    with tf.Graph().as_default():
        with pytest.raises(ValueError, match="no embedding variables"):
            sok.TableSummaryHook(str(tmp_path)).begin()
        sok.EmbeddingVariable("table", 2)
        with pytest.raises(RuntimeError, match="global step"):
            sok.TableSummaryHook(str(tmp_path)).begin()
