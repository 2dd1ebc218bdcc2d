"""Several threads use a session's tables at the same time, as input pipelines and asynchronous steps do."""

import threading

import numpy as np
import pytest
import tensorflow as tf

import harness
import sparse_operation_kit as sok
from device_of_tests import sized
from sparse_operation_kit.lookup import group

SGD = tf.compat.v1.train.GradientDescentOptimizer
TIMEOUT = 120
# The steps of a thread, the keys of a step and the number of different keys.
STEPS, KEYS, VOCABULARY = sized((30, 2000, 3000), (5, 40, 60))


def run_in_threads(*works):
    """Runs each function in a thread; raises an exception that one of them raised."""
    errors = []

    def guarded(work):
        try:
            work()
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(work,), daemon=True) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(TIMEOUT)
    assert not any(thread.is_alive() for thread in threads), "deadlock"
    if errors:
        raise errors[0]


@pytest.mark.parametrize("intra_op_threads", sized([1, 4], [4]))
def test_no_update_of_concurrent_steps_is_lost(intra_op_threads):
    """Each step adds one per occurrence: whole numbers, whose sum is exact in any order."""
    with harness.graph_and_session(intra_op_threads) as session:
        table = sok.EmbeddingVariable(name="table", dim=3, initializer=0.0)
        keys = tf.compat.v1.placeholder(tf.int64, [None])
        step = SGD(1.0).minimize(-tf.reduce_sum(tf.nn.embedding_lookup(table, keys)))
        harness.initialize(session)

        def work(seed):
            rng = np.random.default_rng(seed)
            for _ in range(STEPS):
                session.run(step, {keys: rng.integers(0, VOCABULARY, KEYS)})

        run_in_threads(*(lambda seed=seed: work(seed) for seed in range(4)))
        drawn = [np.random.default_rng(seed) for seed in range(4)]
        counts = np.bincount(
            np.concatenate([rng.integers(0, VOCABULARY, KEYS) for rng in drawn for _ in range(STEPS)])
        )
        found, rows = harness.table_contents(session, table)
        np.testing.assert_array_equal(rows, np.repeat(counts[found][:, None], 3, axis=1))
        assert len(found) == np.count_nonzero(counts)


def test_a_table_made_by_several_ops_at_once_is_one_table():
    """Each makes the table if it is missing, then inserts keys: none is lost to an op that makes it later."""
    makers, keys = 8, sized(100, 10)
    with harness.graph_and_session() as session:
        # To copy the given rows takes time, so that several ops find no table before one has made it.
        rows = np.zeros([sized(20000, 100), 8], np.float32)
        tables = [
            sok.EmbeddingVariable(name=f"table_{i}", dim=8, initializer=rows) for i in range(sized(16, 4))
        ]
        inserts = []
        for maker in range(makers):
            for table in tables:
                with tf.control_dependencies([table.make_if_missing()]):
                    ids = tf.range(keys * maker, keys * (maker + 1), dtype=tf.int64)
                    inserts.append(tf.nn.embedding_lookup(table, ids).op)
        session.run(inserts)
        assert session.run([table.size() for table in tables]) == [makers * keys] * len(tables)


def test_groups_that_share_tables_in_any_order_do_not_deadlock():
    with harness.graph_and_session(4) as session:
        tables = [sok.EmbeddingVariable(name=f"table_{i}", dim=2, initializer=0.0) for i in range(4)]
        ids = tf.range(sized(200, 10), dtype=tf.int64)
        repeats = sized(40, 4)
        orders = [[0, 1, 2, 3], [3, 2, 1, 0], [2, 0, 3, 1], [1, 3, 0, 2]]
        steps = []
        for order in orders:
            outputs = group.lookup_group([group.DenseLookup(tables[i], ids) for i in order])
            steps.append(SGD(1.0).minimize(-tf.add_n([tf.reduce_sum(output) for output in outputs])))
        harness.initialize(session)
        run_in_threads(*(lambda step=step: [session.run(step) for _ in range(repeats)] for step in steps))
        for table in tables:
            rows = harness.table_contents(session, table)[1]
            np.testing.assert_array_equal(rows, np.full([ids.shape[0], 2], 4.0 * repeats))


def test_readers_beside_a_trainer_see_whole_rows(tmp_path):
    """A step moves all floats of a row equally, so a row with different floats was read during an update."""
    with harness.graph_and_session(4) as session:
        table = sok.EmbeddingVariable(name="table", dim=64, initializer=0.0)
        keys = tf.compat.v1.placeholder(tf.int64, [None])
        rows = tf.nn.embedding_lookup(table, keys)
        step = SGD(1.0).minimize(-tf.reduce_sum(rows))
        dump = sok.Saver().dump_to_file(table, str(tmp_path))
        harness.initialize(session)
        done = threading.Event()
        steps = sized(60, 6)

        def train():
            for size in range(steps):
                session.run(step, {keys: np.arange(10 * (size + 1))})
            done.set()

        def read():
            while not done.is_set():
                found = session.run(rows, {keys: np.arange(50)})
                assert np.all(found == found[:, :1])

        def write():
            while not done.is_set():
                session.run(dump)
                found = np.fromfile(tmp_path / "table_values.file", np.float32).reshape(-1, 64)
                assert np.all(found == found[:, :1])

        run_in_threads(train, read, write)
        assert session.run(table.size()) == 10 * steps


def test_a_table_may_be_made_anew_while_it_is_in_use():
    """A running step either finishes or fails because its rows are gone."""
    with harness.graph_and_session(4) as session:
        table = sok.EmbeddingVariable(name="table", dim=8)
        keys = tf.compat.v1.placeholder(tf.int64, [None])
        step = tf.compat.v1.train.AdagradOptimizer(0.1).minimize(
            tf.reduce_sum(tf.nn.embedding_lookup(table, keys))
        )
        harness.initialize(session)
        done = threading.Event()

        def train(seed):
            rng = np.random.default_rng(seed)
            for _ in range(2 * STEPS):
                try:
                    session.run(step, {keys: rng.integers(0, 10_000, KEYS // 4)})
                except tf.errors.InvalidArgumentError as error:
                    assert "has no row number" in str(error)
            done.set()

        def renew():
            while not done.is_set():
                session.run(table.initializer)

        run_in_threads(lambda: train(1), lambda: train(2), renew)
        session.run(step, {keys: [1]})
        assert session.run(table.size()) > 0
