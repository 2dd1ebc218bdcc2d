"""Groups of lookups equal TensorFlow's separate lookups, for all kinds of tables and layouts."""

import numpy as np
import pytest
import tensorflow as tf

import harness
import sparse_operation_kit as sok
from same_length import zip_equal
from sparse_operation_kit.lookup import group

pytestmark = pytest.mark.cases_on_gpu(2)
session = harness.session

VOCABULARY = 40
BAGS = 12
DIMS = {"user": 3, "item": 16, "tag": 1}


class Model:
    """Tables and tf.Variables with the same rows, and the same lookups in both."""

    def __init__(self, session, seed=0):
        self.session = session
        self.rng = np.random.default_rng(seed)
        drawn = self.rng.integers(-(2**63), 2**63 - 1, VOCABULARY - len(harness.HOSTILE_KEYS), dtype=np.int64)
        self.keys = np.concatenate([harness.HOSTILE_KEYS, drawn])
        self.tables = {
            name: sok.EmbeddingVariable(name=name, dim=dim, initializer="random_normal")
            for name, dim in DIMS.items()
        }
        self.plain = {
            name: tf.Variable(np.zeros([VOCABULARY, dim], np.float32), name=f"plain_{name}")
            for name, dim in DIMS.items()
        }
        self.initial = {name: tf.nn.embedding_lookup(table, self.keys) for name, table in self.tables.items()}
        self.lookups = []
        self.wanted = []
        self.weights = []

    def positions(self, count):
        return np.minimum(self.rng.zipf(1.3, count), VOCABULARY) - 1

    def weights_of(self, weighted, count):
        if not weighted:
            return None
        self.weights.append(tf.constant(self.rng.uniform(-1.0, 2.0, count).astype(np.float32)))
        return self.weights[-1]

    def dense(self, name, shape):
        positions = self.positions(int(np.prod(shape))).reshape(shape)
        self.lookups.append(group.DenseLookup(self.tables[name], tf.constant(self.keys[positions])))
        self.wanted.append(tf.gather(self.plain[name], positions))

    def sparse(self, name, combiner, count, weighted=False, slots=0, shuffled=False):
        positions = self.positions(count)
        row_ids = np.sort(self.rng.integers(0, BAGS, count))
        weights = self.weights_of(weighted, count)
        self.wanted.append(self.combined(name, positions, row_ids, combiner, weights, slots))
        order = self.rng.permutation(count) if shuffled else np.arange(count)
        columns = self.rng.integers(0, 100, count)
        indices = np.stack([row_ids, columns], axis=1).reshape(-1, 2)[order].astype(np.int64)
        ids = tf.SparseTensor(indices, self.keys[positions][order], [BAGS, 100])
        given = None if weights is None else tf.gather(weights, order)
        self.lookups.append(group.SparseLookup(self.tables[name], ids, combiner, given, slots))

    def ragged(self, name, combiner, count, weighted=False, split_dtype=tf.int64):
        positions = self.positions(count)
        row_ids = np.sort(self.rng.integers(0, BAGS, count))
        weights = self.weights_of(weighted, count)
        self.wanted.append(self.combined(name, positions, row_ids, combiner, weights, 0))
        splits = np.searchsorted(row_ids, np.arange(BAGS + 1))
        ids = tf.RaggedTensor.from_row_splits(self.keys[positions], tf.constant(splits, split_dtype))
        self.lookups.append(group.RaggedLookup(self.tables[name], ids, combiner, weights))

    def combined(self, name, positions, row_ids, combiner, weights, slots):
        """The combined rows from segment sums, which works for empty bags and weights of any sign."""
        factors = tf.ones([len(positions)]) if weights is None else weights
        rows = tf.gather(self.plain[name], positions) * factors[:, None]
        total = tf.math.unsorted_segment_sum(rows, row_ids, BAGS)
        if combiner != "sum":
            terms = factors if combiner == "mean" else tf.square(factors)
            divisor = tf.math.unsorted_segment_sum(terms, row_ids, BAGS)
            divisor = divisor if combiner == "mean" else tf.sqrt(divisor)
            total = tf.math.divide_no_nan(total, divisor[:, None])
        return tf.reshape(total, [-1, slots, DIMS[name]]) if slots else total

    def compare(self):
        outputs = group.lookup_group(self.lookups)
        assert [output.shape.as_list() for output in outputs] == [
            want.shape.as_list() for want in self.wanted
        ]
        losses = [
            tf.add_n([tf.reduce_sum(tf.sin(output * (i + 1.0))) for i, output in enumerate(side)])
            for side in (outputs, self.wanted)
        ]
        used = [name for name in DIMS if any(lookup.variable is self.tables[name] for lookup in self.lookups)]
        by_table = tf.gradients(losses[0], [self.tables[name] for name in used])
        by_plain = tf.gradients(losses[1], [self.plain[name] for name in used])
        by_weight = [
            [tf.convert_to_tensor(gradient) for gradient in tf.gradients(loss, self.weights)]
            for loss in losses
            if self.weights
        ]
        harness.initialize(self.session)
        for name, rows in self.session.run(self.initial).items():
            self.plain[name].load(rows, self.session)
        for got, want in zip_equal(*self.session.run([outputs, self.wanted])):
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
        for name, of_table, of_plain in zip_equal(used, by_table, by_plain):
            got = harness.gradient_by_key(self.session, self.tables[name], of_table, self.keys)
            want = self.session.run(tf.convert_to_tensor(of_plain))
            assert_close(got, want)
        if self.weights:
            for got, want in zip_equal(*self.session.run(by_weight)):
                assert_close(got, want)


def assert_close(got, want):
    """Compares with errors relative to the largest entry, because weights of different signs may cancel."""
    np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-4 * np.max(np.abs(want), initial=1.0))


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("combiner", ["sum", "mean", "sqrtn"])
@pytest.mark.parametrize("layout", ["sparse", "unsorted", "ragged"])
def test_one_lookup(session, layout, combiner, weighted):
    model = Model(session)
    if layout == "ragged":
        model.ragged("item", combiner, 50, weighted)
    else:
        model.sparse("item", combiner, 50, weighted, shuffled=layout == "unsorted")
    model.compare()


def test_a_table_more_than_once(session):
    model = Model(session, seed=1)
    model.sparse("item", "sum", 40)
    model.dense("item", (5,))
    model.ragged("user", "mean", 25, weighted=True)
    model.ragged("item", "sqrtn", 30, weighted=True)
    model.sparse("item", "mean", 30, shuffled=True, slots=4)
    model.compare()


@pytest.mark.parametrize("layout", ["dense", "sparse", "ragged"])
def test_a_lookup_without_keys_beside_others(session, layout):
    model = Model(session, seed=2)
    model.sparse("item", "mean", 20)
    if layout == "dense":
        model.dense("item", (0,))
        model.dense("tag", (0, 3))
    else:
        getattr(model, layout)("item", "mean", 0, weighted=True)
        getattr(model, layout)("tag", "sum", 0)
    model.compare()


@pytest.mark.parametrize("split_dtype", [tf.int32, tf.int64])
def test_row_splits_of_either_dtype(session, split_dtype):
    model = Model(session)
    model.ragged("user", "sum", 30, split_dtype=split_dtype)
    model.compare()


def test_zero_divisors_give_zeros(session):
    table = sok.EmbeddingVariable(name="table", dim=2, initializer=1.0)
    ids = tf.RaggedTensor.from_row_splits(tf.constant([1, 2, 3], tf.int64), [0, 2, 3])
    weights = tf.constant([1.5, -1.5, 0.0])
    outputs = [
        group.lookup_group([group.RaggedLookup(table, ids, combiner, weights)])[0]
        for combiner in ("mean", "sqrtn")
    ]
    gradients = [tf.gradients(tf.reduce_sum(output), [table, weights]) for output in outputs]
    harness.initialize(session)
    mean, sqrtn = session.run(outputs)
    np.testing.assert_array_equal(mean, np.zeros([2, 2]))
    np.testing.assert_array_equal(sqrtn, np.zeros([2, 2]))
    for table_gradient, weight_gradient in gradients:
        assert np.all(np.isfinite(session.run(table_gradient.values)))
        assert np.all(np.isfinite(session.run(weight_gradient)))


def test_bad_descriptions_fail_before_the_graph_runs(session):
    table = sok.EmbeddingVariable(name="table", dim=2)
    ids = tf.RaggedTensor.from_row_splits(tf.constant([1], tf.int64), [0, 1])
    with pytest.raises(ValueError, match="at least one"):
        group.lookup_group([])
    with pytest.raises(ValueError, match="table.*max.*sum"):
        group.lookup_group([group.RaggedLookup(table, ids, "max")])
    with pytest.raises(TypeError, match="table.*float64"):
        group.lookup_group([group.RaggedLookup(table, ids, "sum", tf.constant([1.0], tf.float64))])
    with pytest.raises(TypeError, match="table.*int32.*int64"):
        group.lookup_group([group.DenseLookup(table, tf.constant([1], tf.int32))])
