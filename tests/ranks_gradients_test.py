"""Gradients over ranks: each is averaged once or not at all, and a tape gives those of tf.gradients."""

import functools

import horovod.tensorflow as hvd
import numpy as np
import pytest
import tensorflow as tf

import harness
import ranks
import sparse_operation_kit as sok
from same_length import zip_equal
from sparse_operation_kit import compat, deeprec
from sparse_operation_kit import dist_model_parallel as dmp
from sparse_operation_kit.ranks.communicator import communicator

train = tf.compat.v1.train
Distributed = sok.DistributedOptimizer
legacy = compat.legacy_keras_optimizers()[0][1]

SGD = functools.partial(train.GradientDescentOptimizer, 1.0)


def _said_to_be_averaged(loss, variables, optimizer=None, change=lambda pairs: pairs):
    optimizer = optimizer or SGD()
    pairs = change(optimizer.compute_gradients(loss, variables))
    return optimizer.apply_gradients(pairs, gradients_are_averaged=True)


def _gated(pairs):
    gradients = tf.clip_by_global_norm([gradient for gradient, _ in pairs], 1e6)[0]
    return zip_equal(gradients, [variable for _, variable in pairs])


def _averaged_by_hand(loss, variables):
    SGD().compute_gradients(loss, variables)  # of another loss, say
    of_table, of_dense = tf.gradients(loss, variables)
    pairs = [(of_table, variables[0]), (hvd.allreduce(of_dense, op=hvd.Average), variables[1])]
    return SGD().apply_gradients(pairs, gradients_are_averaged=True)


def _by_tape(loss, variables):
    del loss
    with dmp.DistributedGradientTape(tf.GradientTape()) as tape:
        loss = _loss_of_rank(*variables)
    pairs = zip_equal(tape.gradient(loss, variables), variables)
    return SGD().apply_gradients(pairs, gradients_are_averaged=True)


# Ways to train, and which of a table's and a dense variable's gradients are averaged.
AVERAGES = {
    "minimize": (lambda loss, variables: SGD().minimize(loss, var_list=variables), True, True),
    "computed, and said to be averaged": (_said_to_be_averaged, True, True),
    "clipped, and said to be averaged": (
        lambda loss, variables: _said_to_be_averaged(loss, variables, change=_gated),
        True,
        True,
    ),
    "averaged by hand": (_averaged_by_hand, True, True),
    "sum": (
        lambda loss, variables: Distributed(SGD(), op="sum").minimize(loss, var_list=variables),
        False,
        False,
    ),
    "average": (
        lambda loss, variables: Distributed(SGD(), op="average").minimize(loss, var_list=variables),
        False,
        True,
    ),
    "dmp": (
        lambda loss, variables: dmp.DistributedOptimizer(SGD()).minimize(loss, var_list=variables),
        True,
        True,
    ),
    "dmp, sums": (
        lambda loss, variables: dmp.DistributedOptimizer(SGD(), op="sum").minimize(loss, var_list=variables),
        False,
        False,
    ),
    "tape": (_by_tape, True, True),
    "dmp of Keras": (
        lambda loss, variables: dmp.DistributedOptimizer(legacy.SGD(1.0)).apply_gradients(
            zip_equal(tf.gradients(loss, variables), variables)
        ),
        True,
        True,
    ),
}


def _loss_of_rank(table, dense):
    rows = tf.nn.embedding_lookup(table, tf.constant([5], tf.int64))
    return (tf.reduce_sum(rows) + tf.reduce_sum(dense)) * (1.0 + communicator().rank)


def check_averages():
    """How far a table and a dense variable move in each way to train, during collective training."""
    size = communicator().size
    total = sum(range(1, size + 1))
    for way, (make_step, *averaged) in AVERAGES.items():
        with deeprec.CollectiveStrategy().scope(), harness.graph_and_session() as session:
            table = sok.EmbeddingVariable("table", dim=1, initializer=0.0)
            dense = tf.compat.v1.get_variable("dense", initializer=[0.0], use_resource=True)
            step = make_step(_loss_of_rank(table, dense), [table, dense])
            rows = tf.nn.embedding_lookup(table, tf.constant([5], tf.int64))
            harness.initialize(session)
            session.run(step)
            moved = [-float(np.squeeze(value)) for value in session.run([rows, dense])]
            expected = [total / size if is_averaged else total for is_averaged in averaged]
            np.testing.assert_allclose(moved, expected, rtol=1e-6, err_msg=way)


# ---- tf.GradientTape. ----

STEPS = 5


def _keys(step, rank):
    return np.random.default_rng([step, rank]).integers(-6, 6, 4 * (rank + step) % 11)


def _update_ops():
    operations = tf.compat.v1.get_default_graph().get_operations()
    return sorted(
        op.type for op in operations if op.type in ("SokApplyGradients", "SokGroupSumApplyGradients")
    )


def _gradients(how, loss_of, keys, variables):
    """The gradients of the loss, computed in one of several ways."""
    if how == "tf.gradients":
        return tf.gradients(loss_of(keys), variables)
    if how == "around a function":
        loss_of = tf.function(loss_of)

    def taped(keys):
        with tf.GradientTape() as tape:
            loss = loss_of(keys)
        return tape.gradient(loss, variables)

    return (tf.function(taped) if how == "in a function" else taped)(keys)


def _train(how, optimizer):
    """Trains some steps; returns (rows that this rank reads, its dense variable, update ops)."""
    known = communicator()
    with harness.graph_and_session() as session:
        tables = [sok.EmbeddingVariable(f"table{i}", dim=dim) for i, dim in enumerate((3, 2))]
        kernel = tf.Variable(np.linspace(-1, 1, 5).astype(np.float32), **compat.AS_RESOURCE)
        keys = tf.compat.v1.placeholder(tf.int64, [None])

        def loss_of(keys):
            rows = tf.concat(sok.group_embedding_lookup(tables, [keys, keys * 3]), axis=1)
            return tf.reduce_sum(tf.square(rows * kernel - 0.5)) / known.size

        variables = [*tables, kernel]
        gradients = _gradients(how, loss_of, keys, variables)
        trainer = sok.DistributedOptimizer(optimizer(0.1), op="sum")
        pairs = trainer.combine_gradients(zip_equal(gradients, variables))
        step = trainer.apply_gradients(pairs)
        ops = _update_ops()
        read = sok.group_embedding_lookup(tables, [tf.range(-20, 20, dtype=tf.int64)] * 2, training=False)
        harness.initialize(session)
        session.run(sok.broadcast_global_variables(0))
        for i in range(STEPS):
            session.run(step, {keys: _keys(i, known.rank)})
        return session.run(read), session.run(kernel), ops


# By number of ranks, the optimizer, and the ways to compute its gradients.
TRAINED = {
    2: (sok.optimizers.Adam, ("tf.gradients", "in a function")),
    3: (train.GradientDescentOptimizer, ("tf.gradients", "tape", "in a function", "around a function")),
}


def check_tapes():
    optimizer, ways = TRAINED[communicator().size]
    of_ways = {how: _train(how, optimizer) for how in ways}
    wanted_rows, wanted_kernel, _ = of_ways["tf.gradients"]
    for how, (rows, kernel, ops) in of_ways.items():
        harness.assert_equal_arrays([*rows, kernel], [*wanted_rows, wanted_kernel], err_msg=how)
        in_function = how.endswith("a function")
        assert ops == (["SokApplyGradients"] * 2 if in_function else ["SokGroupSumApplyGradients"])


def check_local_sources_of_horovods_tape():
    """Horovod's tape does not sum gradients of local sources, but divides them by the number of ranks."""
    with harness.graph_and_session() as session:
        table = sok.EmbeddingVariable("table", dim=2, initializer=4.0)
        kernel = tf.Variable([1.0, 1.0], **compat.AS_RESOURCE)
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.nn.embedding_lookup(table, [7]) * kernel)
        tape = hvd.DistributedGradientTape(tape)
        tape.register_local_source(table)
        pairs = zip_equal(tape.gradient(loss, [table, kernel]), [table, kernel])
        step = train.GradientDescentOptimizer(1.0).apply_gradients(pairs)
        read = sok.group_embedding_lookup([table], [[7]], training=False)[0]
        harness.initialize(session)
        session.run(step)
        np.testing.assert_array_equal(session.run(read), [[3, 3]])
        np.testing.assert_array_equal(session.run(kernel), [-3, -3])


CHECKS = [value for name, value in list(globals().items()) if name.startswith("check_")]


@pytest.mark.parametrize("size", TRAINED)
def test_on_ranks(size):
    """The output names the check that failed."""
    ranks.run_checks(CHECKS, ranks=size)
