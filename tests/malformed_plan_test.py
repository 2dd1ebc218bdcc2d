"""The plan that a lookup passes to its gradient op: one that does not fit is an error, never a crash."""

import pytest
import tensorflow as tf

import harness
import sparse_operation_kit as sok
from sparse_operation_kit import native
from sparse_operation_kit.lookup import group

DIM = 2
NAME = "sound_table"


def weighted_lookup(table, ids, weights):
    """(plan, output) of a weighted lookup of one bag."""
    result = native.ops.sok_group_lookup(
        handles=[table.handle],
        ids=[tf.constant(ids, tf.int64)],
        bags=[tf.constant([0, len(ids)], tf.int64)],
        dense_shapes=[],
        weights=[tf.constant(weights, tf.float32)],
        training=True,
        num_outputs=1,
        dims=[table.dim],
        table_of=[0],
        layouts=["ragged"],
        combiners=["sum"],
        weighted=[True],
        slots=[0],
    )
    return result.plan, result.outputs[0]


def gradient_op(table, plan, gradients, weighted=(True,), num_weights=1):
    return native.ops.sok_group_lookup_grad(
        handles=[table.handle],
        plan=plan,
        gradients=gradients,
        num_weights=num_weights,
        dims=[table.dim],
        weighted=list(weighted),
    )


def test_kept_words_of_something_else():
    with harness.graph_and_session() as session:
        plan, _ = weighted_lookup(sok.EmbeddingVariable(name=NAME, dim=DIM), [1], [1.0])
        kept = native.ops.sok_kept_words(plan)
        harness.initialize(session)
        with pytest.raises(tf.errors.InvalidArgumentError, match="no output of SokKeepWords"):
            session.run(kept)


@pytest.mark.parametrize(
    "gradients",
    [
        lambda: [tf.ones([2, DIM])],
        lambda: [tf.ones([1, DIM + 1])],
        lambda: [tf.ones([0, DIM])],
        lambda: [tf.ones([])],
        lambda: [tf.ones([1, DIM]), tf.ones([1, DIM])],
    ],
)
def test_gradients_that_do_not_fit_their_lookup(gradients):
    with harness.graph_and_session() as session:
        table = sok.EmbeddingVariable(name=NAME, dim=DIM)
        plan, _ = weighted_lookup(table, [1, 2], [1.0, 1.0])
        given = gradients()
        result = gradient_op(table, plan, given, weighted=[True] * len(given), num_weights=len(given))
        harness.initialize(session)
        with pytest.raises(tf.errors.InvalidArgumentError, match="do not fit"):
            session.run(result.values)


@pytest.mark.parametrize(
    "plan",
    [
        lambda: tf.raw_ops.EmptyTensorList(element_shape=-1, max_num_elements=3, element_dtype=tf.int64),
        lambda: harness.empty_tensor(tf.variant),
    ],
)
def test_an_invalid_plan(plan):
    with harness.graph_and_session() as session:
        table = sok.EmbeddingVariable(name=NAME, dim=DIM)
        result = gradient_op(table, plan(), [tf.ones([1, DIM])])
        harness.initialize(session)
        with pytest.raises(tf.errors.InvalidArgumentError, match="plan"):
            session.run(result.values)


def test_the_plan_of_a_lookup_without_weights():
    with harness.graph_and_session() as session:
        table = sok.EmbeddingVariable(name=NAME, dim=DIM)
        rows = table.sparse_read(tf.constant([1, 2], tf.int64))
        result = gradient_op(table, rows.op.outputs[-1], [tf.ones([2, DIM])])
        harness.initialize(session)
        with pytest.raises(tf.errors.InvalidArgumentError, match="do not fit"):
            session.run([result.values, result.weight_gradients])


def test_a_number_of_weights_that_does_not_fit():
    with harness.graph_and_session() as session:
        table = sok.EmbeddingVariable(name=NAME, dim=DIM)
        plan, _ = weighted_lookup(table, [1, 2], [1.0, 1.0])
        result = gradient_op(table, plan, [tf.ones([1, DIM])], weighted=[True], num_weights=0)
        harness.initialize(session)
        with pytest.raises(tf.errors.InvalidArgumentError, match="weight"):
            session.run(result.values)


def test_the_plan_of_a_lookup_in_a_wider_table():
    with harness.graph_and_session() as session:
        wide = sok.EmbeddingVariable(name=NAME, dim=1024)
        plan, _ = weighted_lookup(wide, [1, 2], [1.0, 1.0])
        narrow = native.ops.sok_group_lookup_grad(
            handles=[wide.handle],
            plan=plan,
            gradients=[tf.ones([1, DIM])],
            num_weights=1,
            dims=[DIM],
            weighted=[True],
        )
        harness.initialize(session)
        with pytest.raises(tf.errors.InvalidArgumentError, match=f"{NAME}.*1024.*{DIM}"):
            session.run([narrow.values, narrow.weight_gradients])


def test_the_plan_of_a_lookup_in_a_larger_table():
    """The plan has row numbers that the table does not have."""
    with harness.graph_and_session() as session:
        large = sok.EmbeddingVariable(name="large_table", dim=DIM)
        small = sok.EmbeddingVariable(name=NAME, dim=DIM)
        plan, _ = weighted_lookup(large, list(range(5000)), [1.0] * 5000)
        result = gradient_op(small, plan, [tf.ones([1, DIM])])
        harness.initialize(session)
        with pytest.raises(tf.errors.InvalidArgumentError, match=NAME):
            session.run([result.values, result.weight_gradients])
        assert session.run(small.size()) == 0


def test_a_gradient_after_the_table_was_made_anew():
    """The rows that the lookup read are gone. In any order of ops, nothing is read beyond the table."""
    with harness.graph_and_session() as session:
        table = sok.EmbeddingVariable(name=NAME, dim=DIM)
        ids = tf.range(3000, dtype=tf.int64)
        splits = tf.constant([0, 3000], tf.int64)
        weights = tf.ones([3000])
        lookup = group.RaggedLookup(table, tf.RaggedTensor.from_row_splits(ids, splits), "sum", weights)
        output = group.lookup_group([lookup])[0]
        with tf.control_dependencies([output]):
            anew = native.ops.sok_initialize_table(table.handle, [], dim=DIM)
        with tf.control_dependencies([anew]):
            late = tf.identity(tf.ones([1, DIM]))
        gradients = tf.gradients(output, [table, weights], grad_ys=late)
        step = tf.compat.v1.train.GradientDescentOptimizer(1.0).apply_gradients([(gradients[0], table)])
        harness.initialize(session)
        with pytest.raises(tf.errors.InvalidArgumentError, match=NAME):
            session.run(gradients[1])
        with pytest.raises(tf.errors.InvalidArgumentError, match=NAME):
            session.run(step)
        assert session.run(table.size()) == 0
