"""TensorFlow's lookups on an embedding variable equal those on a tf.Variable with the same rows."""

import numpy as np
import pytest
import tensorflow as tf

import harness
import sparse_operation_kit as sok

pytestmark = pytest.mark.cases_on_gpu(4)
session = harness.session

DIMS = [1, 2, 3, 7, 16, 63, 64, 129, 1025]
VOCABULARY = 50


class Pair:
    """A table and a tf.Variable with the same rows: the row of keys[i] equals row i of the variable."""

    def __init__(self, session, dim):
        rng = np.random.default_rng(dim)
        drawn = rng.integers(-(2**63), 2**63 - 1, VOCABULARY - len(harness.HOSTILE_KEYS), dtype=np.int64)
        self.session = session
        self.keys = np.concatenate([harness.HOSTILE_KEYS, drawn])
        self.table = sok.EmbeddingVariable(name="table", dim=dim, initializer="random_normal")
        self.plain = tf.Variable(np.zeros([VOCABULARY, dim], np.float32), name="plain")
        self.all_rows = tf.nn.embedding_lookup(self.table, self.keys)

    def start(self):
        harness.initialize(self.session)
        self.plain.load(self.session.run(self.all_rows), self.session)

    def compare(self, on_table, on_plain, weights=None):
        """Compares the outputs, their gradients by row, and those by weight."""
        factors = tf.cos(tf.cast(tf.reshape(tf.range(tf.size(on_plain)), tf.shape(on_plain)), tf.float32))
        sources = [] if weights is None else [weights]
        of_table, *by_weight = tf.gradients(tf.reduce_sum(factors * on_table), [self.table, *sources])
        of_plain, *by_plain_weight = tf.gradients(tf.reduce_sum(factors * on_plain), [self.plain, *sources])
        self.start()
        got, want = self.session.run([on_table, on_plain])
        assert got.shape == want.shape
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
        gradient = harness.gradient_by_key(self.session, self.table, of_table, self.keys)
        dense = self.session.run(tf.convert_to_tensor(of_plain))
        np.testing.assert_allclose(gradient, dense, rtol=1e-5, atol=2e-5)
        if by_weight:
            got, want = (
                self.session.run(tf.convert_to_tensor(gradient))
                for gradient in (*by_weight, *by_plain_weight)
            )
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)
        assert self.session.run(self.table.size()) == VOCABULARY


def positions_of(kind, count, seed=0):
    rng = np.random.default_rng(seed)
    if kind == "zipf":
        return np.minimum(rng.zipf(1.3, count), VOCABULARY) - 1
    return {"random": rng.integers(0, VOCABULARY, count), "empty": np.zeros([0], np.int64)}[kind]


def bags_of(positions, rows, seed=0):
    """Row ids, sorted, for a SparseTensor of `rows` rows; some are empty."""
    rng = np.random.default_rng(seed)
    row_ids = np.sort(rng.integers(0, rows, len(positions)))
    columns = np.arange(len(positions))
    return np.stack([row_ids, columns], axis=1).reshape(-1, 2).astype(np.int64)


@pytest.mark.parametrize("dim", DIMS)
@pytest.mark.parametrize("kind", ["random", "zipf", "empty"])
def test_embedding_lookup(session, kind, dim):
    pair = Pair(session, dim)
    positions = positions_of(kind, 60)
    on_table = tf.nn.embedding_lookup(pair.table, pair.keys[positions])
    pair.compare(on_table, tf.nn.embedding_lookup(pair.plain, positions))


@pytest.mark.parametrize("shape", [(), (4,), (3, 5), (2, 3, 4), (2, 0), (0, 3, 1)])
def test_embedding_lookup_of_any_shape(session, shape):
    pair = Pair(session, 3)
    positions = np.random.default_rng(1).integers(0, VOCABULARY, shape)
    on_table = tf.nn.embedding_lookup(pair.table, pair.keys[positions])
    assert on_table.shape.as_list() == [*shape, 3]
    pair.compare(on_table, tf.nn.embedding_lookup(pair.plain, positions))


def test_gather(session):
    pair = Pair(session, 5)
    positions = positions_of("zipf", 40).reshape(8, 5)
    pair.compare(tf.gather(pair.table, pair.keys[positions]), tf.gather(pair.plain, positions))


def test_embedding_lookup_in_a_list_and_with_a_name(session):
    pair = Pair(session, 5)
    positions = positions_of("random", 20)
    pair.compare(
        tf.compat.v1.nn.embedding_lookup([pair.table], pair.keys[positions], name="of_table"),
        tf.compat.v1.nn.embedding_lookup([pair.plain], positions),
    )


def test_max_norm(session):
    pair = Pair(session, 5)
    positions = positions_of("random", 20)
    on_table = tf.nn.embedding_lookup(pair.table, pair.keys[positions], max_norm=0.05)
    on_plain = tf.nn.embedding_lookup(pair.plain, positions, max_norm=0.05)
    pair.compare(on_table, on_plain)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("combiner", ["sum", "mean", "sqrtn"])
@pytest.mark.parametrize(("dim", "kind"), [*((dim, "zipf") for dim in DIMS), (6, "random"), (6, "empty")])
def test_embedding_lookup_sparse(session, dim, kind, combiner, weighted):
    compare_sparse(Pair(session, dim), kind, combiner, weighted)


@pytest.mark.parametrize("device", [None, "/cpu:0", "/job:localhost/replica:0/task:0/device:CPU:0"])
def test_embedding_lookup_sparse_on_a_device(device):
    with harness.graph_and_session() as session, tf.device(device):
        compare_sparse(Pair(session, 6), "zipf", "mean", False)


def compare_sparse(pair, kind, combiner, weighted):
    positions = positions_of(kind, 80)
    rows = 30
    indices = bags_of(positions, rows)
    shape = [rows, 80]
    weights = None
    sp_weights = None
    if weighted:
        drawn = np.random.default_rng(2).uniform(0.1, 2.0, len(positions)).astype(np.float32)
        weights = tf.constant(drawn)
        sp_weights = tf.SparseTensor(indices, weights, shape)
    outputs = [
        tf.nn.embedding_lookup_sparse(
            params, tf.SparseTensor(indices, ids, shape), sp_weights, combiner=combiner
        )
        for params, ids in ((pair.table, pair.keys[positions]), (pair.plain, positions.astype(np.int64)))
    ]
    pair.compare(*outputs, weights)


def test_keys_of_a_placeholder(session):
    pair = Pair(session, 4)
    keys = tf.compat.v1.placeholder(tf.int64, [None, None])
    rows = tf.nn.embedding_lookup(pair.table, keys)
    assert rows.shape.as_list() == [None, None, 4]
    pair.start()
    for shape in ((3, 2), (1, 9), (0, 4)):
        positions = np.random.default_rng(3).integers(0, VOCABULARY, shape)
        got, want = session.run([rows, pair.plain], {keys: pair.keys[positions]})
        np.testing.assert_array_equal(got, want[positions])
