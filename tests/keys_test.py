# Tags: old_version
"""The keys that a table accepts, and full tables."""

import re

import numpy as np
import pytest
import tensorflow as tf

import harness
import sparse_operation_kit as sok

session = harness.session

# Whole numbers of float32, far from each other and from zero.
_ONE_EACH = tf.compat.v1.train.GradientDescentOptimizer


def train_once(table, keys):
    """An op that subtracts from each key's row the number of times that the key occurs in `keys`."""
    loss = tf.reduce_sum(tf.nn.embedding_lookup(table, keys))
    return _ONE_EACH(1.0).minimize(loss, var_list=[table])


@pytest.mark.parametrize("use_layer", [False, True])
def test_every_int64_is_a_key_of_its_own(session, use_layer):
    if use_layer:
        layer = sok.All2AllDenseEmbedding(100, 3, 1, 1, dynamic_input=True)
        table, rows = layer.embedding_variable, layer(tf.constant(harness.HOSTILE_KEYS))
    else:
        table = sok.EmbeddingVariable(name="table", dim=3)
        rows = tf.nn.embedding_lookup(table, harness.HOSTILE_KEYS)
    harness.initialize(session)
    first = session.run(rows)
    assert np.unique(first, axis=0).shape == first.shape
    assert session.run(table.size()) == len(harness.HOSTILE_KEYS)
    np.testing.assert_array_equal(session.run(rows), first)
    keys, stored = harness.table_contents(session, table)
    np.testing.assert_array_equal(keys, harness.HOSTILE_KEYS)
    np.testing.assert_array_equal(stored, first)


def test_each_hostile_key_trains_its_row_alone(session):
    table = sok.EmbeddingVariable(name="table", dim=2, initializer=0.0)
    key = tf.compat.v1.placeholder(tf.int64, [None])
    step = train_once(table, key)
    rows = tf.nn.embedding_lookup(table, harness.HOSTILE_KEYS)
    harness.initialize(session)
    for i, hostile in enumerate(harness.HOSTILE_KEYS):
        session.run(step, {key: [hostile] * (i + 1)})
    want = -np.arange(1, len(harness.HOSTILE_KEYS) + 1, dtype=np.float32)
    np.testing.assert_array_equal(session.run(rows), np.stack([want, want], axis=1))


@pytest.mark.parametrize(
    "drawn",
    [
        np.array([0, -1, 2**31 - 1, -(2**31)], np.int32),
        np.array([0, 2**31, 2**32 - 1, 2**31 - 1], np.uint32),
    ],
)
def test_keys_of_32_bits_are_the_numbers_that_they_are(session, drawn):
    layer = sok.All2AllDenseEmbedding(10, 2, 1, 1, dynamic_input=True, key_dtype=tf.as_dtype(drawn.dtype))
    rows = layer(tf.constant(drawn))
    harness.initialize(session)
    assert np.unique(session.run(rows)).size == 8
    keys = harness.table_contents(session, layer.embedding_variable)[0]
    np.testing.assert_array_equal(keys, drawn.astype(np.int64))


def test_one_key_has_one_row_under_any_key_dtype():
    rows = {}
    for dtype in (tf.int64, tf.int32, tf.uint32):
        with harness.graph_and_session() as session:
            table = sok.EmbeddingVariable(name="table", dim=4, key_dtype=dtype)
            found = tf.nn.embedding_lookup(table, tf.constant([7, 2**31 - 1], dtype))
            harness.initialize(session)
            rows[dtype] = session.run(found)
    np.testing.assert_array_equal(rows[tf.int32], rows[tf.int64])
    np.testing.assert_array_equal(rows[tf.uint32], rows[tf.int64])


@pytest.mark.parametrize(
    ("key_dtype", "input_dtype"),
    [
        (tf.int64, tf.int32),
        (tf.int64, tf.uint32),
        (tf.int32, tf.int64),
        (tf.uint32, tf.int64),
        (tf.int32, tf.uint32),
        (tf.int64, tf.float32),
        (tf.int64, tf.string),
        (tf.int64, tf.uint64),
    ],
)
def test_layers_take_keys_of_their_dtype_only(session, key_dtype, input_dtype):
    dense = sok.All2AllDenseEmbedding(10, 2, 2, 1, key_dtype=key_dtype)
    sparse = sok.DistributedEmbedding("sum", 10, 2, 2, 1, key_dtype=key_dtype)
    keys = tf.compat.v1.placeholder(input_dtype, [4, 2, 1])
    with pytest.raises(TypeError, match=f"{input_dtype.name}.*{key_dtype.name}"):
        dense(keys)
    with pytest.raises(TypeError, match=f"{input_dtype.name}.*{key_dtype.name}"):
        sparse(tf.compat.v1.sparse_placeholder(input_dtype, [4, 1]))


@pytest.mark.parametrize("layer", ["distributed", "all2all"])
def test_an_unknown_key_dtype_is_refused(layer):
    with harness.graph_and_session(), pytest.raises(ValueError, match="key_dtype.*int16"):
        if layer == "distributed":
            sok.DistributedEmbedding("sum", 10, 2, 2, 1, key_dtype=tf.int16)
        else:
            sok.All2AllDenseEmbedding(10, 2, 2, 1, key_dtype=tf.int16)


def test_growth_moves_no_row(session):
    """50 000 keys in several batches double the table many times; each row is written once, then checked."""
    rng = np.random.default_rng(0)
    drawn = np.unique(rng.integers(-(2**63), 2**63 - 1, 51_000, dtype=np.int64))
    keys = rng.permutation(drawn)[:50_000]
    table = sok.EmbeddingVariable(name="table", dim=3, initializer="random_normal")
    batch = tf.compat.v1.placeholder(tf.int64, [None])
    rows = tf.nn.embedding_lookup(table, batch)
    step = train_once(table, batch)
    harness.initialize(session)
    want, first, size = [], 0, 10
    while first < len(keys):
        part = keys[first : first + size]
        want.append(session.run(rows, {batch: part}) - 1)
        session.run(step, {batch: part})
        first, size = first + size, size * 2
    assert session.run(table.size()) == len(keys)
    np.testing.assert_array_equal(session.run(rows, {batch: keys}), np.concatenate(want))


def test_without_hashing_the_key_is_the_row(session):
    table = sok.EmbeddingVariable(name="table", dim=2, capacity=6, use_hashtable=False, initializer=0.0)
    step = train_once(table, tf.constant([5, 0, 5], tf.int64))
    harness.initialize(session)
    session.run(step)
    np.testing.assert_array_equal(session.run(table.read_value())[:, 0], [-1, 0, 0, 0, 0, -2])
    np.testing.assert_array_equal(harness.table_contents(session, table)[0], np.arange(6))


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("key", [6, 7, -1, 2**63 - 1, -(2**63), 2**32])
def test_without_hashing_a_key_out_of_range_is_named(session, key, training):
    layer = sok.All2AllDenseEmbedding(6, 2, 1, 1, dynamic_input=True, use_hashtable=False)
    keys = tf.compat.v1.placeholder(tf.int64, [None])
    rows = layer(keys, training=training)
    harness.initialize(session)
    before = session.run(rows, {keys: np.arange(6)})
    name = re.escape(layer.embedding_variable.m_var_name)
    with pytest.raises(tf.errors.InvalidArgumentError, match=f"{name}.*key {key}\\b.*6"):
        session.run(rows, {keys: [0, key, 5]})
    np.testing.assert_array_equal(session.run(rows, {keys: np.arange(6)}), before)


def test_the_error_of_a_full_table_names_it_and_the_table_stays_usable(session):
    layer = sok.All2AllDenseEmbedding(4, 2, 1, 1, dynamic_input=True, embedding_initializer=0.0)
    table = layer.embedding_variable
    keys = tf.compat.v1.placeholder(tf.int64, [None])
    rows, frozen = layer(keys), layer(keys, training=False)
    step = _ONE_EACH(1.0).minimize(tf.reduce_sum(rows), var_list=[table])
    harness.initialize(session)
    session.run(step, {keys: [10, -20, 30]})
    with pytest.raises(tf.errors.ResourceExhaustedError) as error:
        session.run(step, {keys: [10, 40, 50, 60]})
    message = str(error.value)
    assert table.m_var_name in message
    assert re.search(r"\b3 of at most 4 rows\b", message) and re.search(r"\b3 new keys\b", message)
    assert session.run(table.size()) == 3
    np.testing.assert_array_equal(session.run(frozen, {keys: [10, -20, 30, 40]})[:, 0], [-1, -1, -1, 0])
    # There is room for one more row, and keys that have rows can be trained.
    session.run(step, {keys: [40, 10]})
    session.run(step, {keys: [10, -20, 30, 40]})
    assert session.run(table.size()) == 4
    np.testing.assert_array_equal(session.run(rows, {keys: [10, -20, 30, 40]})[:, 0], [-3, -2, -2, -2])
    with pytest.raises(tf.errors.ResourceExhaustedError, match="4 of at most 4"):
        session.run(rows, {keys: [99]})


def test_a_full_table_reads_any_key_without_training(session):
    layer = sok.All2AllDenseEmbedding(1, 2, 1, 1, dynamic_input=True)
    keys = tf.compat.v1.placeholder(tf.int64, [None])
    rows, frozen = layer(keys), layer(keys, training=False)
    harness.initialize(session)
    session.run(rows, {keys: [1]})
    assert session.run(frozen, {keys: [5, 6, 1, 7]}).shape == (4, 2)
    assert session.run(layer.embedding_variable.size()) == 1


def test_a_capacity_beyond_memory_is_accepted(session):
    table = sok.EmbeddingVariable(name="table", dim=64, capacity=2**50)
    rows = tf.nn.embedding_lookup(table, [1, 2])
    harness.initialize(session)
    assert session.run(rows).shape == (2, 64)
