"""tf.GradientTape over ranks: the gradients of tables and the trained rows equal those of tf.gradients."""

import horovod.tensorflow as hvd
import numpy as np
import pytest
import tensorflow as tf

import harness
import ranks
import sparse_operation_kit as sok
from same_length import zip_equal
from sparse_operation_kit import compat
from sparse_operation_kit.ranks.communicator import communicator

train = tf.compat.v1.train
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
    with tf.Graph().as_default(), tf.compat.v1.Session(config=harness.session_config()) as session:
        session.run(sok.Init(global_batch_size=known.size, seed=1))
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
        session.run(tf.compat.v1.global_variables_initializer())
        session.run(sok.broadcast_global_variables(0))
        for i in range(STEPS):
            session.run(step, {keys: _keys(i, known.rank)})
        return session.run(read), session.run(kernel), ops


# By number of ranks, the optimizer, and the ways to compute its gradients.
TRAINED = {
    2: (sok.optimizers.Adam, ("tf.gradients", "in a function")),
    3: (train.GradientDescentOptimizer, ("tf.gradients", "tape", "in a function", "around a function")),
}


def check_training():
    optimizer, ways = TRAINED[communicator().size]
    return {how: _train(how, optimizer) for how in ways}


def check_local_sources_of_horovods_tape():
    """Horovod's tape does not sum gradients of local sources, but divides them by the number of ranks."""
    with tf.Graph().as_default(), tf.compat.v1.Session(config=harness.session_config()) as session:
        session.run(sok.Init(global_batch_size=hvd.size(), seed=1))
        table = sok.EmbeddingVariable("table", dim=2, initializer=4.0)
        kernel = tf.Variable([1.0, 1.0], **compat.AS_RESOURCE)
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.nn.embedding_lookup(table, [7]) * kernel)
        tape = hvd.DistributedGradientTape(tape)
        tape.register_local_source(table)
        pairs = zip_equal(tape.gradient(loss, [table, kernel]), [table, kernel])
        step = train.GradientDescentOptimizer(1.0).apply_gradients(pairs)
        read = sok.group_embedding_lookup([table], [[7]], training=False)[0]
        session.run(tf.compat.v1.global_variables_initializer())
        session.run(step)
        return session.run([read, kernel])


def check_horovods_tape_is_refused():
    with tf.Graph().as_default():
        sok.Init(global_batch_size=hvd.size(), seed=1)
        table = sok.EmbeddingVariable("table", dim=2)
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.nn.embedding_lookup(table, [7]))
        gradients = hvd.DistributedGradientTape(tape).gradient(loss, [table])
        with pytest.raises(ValueError, match="went through Horovod's allreduce"):
            train.GradientDescentOptimizer(1.0).apply_gradients(zip_equal(gradients, [table]))


CHECKS = [value for name, value in list(globals().items()) if name.startswith("check_")]


@pytest.fixture(scope="module", params=list(TRAINED))
def results(request):
    return request.param, ranks.run_checks(CHECKS, ranks=request.param)


def test_training(results):
    for of_rank in results[1]["check_training"]:
        for how, (rows, kernel, ops) in of_rank.items():
            wanted_rows, wanted_kernel, _ = of_rank["tf.gradients"]
            for got, want in zip_equal([*rows, kernel], [*wanted_rows, wanted_kernel]):
                np.testing.assert_array_equal(got, want, err_msg=how)
            in_function = how.endswith("a function")
            assert ops == (["SokApplyGradients"] * 2 if in_function else ["SokGroupSumApplyGradients"])


def test_local_sources_of_horovods_tape(results):
    for rows, kernel in results[1]["check_local_sources_of_horovods_tape"]:
        np.testing.assert_array_equal(rows, [[3, 3]])
        np.testing.assert_array_equal(kernel, [-3, -3])


def test_horovods_tape_is_refused(results):
    assert results[1]["check_horovods_tape_is_refused"] == [None] * results[0]
