"""A key's initial row has its initializer's distribution, and is a function of (seed, table, key) only."""

import numpy as np
import pytest
import tensorflow as tf

import harness
import sparse_operation_kit as sok

pytestmark = pytest.mark.cases_on_gpu(1)

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


@pytest.mark.parametrize("number", [0, 1, 0.25, -3.5, np.float32(0.5)])
def test_a_number(number):
    np.testing.assert_array_equal(initial_rows(number, np.arange(5)), np.full([5, 2], number, np.float32))


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


@pytest.mark.parametrize("kind", [list, tuple, np.array])
def test_a_list_is_the_row_of_every_key(kind):
    row = [0.1, -3.0, 7, 1e-42, 3.4e38]
    want = np.tile(np.array(row, np.float32), [len(harness.HOSTILE_KEYS), 1])
    np.testing.assert_array_equal(initial_rows(kind(row), harness.HOSTILE_KEYS, dim=5), want)


@pytest.mark.parametrize("rows", [1, 3, 700])
def test_keys_take_the_rows_of_an_array_by_their_remainders(rows):
    given = np.random.default_rng(rows).normal(size=[rows, 5]).astype(np.float32)
    want = given[[int(key) % rows for key in harness.HOSTILE_KEYS]]
    np.testing.assert_array_equal(initial_rows(given, harness.HOSTILE_KEYS, dim=5), want)
    np.testing.assert_array_equal(initial_rows(given.tolist(), harness.HOSTILE_KEYS, dim=5), want)


_SHAPE = r"must have the shape \[2\] or \[rows, 2\], not "


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


def test_tables_made_without_training_read_the_same_rows():
    with harness.graph_and_session() as session:
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
