# Tags: versions, old_version
"""DistributedEmbedding and All2AllDenseEmbedding, compared with NumPy on the table's rows."""

import numpy as np
import pytest
import tensorflow as tf

import harness
import sparse_operation_kit as sok
from same_length import zip_equal

pytestmark = pytest.mark.cases_on_gpu(2)
session = harness.session

SLOTS = 3
DIM = 4
MAX_NNZ = 5


def distributed(combiner="sum", **kwargs):
    return sok.DistributedEmbedding(combiner, 1000, DIM, SLOTS, MAX_NNZ, **kwargs)


def all2all(nnz=2, **kwargs):
    return sok.All2AllDenseEmbedding(1000, DIM, SLOTS, nnz, **kwargs)


def draw(rng, batch, keep=0.6, vocabulary=50):
    """(indices, keys) of a SparseTensor [batch * SLOTS, MAX_NNZ] with random entries."""
    taken = np.argwhere(rng.random([batch * SLOTS, MAX_NNZ]) < keep).astype(np.int64)
    return taken, rng.integers(0, vocabulary, len(taken)) * (2**40 + 1) - 2**44


def combine(row_of, indices, keys, rows, combiner):
    """The expected output of a layer: sums or means by row, zeros for rows without keys."""
    out, counts = np.zeros([rows, DIM], np.float64), np.zeros([rows, 1])
    for (row, _), key in zip_equal(indices, keys):
        out[row] += row_of[int(key)]
        counts[row] += 1
    if combiner == "mean":
        out /= np.maximum(counts, 1)
    return out.reshape(-1, SLOTS, DIM)


def rows_by_key(session, layer):
    keys, rows = harness.table_contents(session, layer.embedding_variable)
    return dict(zip_equal(keys.tolist(), rows))


def feed_of(placeholder, indices, keys, batch):
    return {placeholder: tf.compat.v1.SparseTensorValue(indices, keys, [batch * SLOTS, MAX_NNZ])}


@pytest.mark.parametrize("combiner", ["sum", "Sum", "SUM", "mean", "Mean"])
def test_distributed_embedding_over_batches_of_any_size(session, combiner):
    rng = np.random.default_rng(0)
    layer = distributed(combiner)
    ids = tf.compat.v1.sparse_placeholder(tf.int64)
    output = layer(ids)
    assert output.shape.as_list() == [None, SLOTS, DIM]
    harness.initialize(session)
    for batch in (8, 8, 3, 1, 17, 0, 64):
        indices, keys = draw(rng, batch)
        got = session.run(output, feed_of(ids, indices, keys, batch))
        want = combine(rows_by_key(session, layer), indices, keys, batch * SLOTS, combiner.lower())
        assert got.shape == (batch, SLOTS, DIM)
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("combiner", ["sqrtn", "max", "", None, 3])
def test_other_combiners_are_refused(combiner):
    with harness.graph_and_session(), pytest.raises(ValueError, match="combiner must be 'sum' or 'mean'"):
        distributed(combiner)


@pytest.mark.parametrize(("combiner", "want"), [("sum", [5.0, 0.0, 2.0]), ("mean", [5 / 3, 0.0, 2.0])])
def test_a_key_that_stands_twice_counts_twice_and_empty_rows_are_zeros(session, combiner, want):
    layer = distributed(combiner)
    table = layer.embedding_variable
    ids = tf.SparseTensor([[0, 0], [0, 1], [0, 2], [2, 0]], tf.constant([2, 2, 1, 2], tf.int64), [3, MAX_NNZ])
    output = layer(ids)
    loss = tf.reduce_sum(output)
    (gradient,) = tf.gradients(loss, table)
    load = sok.Saver().load_embedding_values(table, np.array([[0.0] * DIM, [1.0] * DIM, [2.0] * DIM]))
    harness.initialize(session)
    session.run(load)
    np.testing.assert_allclose(session.run(output)[0, :, 0], want, rtol=1e-6)
    by_key = harness.gradient_by_key(session, table, gradient, np.arange(3))[:, 0]
    np.testing.assert_allclose(by_key, [0, 1, 3] if combiner == "sum" else [0, 1 / 3, 5 / 3], rtol=1e-6)


def test_indices_in_any_order_and_any_column(session):
    rng = np.random.default_rng(1)
    layer = distributed("mean")
    ids = tf.compat.v1.sparse_placeholder(tf.int64)
    output = layer(ids)
    (gradient,) = tf.gradients(tf.reduce_sum(tf.sin(output)), layer.embedding_variable)
    harness.initialize(session)
    indices, keys = draw(rng, 6)
    distinct = np.unique(keys)
    feed = feed_of(ids, indices, keys, 6)
    want = session.run(output, feed)
    want_gradient = harness.gradient_by_key(session, layer.embedding_variable, gradient, distinct, feed)
    order = rng.permutation(len(keys))
    shuffled = indices[order]
    shuffled[:, 1] = rng.integers(0, 2**40, len(keys))
    feed = feed_of(ids, shuffled, keys[order], 6)
    np.testing.assert_allclose(session.run(output, feed), want, rtol=1e-5, atol=1e-7)
    got = harness.gradient_by_key(session, layer.embedding_variable, gradient, distinct, feed)
    np.testing.assert_allclose(got, want_gradient, rtol=1e-5, atol=1e-6)


def test_no_key_at_all(session):
    layer = distributed("mean")
    ids = tf.compat.v1.sparse_placeholder(tf.int64)
    output = layer(ids)
    step = tf.compat.v1.train.AdagradOptimizer(0.1).minimize(tf.reduce_sum(output))
    harness.initialize(session)
    feed = feed_of(ids, np.zeros([0, 2], np.int64), np.zeros([0], np.int64), 4)
    np.testing.assert_array_equal(session.run([output, step], feed)[0], np.zeros([4, SLOTS, DIM]))
    assert session.run(layer.embedding_variable.size()) == 0


@pytest.mark.parametrize("nnz", [1, 2, 7])
def test_all2all_dense_embedding_over_batches_of_any_size(session, nnz):
    rng = np.random.default_rng(2)
    layer = all2all(nnz)
    keys = tf.compat.v1.placeholder(tf.int64, [None, SLOTS, nnz])
    output = layer(keys)
    assert output.shape.as_list() == [None, SLOTS, nnz, DIM]
    harness.initialize(session)
    for batch in (4, 4, 1, 9, 0):
        drawn = rng.integers(-30, 30, [batch, SLOTS, nnz])
        got = session.run(output, {keys: drawn})
        row_of = rows_by_key(session, layer)
        want = np.array([row_of[key] for key in drawn.ravel().tolist()], np.float32)
        np.testing.assert_array_equal(got, want.reshape([batch, SLOTS, nnz, DIM]))


def test_dynamic_input_of_any_length(session):
    layer = all2all(dynamic_input=True)
    keys = tf.compat.v1.placeholder(tf.int64, [None])
    unique, positions = tf.unique(keys)
    output = tf.gather(layer(unique), positions)
    direct = layer(keys)
    assert direct.shape.as_list() == [None, DIM]
    step = tf.compat.v1.train.AdagradOptimizer(0.1).minimize(tf.reduce_sum(tf.square(output)))
    harness.initialize(session)
    for length in (5, 0, 1, 300):
        drawn = np.random.default_rng(length).integers(0, 40, length)
        got, want = session.run([output, direct], {keys: drawn})
        assert got.shape == (length, DIM)
        np.testing.assert_array_equal(got, want)
        session.run(step, {keys: drawn})


def test_shapes_that_are_known_only_when_it_runs(session):
    layer = all2all()
    keys = tf.compat.v1.placeholder(tf.int64)
    output = layer(keys)
    assert output.shape.as_list() == [None, SLOTS, 2, DIM]
    harness.initialize(session)
    assert session.run(output, {keys: np.ones([4, SLOTS, 2])}).shape == (4, SLOTS, 2, DIM)
    name = layer.embedding_variable.m_var_name.replace("/", "_")
    for shape in ([4, SLOTS, 3], [4, 2, SLOTS], [24], [4, SLOTS, 2, 1]):
        with pytest.raises(tf.errors.InvalidArgumentError, match=name):
            session.run(output, {keys: np.ones(shape)})


def test_a_constant_shape_is_known_at_once(session):
    assert all2all()(tf.zeros([7, SLOTS, 2], tf.int64)).shape.as_list() == [7, SLOTS, 2, DIM]
    ids = tf.SparseTensor([[0, 0]], tf.constant([1], tf.int64), [2 * SLOTS, MAX_NNZ])
    assert distributed()(ids).shape.as_list() == [2, SLOTS, DIM]


@pytest.mark.parametrize("shape", [[4, SLOTS, 3], [4, 2, SLOTS], [25], [5, SLOTS], [5, 3, 1, 1], []])
def test_a_wrong_shape_that_is_known_fails_at_once(shape):
    with harness.graph_and_session(), pytest.raises(ValueError, match="takes keys of shape"):
        all2all()(tf.zeros(shape, tf.int64))


@pytest.mark.parametrize("shape", [[4, SLOTS * 2], [4 * SLOTS, 2], [24], [4, 1, SLOTS, 2], [2, 2, 2, 3], [0]])
@pytest.mark.parametrize("known", ["all", "rank"])
def test_keys_of_another_rank_give_their_shape_and_one_dimension(session, shape, known):
    layer = all2all()
    drawn = np.random.default_rng(0).integers(-9, 9, shape)
    keys = tf.compat.v1.placeholder(tf.int64, shape if known == "all" else [None] * len(shape))
    output = layer(keys)
    assert output.shape.as_list() == [*keys.shape.as_list(), DIM]
    step = tf.compat.v1.train.GradientDescentOptimizer(1.0).minimize(tf.reduce_sum(output))
    harness.initialize(session)
    session.run(step, {keys: drawn})
    row_of = rows_by_key(session, layer)
    want = np.array([row_of[key] for key in drawn.ravel().tolist()], np.float32).reshape([*shape, DIM])
    np.testing.assert_array_equal(session.run(output, {keys: drawn}), want)


def test_keys_of_another_rank_with_one_key_a_slot(session):
    keys = tf.compat.v1.placeholder(tf.int64, [None, SLOTS])
    output = all2all(1)(keys)
    assert output.shape.as_list() == [None, SLOTS, DIM]
    harness.initialize(session)
    assert session.run(output, {keys: np.ones([5, SLOTS])}).shape == (5, SLOTS, DIM)


def test_keys_of_another_rank_that_fill_no_samples_fail_when_it_runs(session):
    layer = all2all()
    keys = tf.compat.v1.placeholder(tf.int64, [None, None])
    output = layer(keys)
    harness.initialize(session)
    with pytest.raises(tf.errors.InvalidArgumentError, match=f"{layer.var.m_var_name}.*multiple of 6"):
        session.run(output, {keys: np.ones([5, 2])})
    assert session.run(layer.embedding_variable.size()) == 0


@pytest.mark.parametrize("shape", [[SLOTS], [2, SLOTS, MAX_NNZ], [1, 2, SLOTS, MAX_NNZ]])
def test_distributed_takes_a_sparse_tensor_of_rank_two(session, shape):
    index = np.zeros([1, len(shape)], np.int64)
    layer = distributed()
    with pytest.raises(ValueError, match=f"layer '{layer.name}' of .* takes keys of shape"):
        layer(tf.SparseTensor(index, tf.constant([1], tf.int64), shape))
    keys = tf.compat.v1.sparse_placeholder(tf.int64)
    output = layer(keys)
    harness.initialize(session)
    with pytest.raises(tf.errors.InvalidArgumentError, match=layer.embedding_variable.m_var_name):
        session.run(output, {keys: (index, [1], shape)})
    good = (np.zeros([1, 2], np.int64), [1], [SLOTS, MAX_NNZ])
    assert session.run(output, {keys: good}).shape == (1, SLOTS, DIM)


def test_wrong_kinds_of_input_fail_at_once(session):
    with pytest.raises(TypeError, match="takes a SparseTensor"):
        distributed()(tf.zeros([SLOTS, MAX_NNZ], tf.int64))
    with pytest.raises(TypeError, match="takes a dense tensor"):
        all2all()(tf.SparseTensor([[0, 0]], tf.constant([1], tf.int64), [SLOTS, 2]))
    with pytest.raises(TypeError, match="takes a dense tensor"):
        all2all(dynamic_input=True)(tf.RaggedTensor.from_row_splits(tf.constant([1], tf.int64), [0, 1]))


@pytest.mark.parametrize("argument", ["embedding_vec_size", "slot_num", "max_vocabulary_size_per_gpu"])
@pytest.mark.parametrize(
    ("value", "error"), [(0, ValueError), (-3, ValueError), (2.5, TypeError), ("4", TypeError)]
)
@pytest.mark.parametrize("layer", [sok.DistributedEmbedding, sok.All2AllDenseEmbedding])
def test_bad_sizes_are_named(layer, argument, value, error):
    sizes = {"max_vocabulary_size_per_gpu": 10, "embedding_vec_size": 4, "slot_num": 2}
    if layer is sok.DistributedEmbedding:
        sizes.update({"combiner": "sum", "max_nnz": 3})
    else:
        sizes.update({"nnz_per_slot": 3})
    with harness.graph_and_session(), pytest.raises(error, match=f"{layer.__name__}.*{argument}.*{value}"):
        layer(**{**sizes, argument: value})


def test_no_bound_on_the_vocabulary(session):
    layer = sok.All2AllDenseEmbedding(None, DIM, 1, 1, dynamic_input=True)
    rows = layer(tf.range(5000, dtype=tf.int64))
    harness.initialize(session)
    session.run(rows)
    assert session.run(layer.embedding_variable.size()) == 5000


def test_half_precision_compute(session):
    layer = distributed("sum", dtype="float16", embedding_initializer=0.5)
    dense = all2all(dtype=tf.float16, dynamic_input=True, embedding_initializer=0.25)
    ids = tf.SparseTensor([[0, 0], [0, 1]], tf.constant([1, 2], tf.int64), [SLOTS, MAX_NNZ])
    outputs = [layer(ids), dense(tf.constant([3], tf.int64))]
    tables = [layer.embedding_variable, dense.embedding_variable]
    gradients = tf.gradients([tf.reduce_sum(output) for output in outputs], tables)
    assert [output.dtype for output in outputs] == [tf.float16] * 2
    assert [table.dtype for table in tables] == [tf.float32] * 2
    assert [gradient.values.dtype for gradient in gradients] == [tf.float32] * 2
    harness.initialize(session)
    pooled, rows = session.run(outputs)
    np.testing.assert_array_equal(pooled[0, :, 0], [1.0, 0.0, 0.0])
    np.testing.assert_array_equal(rows, np.full([1, DIM], 0.25))


def test_a_mixed_policy_computes_in_half_precision_and_trains_whole_rows(session):
    layer = all2all(dtype="mixed_float16", dynamic_input=True, embedding_initializer=1.0)
    rows = layer(tf.constant([3], tf.int64))
    step = tf.compat.v1.train.GradientDescentOptimizer(2.0**-12).minimize(tf.reduce_sum(rows))
    assert rows.dtype == tf.float16
    harness.initialize(session)
    session.run(step)
    # float16 cannot represent this number.
    want = np.full([1, DIM], 1.0 - 2.0**-12, np.float32)
    np.testing.assert_array_equal(harness.table_contents(session, layer.embedding_variable)[1], want)


def test_get_embedding_finds_a_layer_again():
    arguments = {"max_vocabulary_size_per_gpu": 10, "embedding_vec_size": 4, "slot_num": 2, "nnz_per_slot": 1}
    with harness.graph_and_session():
        layer = sok.get_embedding("user", sok.All2AllDenseEmbedding, **arguments)
        assert isinstance(layer, sok.All2AllDenseEmbedding)
        assert sok.get_embedding("user") is layer
        assert sok.get_embedding("user", sok.All2AllDenseEmbedding, **arguments) is layer
        assert sok.get_embedding("item", sok.All2AllDenseEmbedding, **arguments) is not layer
        with pytest.raises(ValueError, match="context.*item.*user"):
            sok.get_embedding("context")
    with harness.graph_and_session(), pytest.raises(ValueError, match="user"):
        sok.get_embedding("user")
