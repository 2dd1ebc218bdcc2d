"""The ops of lookups over ranks, on one rank: they equal the op for one rank, and never crash."""

from __future__ import annotations

import types

import numpy as np
import pytest
import tensorflow as tf

import harness
import sparse_operation_kit as sok
from same_length import zip_equal
from sparse_operation_kit.embeddings import distributed_embedding
from sparse_operation_kit.graphs import graph_ops
from sparse_operation_kit.lookup import group

DIM = 3
BAGS = 7


@pytest.fixture
def as_if_sharded(monkeypatch):
    """Lookups are built as for several ranks; they run on one rank."""
    monkeypatch.setattr(group, "communicator", lambda: types.SimpleNamespace(size=2))


class Batch:
    """Lookups of all kinds in two tables, with ids that depend only on the seed."""

    def __init__(self, seed: int, exchange: str = "rows") -> None:
        rng = np.random.default_rng(seed)
        lengths = rng.integers(0, 4, BAGS)
        keys = np.where(rng.random(lengths.sum()) < 0.5, 5, harness.zipf_keys(rng, lengths.sum()))
        indices = np.stack([np.repeat(np.arange(BAGS), lengths), np.zeros(lengths.sum(), np.int64)], axis=1)
        order = rng.permutation(len(keys))
        bags = tf.SparseTensor(indices[order], keys[order], [BAGS, 1])
        self.weights = tf.constant(rng.uniform(0.5, 2, len(keys)), tf.float32)
        self.tables = [sok.EmbeddingVariable(f"{name}_{seed}", DIM) for name in ("users", "items")]
        users, items = self.tables
        if exchange == "sums":
            self.lookups = [group.SparseLookup(users, bags, "mean", exchange="sums")]
        else:
            ragged = tf.RaggedTensor.from_row_lengths(tf.constant(keys), lengths)
            self.lookups = [
                group.SparseLookup(users, bags, "mean", self.weights),
                group.RaggedLookup(items, ragged, "sqrtn"),
                group.DenseLookup(users, tf.constant(keys)),
            ]

    def values(self, session: tf.compat.v1.Session, training: bool) -> list[np.ndarray]:
        """Outputs, gradients of the tables and of the weights, and outputs after a step."""
        outputs = group.lookup_group(self.lookups, training)
        loss = tf.add_n([tf.reduce_sum(tf.square(output)) for output in outputs])
        tables = [table for table in self.tables if any(lookup.variable is table for lookup in self.lookups)]
        gradients = tf.gradients(loss, [*tables, self.weights])
        step = tf.compat.v1.train.AdagradOptimizer(0.1).minimize(loss, var_list=tables)
        harness.initialize(session)
        # Row numbers differ between both, so the sums of rows are compared.
        sums = [
            tf.reduce_sum(gradient.values, axis=0) if isinstance(gradient, tf.IndexedSlices) else gradient
            for gradient in gradients
            if gradient is not None
        ]
        values = session.run([*outputs, *sums])
        session.run(step)
        return [*values, *session.run(outputs)]


def _values(training: bool, exchange: str) -> list[np.ndarray]:
    with harness.graph_and_session() as session:
        return Batch(3, exchange).values(session, training)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("exchange", ["rows", "sums"])
def test_sharded_ops_give_what_the_one_op_gives(training, exchange, request):
    expected = _values(training, exchange)
    request.getfixturevalue("as_if_sharded")
    actual = _values(training, exchange)
    assert len(actual) == len(expected)
    for a, b in zip_equal(actual, expected):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def _exchange_of(layer: sok.DistributedEmbedding) -> bytes:
    """The `exchange` attribute of the ops of the layer's lookup."""
    layer(tf.SparseTensor([[0, 0]], tf.constant([1], tf.int64), [2, 1]))
    (route,) = [op for op in tf.compat.v1.get_default_graph().get_operations() if op.type == "SokGroupRoute"]
    (exchange,) = route.get_attr("exchange")
    return exchange


@pytest.mark.parametrize(
    ("ranks", "max_nnz", "argument", "exchange"),
    [
        (2, 15, None, b"rows"),
        (2, 16, None, b"sums"),
        (3, 16, None, b"rows"),
        (3, 24, None, b"sums"),
        (2, 1, "sums", b"sums"),
        (2, 1000, "rows", b"rows"),
    ],
)
def test_long_bags_are_exchanged_as_sums(ranks, max_nnz, argument, exchange, as_if_sharded, monkeypatch):
    monkeypatch.setattr(distributed_embedding, "communicator", lambda: types.SimpleNamespace(size=ranks))
    with tf.Graph().as_default():
        layer = sok.DistributedEmbedding("sum", 10, DIM, 1, max_nnz, exchange=argument)
        assert _exchange_of(layer) == exchange


@pytest.mark.parametrize("exchange", ["row", "", 3, b"rows"])
def test_another_way_of_exchange_is_refused(exchange):
    with tf.Graph().as_default(), pytest.raises(ValueError, match=f"'rows' or 'sums', not {exchange!r}"):
        sok.DistributedEmbedding("sum", 10, DIM, 1, 1, exchange=exchange)


def test_a_bad_batch_is_an_error_that_names_the_variable_and_leaves_the_table(as_if_sharded):
    with harness.graph_and_session() as session:
        table = sok.EmbeddingVariable("users", DIM)
        row = tf.compat.v1.placeholder(tf.int64, [])
        bags = tf.SparseTensor([[0, 0], [row, 0]], tf.constant([1, 2], tf.int64), [2, 1])
        (output,) = group.lookup_group([group.SparseLookup(table, bags, "sum")])
        harness.initialize(session)
        with pytest.raises(tf.errors.InvalidArgumentError, match="'users': index 1 .* row 7 of 2"):
            session.run(output, {row: 7})
        assert session.run(table.size()) == 0
        assert session.run(output, {row: 1}).shape == (2, DIM)


def test_gradients_are_exchanged_only_after_the_lookup_has_succeeded(as_if_sharded):
    # Gradients of sums do not depend on what the lookup returns.
    with tf.Graph().as_default() as graph:
        batch = Batch(4)
        outputs = group.lookup_group(batch.lookups)
        tf.gradients([tf.reduce_sum(output) for output in outputs], batch.tables)
        (combine,) = [op for op in graph.get_operations() if op.type == graph_ops.GROUP_COMBINE]
        (reduce,) = [op for op in graph.get_operations() if op.type == graph_ops.GROUP_REDUCE]
        assert combine in reduce.control_inputs
