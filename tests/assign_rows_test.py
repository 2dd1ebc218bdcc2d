"""EmbeddingVariable.assign_rows: which rows it sets, and errors, which leave the table as it was."""

import numpy as np
import pytest
import tensorflow as tf

import harness
import sparse_operation_kit as sok
from same_length import zip_equal

session = harness.session

DIM = 2
NAME = "sound_table"


@pytest.mark.parametrize(
    ("keys", "values"),
    [
        ([1, 2], np.zeros([2, DIM + 1])),
        ([1, 2], np.zeros([3, DIM])),
        ([1, 2], np.zeros([4])),
        ([[1, 2]], np.zeros([2, DIM])),
        ([1, 1], np.zeros([2, DIM])),  # a key twice
    ],
)
def test_wrong_shapes_and_repeated_keys_are_refused(session, keys, values):
    table = sok.EmbeddingVariable(name=NAME, dim=DIM, capacity=5)
    rows = tf.nn.embedding_lookup(table, [10, 20, 30])
    fed = tf.compat.v1.placeholder(tf.int64), tf.compat.v1.placeholder(tf.float32)
    assign = table.assign_rows(*fed)
    harness.initialize(session)
    session.run(rows)
    before = harness.table_contents(session, table)
    with pytest.raises(tf.errors.InvalidArgumentError, match=NAME):
        session.run(assign, dict(zip_equal(fed, (keys, values))))
    harness.assert_equal_arrays(before, harness.table_contents(session, table))


KEYS = [2, -1, 2**40]
ROWS = np.array([[1.0, 2.0], [np.nan, -np.inf], [5.0, 6.0]], np.float32)


@pytest.mark.parametrize("feeds", ["keys and rows", "nothing"])
@pytest.mark.parametrize(
    "options",
    [{}, {"capacity": 4}, {"capacity": 4, "on_full": "evict_lru"}, {"admission": sok.CounterFilter(9)}],
)
def test_rows_are_those_of_their_keys(session, options, feeds):
    table = sok.EmbeddingVariable(NAME, DIM, **options)
    fed = tf.compat.v1.placeholder(tf.int64, [None]), tf.compat.v1.placeholder(tf.float32, [None, DIM])
    given = fed if feeds == "keys and rows" else (KEYS, ROWS)
    assign = table.assign_rows(*given, name="pretrained")
    assert (assign.op.name, assign.dtype, assign.shape.rank) == ("pretrained", tf.string, 0)
    rows = tf.nn.embedding_lookup(table, tf.constant(KEYS, tf.int64))
    harness.initialize(session)
    assert session.run(assign, dict(zip_equal(fed, (KEYS, ROWS)))) == b"OK"
    np.testing.assert_array_equal(session.run(rows), ROWS)
    assert session.run(table.size()) == len(KEYS)


def test_without_a_hash_table_the_other_rows_stay(session):
    table = sok.EmbeddingVariable(NAME, DIM, capacity=4, use_hashtable=False)
    assign, read = table.assign_rows([2, 0], [[1, 2], [3, 4]]), table.read_value()
    harness.initialize(session)
    want = session.run(read)
    session.run(assign)
    want[[2, 0]] = [[1, 2], [3, 4]]
    np.testing.assert_array_equal(session.run(read), want)


@pytest.mark.parametrize(
    ("key_dtype", "keys"),
    [
        (tf.int64, np.array([1, 7], np.int32)),
        (tf.int64, tf.int32),
        (tf.int64, tf.uint32),
        (tf.int32, [1, 7]),
        (tf.uint32, (1, 7)),
        (tf.uint32, np.array([1, 7], np.int64)),
    ],
)
def test_keys_of_other_integer_dtypes(session, key_dtype, keys):
    table = sok.EmbeddingVariable(NAME, DIM, key_dtype=key_dtype)
    keys = tf.cast(tf.constant([1, 7]), keys) if isinstance(keys, tf.DType) else keys
    assign = table.assign_rows(keys, ROWS[::2].astype(np.float64))
    harness.initialize(session)
    session.run(assign)
    found, rows = session.run(table.keys_and_rows())
    assert found.tolist() == [1, 7]
    np.testing.assert_array_equal(rows, ROWS[::2])


def test_no_keys(session):
    table = sok.EmbeddingVariable(NAME, DIM)
    assign = table.assign_rows([], np.zeros([0, DIM]))
    harness.initialize(session)
    assert session.run(assign) == b"OK"
    assert session.run(table.size()) == 0


def _adam():
    return tf.compat.v1.train.AdamOptimizer(0.1)


@pytest.mark.parametrize(
    ("optimizer", "options"),
    [
        (_adam, {}),
        (_adam, {"capacity": 8, "on_full": "evict_lfu"}),
        (_adam, {"capacity": 8, "use_hashtable": False}),
        (_adam, {"eviction": sok.GlobalStepEvict(1000)}),
        (lambda: tf.compat.v1.train.MomentumOptimizer(0.1, 0.9), {}),
    ],
)
def test_slots_of_old_rows_stay_and_those_of_new_rows_begin(session, optimizer, options):
    """Training goes on like that of an ordinary variable whose rows are assigned."""
    count = tf.compat.v1.train.get_or_create_global_step()
    table = sok.EmbeddingVariable(NAME, DIM, initializer=0.5, **options)
    plain = tf.compat.v1.get_variable("plain", [8, DIM], initializer=tf.constant_initializer(0.5))
    ids = tf.compat.v1.placeholder(tf.int64, [None])
    rows = [tf.nn.embedding_lookup(one, ids) for one in (table, plain)]
    loss = tf.add_n([tf.reduce_sum(tf.square(one) * [1.0, 2.0]) for one in rows])
    step = optimizer().minimize(loss, count)
    keys = tf.compat.v1.placeholder(tf.int64, [None])
    new = tf.stack([tf.cast(keys, tf.float32), tf.cast(keys, tf.float32) + 0.5], axis=1)
    assign = [table.assign_rows(keys, new), tf.compat.v1.scatter_update(plain, keys, new)]
    known = [1, 2, 3, 5]
    both = tf.nn.embedding_lookup(table, known), tf.nn.embedding_lookup(plain, known)
    harness.initialize(session)

    def train(*batches):
        for batch in batches:
            session.run(step, {ids: batch})

    train([1, 2, 3], [2], [3, 2])  # Adam owes row 1 two steps when it is assigned, and 3 one.
    session.run(assign, {keys: [5, 1]})
    for batch in ([2], [5, 3], [2], [1, 5]):
        train(batch)
        np.testing.assert_allclose(*session.run(both), rtol=1e-5)
    session.run(assign, {keys: [3, 2]})
    train([5], [2, 3])
    np.testing.assert_allclose(*session.run(both), rtol=1e-5)


@pytest.mark.parametrize(
    ("keys", "rows", "error", "message"),
    [
        ([1.5], [[1, 2]], TypeError, "keys are float64"),
        (["a"], [[1, 2]], TypeError, "keys are"),
        ([2**31], [[1, 2]], ValueError, "key 2147483648 does not fit"),
        ([-(2**31) - 1], [[1, 2]], ValueError, "key -2147483649 does not fit"),
        ([1], "rows", (TypeError, ValueError), "rows must be numbers"),
        ([1], [[1, 2, 3]], ValueError, r"keys of shape \[n\] and rows of shape \[n, 2\]"),
        ([1, 2], [[1, 2]], ValueError, r"not \(2,\) and \(1, 2\)"),
        ([[1]], [[1, 2]], ValueError, r"not \(1, 1\)"),
        (1, [1, 2], ValueError, "assign_rows takes"),
    ],
)
def test_wrong_arguments_are_refused_when_the_graph_is_built(keys, rows, error, message):
    with tf.Graph().as_default():
        table = sok.EmbeddingVariable(NAME, DIM, key_dtype=tf.int32)
        with pytest.raises(error, match=f"{NAME}.*{message}"):
            table.assign_rows(keys, rows)


def test_wrong_dtypes_of_tensors_are_refused():
    with tf.Graph().as_default():
        table = sok.EmbeddingVariable(NAME, DIM)
        with pytest.raises(TypeError, match=f"{NAME}.*keys are uint64"):
            table.assign_rows(tf.zeros([1], tf.uint64), tf.zeros([1, DIM]))
        with pytest.raises(TypeError, match=f"{NAME}.*rows are float16.*cast"):
            table.assign_rows([1], tf.zeros([1, DIM], tf.float16))


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"capacity": 3}, tf.errors.ResourceExhaustedError),
        ({"capacity": 3, "on_full": "evict_lru"}, tf.errors.ResourceExhaustedError),
        ({"capacity": 20, "use_hashtable": False}, tf.errors.InvalidArgumentError),
    ],
)
def test_without_room_or_out_of_range_nothing_changes(session, options, error):
    table = sok.EmbeddingVariable(NAME, DIM, **options)
    rows = tf.nn.embedding_lookup(table, [10, 11])
    assign = table.assign_rows([10, 20, 21], np.ones([3, DIM]))
    harness.initialize(session)
    session.run(rows)
    before = harness.table_contents(session, table)
    with pytest.raises(error, match=NAME):
        session.run(assign)
    harness.assert_equal_arrays(before, harness.table_contents(session, table))


def test_an_admission_filter_does_not_apply_and_counts_from_then_on(session):
    table = sok.EmbeddingVariable(NAME, DIM, initializer=0.5, admission=sok.CounterFilter(3))
    keys = tf.constant([7, 8, 9], tf.int64)
    rows = tf.nn.embedding_lookup(table, keys)
    step = tf.compat.v1.train.GradientDescentOptimizer(1.0).minimize(tf.reduce_sum(rows))
    assign, frequency = table.assign_rows([8, 7], [[3, 4], [1, 2]]), table.get_frequency(keys)
    session.run(table.initializer)
    early = tf.nn.embedding_lookup(table, tf.constant([8], tf.int64))
    session.run(tf.compat.v1.train.GradientDescentOptimizer(1.0).minimize(tf.reduce_sum(early)))
    assert session.run(frequency).tolist() == [0, 1, 0]
    session.run(assign)
    assert session.run(frequency).tolist() == [0, 0, 0]
    session.run(step)
    assert session.run(frequency).tolist() == [1, 1, 1]
    session.run(assign)
    assert session.run(frequency).tolist() == [1, 1, 1]
    session.run(step)
    found, values = harness.table_contents(session, table)
    assert dict(zip_equal(found.tolist(), values.tolist())) == {7: [0, 1], 8: [2, 3]}


def test_a_scaffold_assigns_rows_unless_it_restores(tmp_path):
    for want in ([1.0, 2.0], [-9.0, -8.0]):  # the second session goes on after the first one's step
        with tf.Graph().as_default():
            sok.Init(global_batch_size=1, seed=harness.SEED)
            table = sok.EmbeddingVariable(NAME, DIM)
            assign = table.assign_rows([7], [[1, 2]])
            rows = tf.nn.embedding_lookup(table, [7])
            step = tf.compat.v1.train.GradientDescentOptimizer(10.0).minimize(
                tf.reduce_sum(rows), tf.compat.v1.train.get_or_create_global_step()
            )
            scaffold = tf.compat.v1.train.Scaffold(init_fn=lambda _, session: session.run(assign))  # noqa: B023
            with tf.compat.v1.train.MonitoredTrainingSession(
                checkpoint_dir=str(tmp_path), scaffold=scaffold
            ) as session:
                assert session.run(rows).tolist() == [want]
                session.run(step)
