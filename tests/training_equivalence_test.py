"""A model with layers trains like the same model with tf.Variables and TensorFlow's ops, with any threads."""

import numpy as np
import pytest
import tensorflow as tf

import harness
import sparse_operation_kit as sok
from device_of_tests import cpu_only
from same_length import zip_equal

pytestmark = pytest.mark.cases_on_gpu(2)
session = harness.session

STEPS = 50
VOCABULARY = 200
BATCH = 32
SLOTS = 3
MAX_NNZ = 4
NNZ = 2
v1 = tf.compat.v1

OPTIMIZERS = {
    "sgd": lambda: v1.train.GradientDescentOptimizer(0.5),
    "adagrad": lambda: v1.train.AdagradOptimizer(0.1),
}


class Model:
    """Two layers, one of them pooled, under a dense layer."""

    def __init__(self, optimizer, combiner, dim=8):
        self.keys = np.random.default_rng(7).integers(-(2**63), 2**63 - 1, VOCABULARY, dtype=np.int64)
        self.dim, self.combiner, self.optimizer = dim, combiner, optimizer
        self.bags = v1.sparse_placeholder(tf.int64)
        self.fields = v1.placeholder(tf.int64, [None, SLOTS, NNZ])
        self.labels = v1.placeholder(tf.float32, [None])
        drawn = {"embedding_initializer": "random_normal"}
        pooled = sok.DistributedEmbedding(combiner, 1000, dim, SLOTS, MAX_NNZ, **drawn)
        plain = sok.All2AllDenseEmbedding(1000, dim, SLOTS, NNZ, **drawn)
        keys = tf.constant(self.keys)
        ids = tf.SparseTensor(self.bags.indices, tf.gather(keys, self.bags.values), self.bags.dense_shape)
        outputs = [pooled(ids), plain(tf.gather(keys, self.fields))]
        self.tables = [pooled.embedding_variable, plain.embedding_variable]
        self.rows = [tf.nn.embedding_lookup(table, self.keys) for table in self.tables]
        self.loss, self.step = self.finish(outputs)

    def finish(self, outputs):
        flat = [tf.reshape(output, [tf.shape(self.labels)[0], -1]) for output in outputs]
        width = SLOTS * self.dim * (1 + NNZ)
        start = np.random.default_rng(8).standard_normal([width, 1]).astype(np.float32) * 0.1
        kernel = tf.Variable(start)
        logits = tf.matmul(tf.concat(flat, axis=1), kernel)[:, 0]
        loss = tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=self.labels, logits=logits))
        return loss, OPTIMIZERS[self.optimizer]().minimize(loss, var_list=[*self.tables, kernel])

    def feed(self, rng):
        taken = np.argwhere(rng.random([BATCH * SLOTS, MAX_NNZ]) < 0.6).astype(np.int64)
        skewed = np.minimum(rng.zipf(1.3, len(taken)), VOCABULARY) - 1
        fields = rng.integers(0, VOCABULARY, [BATCH, SLOTS, NNZ])
        return {
            self.bags: v1.SparseTensorValue(taken, skewed, [BATCH * SLOTS, MAX_NNZ]),
            self.fields: fields,
            self.labels: rng.integers(0, 2, BATCH).astype(np.float32),
        }


class PlainTwin(Model):
    """The same model on tf.Variables, with the inputs of a Model."""

    def __init__(self, model):
        self.dim, self.optimizer, self.labels = model.dim, model.optimizer, model.labels
        self.tables = [tf.Variable(np.zeros([VOCABULARY, self.dim], np.float32)) for _ in model.tables]
        pooled = tf.nn.safe_embedding_lookup_sparse(self.tables[0], model.bags, combiner=model.combiner)
        rows = tf.shape(self.labels)[0] * SLOTS
        # TensorFlow drops empty rows at the end.
        pooled = tf.pad(pooled, [[0, rows - tf.shape(pooled)[0]], [0, 0]])
        self.loss, self.step = self.finish([pooled, tf.nn.embedding_lookup(self.tables[1], model.fields)])


@pytest.mark.parametrize("combiner", ["sum", "mean"])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_fifty_steps_are_those_of_dense_variables(session, optimizer, combiner):
    model = Model(optimizer, combiner)
    twin = PlainTwin(model)
    harness.initialize(session)
    for variable, rows in zip_equal(twin.tables, session.run(model.rows)):
        variable.load(rows, session)
    rng = np.random.default_rng(9)
    for _ in range(STEPS):
        got, want, _, _ = session.run([model.loss, twin.loss, model.step, twin.step], model.feed(rng))
        np.testing.assert_allclose(got, want, rtol=1e-5)
    for got, want in zip_equal(session.run(model.rows), session.run(twin.tables)):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5 * np.abs(want).max())


@cpu_only("threads are the CPU engine's")
def test_large_batches_repeat_bit_for_bit_with_any_number_of_threads():
    """Batches are so large that every parallel loop is split."""
    keys = harness.zipf_keys(np.random.default_rng(3), 60_000, vocabulary=20_000)
    splits = np.unique(np.random.default_rng(4).integers(0, len(keys), 5000))
    splits = np.concatenate([[0], splits, [len(keys)]])
    results = []
    for threads in (1, 2, 3, 4):
        with harness.graph_and_session(threads) as session:
            table = sok.EmbeddingVariable(name="table", dim=17)
            row_ids = np.repeat(np.arange(len(splits) - 1), np.diff(splits))
            ids = tf.SparseTensor(
                np.stack([row_ids, np.arange(len(keys))], 1), keys, [len(splits) - 1, len(keys)]
            )
            pooled = sok.lookup.group.lookup_group([sok.lookup.group.SparseLookup(table, ids, "mean")])[0]
            step = v1.train.AdagradOptimizer(0.1).minimize(tf.reduce_sum(tf.square(pooled)))
            harness.initialize(session)
            first = session.run([pooled, step])[0]
            session.run(step)
            stored_keys, rows = harness.table_contents(session, table)
            results.append((first, stored_keys, rows))
    for other in results[1:]:
        for got, want in zip_equal(other, results[0]):
            np.testing.assert_array_equal(got, want)
