# Tags: versions, old_version
# Not on GPUs: graphs, names and libraries
"""OptimizerScope, split_embedding_variable_from_others, and wrappers of Keras' optimizers."""

import contextlib

import numpy as np
import pytest
import tensorflow as tf

import harness
import sparse_operation_kit as sok
from sparse_operation_kit import compat

session = harness.session


@pytest.mark.parametrize("scopes", [0, 1, 2])
def test_scope_changes_no_result(session, scopes):
    table = sok.EmbeddingVariable(name="table", dim=2, initializer=1.0)
    rows = tf.nn.embedding_lookup(table, [3])
    optimizer = tf.compat.v1.train.GradientDescentOptimizer(0.5)
    pairs = optimizer.compute_gradients(tf.reduce_sum(rows), var_list=[table])
    with contextlib.ExitStack() as entered:
        for variables in ([table], (table,))[:scopes]:
            entered.enter_context(sok.OptimizerScope(variables))
        step = optimizer.apply_gradients(pairs)
    harness.initialize(session)
    session.run(step)
    np.testing.assert_array_equal(session.run(rows), [[0.5, 0.5]])


def test_scope_may_be_entered_again_and_after_an_error(session):
    scope = sok.OptimizerScope([tf.Variable(1.0)])
    with pytest.raises(KeyError), scope:
        raise KeyError("from inside")
    with scope:
        tf.compat.v1.train.GradientDescentOptimizer(0.1)


def test_split_keeps_the_order(session):
    tables = [sok.EmbeddingVariable(name=name, dim=2) for name in ("x", "y")]
    others = [tf.Variable(float(i)) for i in range(3)]
    mixed = [others[2], tables[1], others[0], tables[0], others[1]]
    for variables in (mixed, tuple(mixed)):
        embedding_variables, other_variables = sok.split_embedding_variable_from_others(variables)
        assert isinstance(embedding_variables, list) and isinstance(other_variables, list)
        assert [id(v) for v in embedding_variables] == [id(tables[1]), id(tables[0])]
        assert [id(v) for v in other_variables] == [id(others[2]), id(others[0]), id(others[1])]


def test_split_of_one_kind_only(session):
    table, other = sok.EmbeddingVariable(name="x", dim=2), tf.Variable(1.0)
    assert sok.split_embedding_variable_from_others([]) == ([], [])
    assert len(sok.split_embedding_variable_from_others([table])[0]) == 1
    assert len(sok.split_embedding_variable_from_others((other,))[1]) == 1


@pytest.mark.parametrize("variables", [None, "table", {1, 2}, iter([]), 3])
@pytest.mark.parametrize("function", [sok.OptimizerScope, sok.split_embedding_variable_from_others])
def test_both_take_a_list_or_a_tuple(function, variables):
    with pytest.raises(ValueError, match="list or a tuple"):
        function(variables)


@pytest.mark.parametrize("limit, expected", [("clipnorm", [-0.6, -0.8]), ("clipvalue", [-1.0, -1.0])])
@pytest.mark.parametrize(
    "wrapper",
    [
        lambda optimizer: sok.DistributedOptimizer(optimizer, op="sum"),
        lambda optimizer: sok.tf.keras.mixed_precision.LossScaleOptimizer(optimizer, 2.0),
        lambda optimizer: sok.tf.keras.mixed_precision.LossScaleOptimizer(
            sok.DistributedOptimizer(optimizer, op="sum"), 2.0
        ),
    ],
)
def test_wrapped_keras_optimizers_clip(session, limit, expected, wrapper):
    _, keras_optimizers = compat.legacy_keras_optimizers()[0]
    table = sok.EmbeddingVariable(name="table", dim=2, initializer=0.0)
    dense = tf.Variable([0.0, 0.0], **compat.AS_RESOURCE)
    unused = tf.Variable(0.0, **compat.AS_RESOURCE)
    rows = tf.nn.embedding_lookup(table, [3])
    loss = tf.reduce_sum(rows * [3.0, 4.0]) + tf.reduce_sum(dense * [6.0, 8.0])
    optimizer = wrapper(keras_optimizers.SGD(1.0, **{limit: 1.0}))
    step = optimizer.minimize(loss, var_list=[table, dense, unused])
    harness.initialize(session)
    session.run(step)
    np.testing.assert_allclose(session.run(rows)[0], expected, rtol=1e-6)
    np.testing.assert_allclose(session.run(dense), expected, rtol=1e-6)
