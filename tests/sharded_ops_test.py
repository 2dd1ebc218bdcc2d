"""The ops of lookups over ranks, on one rank: how they exchange, what they wait for, and bad batches."""

from __future__ import annotations

import types

import pytest
import tensorflow as tf

import harness
import sparse_operation_kit as sok
from sparse_operation_kit.embeddings import distributed_embedding
from sparse_operation_kit.graphs import graph_ops
from sparse_operation_kit.lookup import group

DIM = 3


@pytest.fixture
def as_if_sharded(monkeypatch):
    """Lookups are built as for several ranks; they run on one rank."""
    monkeypatch.setattr(group, "communicator", lambda: types.SimpleNamespace(size=2))


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
        tables = [sok.EmbeddingVariable(name, DIM) for name in ("users", "items")]
        ids = tf.constant([1, 2, 1], tf.int64)
        outputs = group.lookup_group([group.DenseLookup(table, ids) for table in tables])
        tf.gradients([tf.reduce_sum(output) for output in outputs], tables)
        (combine,) = [op for op in graph.get_operations() if op.type == graph_ops.GROUP_COMBINE]
        (reduce,) = [op for op in graph.get_operations() if op.type == graph_ops.GROUP_REDUCE]
        assert combine in reduce.control_inputs
