"""A key's initial row has its initializer's distribution, and is a function of (seed, table, key) only.
EmbeddingVariable.assign_rows: which rows it sets, and errors, which leave the table as it was."""

import numpy as np
import pytest
import tensorflow as tf

import harness
import sparse_operation_kit as sok
from same_length import zip_equal

COUNT = 20_000
v1 = tf.compat.v1
keras = tf.keras.initializers


def initial_rows(initializer, keys=None, name="table", dim=2, capacity=None, batches=1, threads=2):
    """The rows of `keys`, looked up in `batches` runs of a fresh session."""
    keys = np.arange(COUNT, dtype=np.int64) if keys is None else keys
    with harness.graph_and_session(threads) as session:
        table = sok.EmbeddingVariable(name=name, dim=dim, capacity=capacity, initializer=initializer)
        batch = v1.placeholder(tf.int64, [None])
        rows = tf.nn.embedding_lookup(table, batch)
        harness.initialize(session)
        parts = np.array_split(keys, batches)
        return np.concatenate([session.run(rows, {batch: part}) for part in parts])


def assert_uniform(rows, low, high):
    assert rows.min() >= low and rows.max() <= high
    scaled = np.sort((rows.ravel().astype(np.float64) - low) / (high - low))
    # The Kolmogorov-Smirnov distance: the largest difference between the empirical and the uniform
    # distribution.
    distance = np.max(np.abs(scaled - (np.arange(scaled.size) + 0.5) / scaled.size))
    assert distance < 2.2 / np.sqrt(scaled.size)
    assert np.unique(rows).size > 0.98 * rows.size


def assert_moments(rows, mean, stddev, limit=None):
    values = rows.ravel().astype(np.float64)
    assert abs(values.mean() - mean) < 4.5 * stddev / np.sqrt(values.size)
    assert abs(values.std() - stddev) < 0.02 * stddev
    if limit is not None:
        assert np.abs(values - mean).max() <= limit
    else:
        assert np.abs(values - mean).max() > 3.2 * stddev
    assert abs(np.corrcoef(rows[:, 0], rows[:, 1])[0, 1]) < 0.04
    assert abs(np.corrcoef(values[:-2], values[2:])[0, 1]) < 0.04


def test_the_default_is_uniform_between_minus_and_plus_five_percent():
    assert_uniform(initial_rows(None), -0.05, 0.05)


@pytest.mark.cases_on_gpu(1)
@pytest.mark.parametrize("number", [0, 1, 0.25, -3.5, np.float32(0.5)])
def test_a_number(number):
    np.testing.assert_array_equal(initial_rows(number, np.arange(5)), np.full([5, 2], number, np.float32))


@pytest.mark.cases_on_gpu(1)
@pytest.mark.parametrize(
    ("initializer", "value"),
    [
        ("zeros", 0.0),
        ("ones", 1.0),
        (keras.Zeros(), 0.0),
        (keras.Ones(), 1.0),
        (keras.Constant(0.75), 0.75),
        (v1.zeros_initializer(), 0.0),
        (v1.ones_initializer(), 1.0),
        (v1.constant_initializer(-2.5), -2.5),
        (tf.constant_initializer(4.0), 4.0),
        (v1.zeros_initializer, 0.0),
    ],
)
def test_constants(initializer, value):
    np.testing.assert_array_equal(initial_rows(initializer, np.arange(5)), np.full([5, 2], value, np.float32))


@pytest.mark.cases_on_gpu(1)
@pytest.mark.parametrize("kind", [list, tuple, np.array])
def test_a_list_is_the_row_of_every_key(kind):
    row = [0.1, -3.0, 7, 1e-42, 3.4e38]
    want = np.tile(np.array(row, np.float32), [len(harness.HOSTILE_KEYS), 1])
    np.testing.assert_array_equal(initial_rows(kind(row), harness.HOSTILE_KEYS, dim=5), want)


@pytest.mark.cases_on_gpu(1)
@pytest.mark.parametrize("rows", [1, 3, 700])
def test_keys_take_the_rows_of_an_array_by_their_remainders(rows):
    given = np.random.default_rng(rows).normal(size=[rows, 5]).astype(np.float32)
    want = given[[int(key) % rows for key in harness.HOSTILE_KEYS]]
    np.testing.assert_array_equal(initial_rows(given, harness.HOSTILE_KEYS, dim=5), want)
    np.testing.assert_array_equal(initial_rows(given.tolist(), harness.HOSTILE_KEYS, dim=5), want)


_SHAPE = r"must have the shape \[2\] or \[rows, 2\], not "


@pytest.mark.cases_on_gpu(1)
@pytest.mark.parametrize(
    ("values", "error", "message"),
    [
        ([1.0], ValueError, _SHAPE + r"\[1\]"),
        ([1.0, 2.0, 3.0], ValueError, _SHAPE + r"\[3\]"),
        ((), ValueError, _SHAPE + r"\[0\]"),
        (np.zeros([0, 2]), ValueError, _SHAPE + r"\[0, 2\]"),
        (np.zeros([2, 3]), ValueError, _SHAPE + r"\[2, 3\]"),
        (np.array(0.5), ValueError, _SHAPE + r"\[\]"),
        ([1.0, [2.0]], TypeError, r"\[2.0\] is not a number"),
        ([1.0, "2"], TypeError, "'2' is not a number"),
        ([1.0, True], TypeError, "True is not a number"),
        ([1.0, float("nan")], ValueError, "must be finite in float32, not nan"),
        ([[0.0, 0.0], [1e39, 0.0]], ValueError, "must be finite in float32, not 1e"),
        (np.array([[0.0, 0.0], [-1e39, 0.0]]), ValueError, "must be finite in float32, not -1e"),
        (np.array([1.0, np.inf], np.float16), ValueError, "must be finite in float32, not inf"),
        (np.array([True, False]), TypeError, "True is not a number"),
    ],
)
def test_values_that_are_no_rows_are_refused(values, error, message):
    with harness.graph_and_session(), pytest.raises(error, match="Embedding variable 'table'.*" + message):
        sok.EmbeddingVariable(name="table", dim=2, initializer=values)


@pytest.mark.cases_on_gpu(1)
@pytest.mark.parametrize(
    ("initializer", "low", "high"),
    [
        ("random_uniform", -0.05, 0.05),
        (keras.RandomUniform(-2.0, 3.0), -2.0, 3.0),
        (v1.random_uniform_initializer(0.5, 0.75), 0.5, 0.75),
        (v1.random_uniform_initializer(), 0.0, 1.0),
        (tf.random_uniform_initializer(-1.0, 0.0), -1.0, 0.0),
    ],
)
def test_uniform(initializer, low, high):
    assert_uniform(initial_rows(initializer), low, high)


@pytest.mark.cases_on_gpu(1)
@pytest.mark.parametrize(
    ("initializer", "mean", "stddev"),
    [
        ("random_normal", 0.0, 0.05),
        (keras.RandomNormal(1.0, 0.5), 1.0, 0.5),
        (v1.random_normal_initializer(-1.0, 2.0), -1.0, 2.0),
        (tf.random_normal_initializer(0.0, 0.1), 0.0, 0.1),
    ],
)
def test_normal(initializer, mean, stddev):
    assert_moments(initial_rows(initializer), mean, stddev)


@pytest.mark.cases_on_gpu(1)
@pytest.mark.parametrize(
    ("initializer", "mean", "stddev"),
    [
        ("truncated_normal", 0.0, 0.05),
        (keras.TruncatedNormal(1.0, 0.5), 1.0, 0.5),
        (v1.truncated_normal_initializer(-1.0, 2.0), -1.0, 2.0),
    ],
)
def test_truncated_normal(initializer, mean, stddev):
    # Truncation at two standard deviations reduces the standard deviation to 0.8796 of the normal one.
    assert_moments(initial_rows(initializer), mean, 0.87962566 * stddev, limit=2 * stddev)


@pytest.mark.cases_on_gpu(1)
@pytest.mark.parametrize(
    "name", ["glorot_uniform", "he_uniform", "lecun_uniform", "glorot_normal", "he_normal"]
)
def test_variance_scaling_is_as_of_a_dense_variable_of_the_capacity(name):
    capacity, dim = COUNT, 2
    rows = initial_rows(name, capacity=capacity, dim=dim)
    fan = {"glorot": (capacity + dim) / 2, "he": capacity / 2, "lecun": capacity}[name.split("_")[0]]
    stddev = np.sqrt(1.0 / fan)
    if name.endswith("uniform"):
        assert_uniform(rows, -np.sqrt(3) * stddev * (1 + 1e-6), np.sqrt(3) * stddev * (1 + 1e-6))
    else:
        assert_moments(rows, 0.0, stddev, limit=2 * stddev / 0.87962566 * (1 + 1e-6))


def test_variance_scaling_needs_a_capacity():
    with harness.graph_and_session(), pytest.raises(ValueError, match="table.*capacity"):
        sok.EmbeddingVariable(name="table", dim=2, initializer="glorot_uniform")


@pytest.mark.cases_on_gpu(1)
@pytest.mark.parametrize(
    ("initializer", "error"),
    [
        ("no_such_initializer", ValueError),
        (keras.Orthogonal(), TypeError),
        (lambda shape: tf.zeros(shape), TypeError),
        (v1.constant_initializer([1.0, 2.0]), ValueError),
        (keras.RandomUniform(1.0, 0.0), ValueError),
        (float("inf"), ValueError),
        (True, (TypeError, ValueError)),
    ],
)
def test_an_initializer_that_cannot_make_single_rows_is_refused(initializer, error):
    with harness.graph_and_session(), pytest.raises(error, match="Embedding variable 'table'"):
        sok.EmbeddingVariable(name="table", dim=2, capacity=10, initializer=initializer)


@pytest.mark.cases_on_gpu(1)
@pytest.mark.parametrize("initializer", [None, "random_normal", "truncated_normal"])
def test_rows_do_not_depend_on_order_batches_or_threads(initializer):
    rng = np.random.default_rng(0)
    keys = np.concatenate([harness.HOSTILE_KEYS, rng.integers(-(2**63), 2**63 - 1, 3000, dtype=np.int64)])
    want = initial_rows(initializer, keys, dim=5)
    assert np.unique(want).size > 0.99 * want.size
    order = rng.permutation(len(keys))
    for batches, threads in ((1, 1), (1, 4), (7, 2)):
        got = initial_rows(initializer, keys[order], dim=5, batches=batches, threads=threads)
        np.testing.assert_array_equal(got, want[order])


def test_rows_depend_on_the_name_and_the_seed_of_the_initializer():
    keys = np.arange(50)
    want = initial_rows("random_normal", keys)
    assert not np.any(want == initial_rows("random_normal", keys, name="other"))
    seeded = [initial_rows(keras.RandomNormal(0.0, 0.05, seed=seed), keys) for seed in (1, 2, 1)]
    assert not np.any(seeded[0] == seeded[1])
    np.testing.assert_array_equal(seeded[0], seeded[2])


def test_tables_made_without_training_read_the_same_rows(session):
    layer = sok.All2AllDenseEmbedding(10, 3, 1, 1, dynamic_input=True)
    keys = tf.constant([5, -5], tf.int64)
    before = layer(keys, training=False)
    inserted = layer(keys)
    harness.initialize(session)
    first = session.run(before)
    np.testing.assert_array_equal(session.run(inserted), first)


def test_without_hashing_row_r_is_the_row_of_key_r():
    with harness.graph_and_session() as session:
        table = sok.EmbeddingVariable(name="table", dim=2, capacity=100, use_hashtable=False)
        rows = table.read_value()
        harness.initialize(session)
        got = session.run(rows)
    np.testing.assert_array_equal(got, initial_rows(None, np.arange(100)))


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
