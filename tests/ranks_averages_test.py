"""However a program trains over ranks, each gradient is averaged once, or not at all."""

import functools

import numpy as np
import pytest
import tensorflow as tf

import harness
import ranks
import sparse_operation_kit as sok
from device_of_tests import sized
from same_length import zip_equal
from sparse_operation_kit import compat, deeprec
from sparse_operation_kit import dist_model_parallel as dmp
from sparse_operation_kit.ranks.communicator import communicator

train = tf.compat.v1.train
Distributed = sok.DistributedOptimizer
KERAS = compat.legacy_keras_optimizers()
SIZE = sized(3, 2)

SGD = functools.partial(train.GradientDescentOptimizer, 1.0)


def _said_to_be_averaged(loss, variables, optimizer=None, change=lambda pairs: pairs):
    optimizer = optimizer or SGD()
    pairs = change(optimizer.compute_gradients(loss, variables))
    return optimizer.apply_gradients(pairs, gradients_are_averaged=True)


def _gated(pairs):
    gradients = tf.clip_by_global_norm([gradient for gradient, _ in pairs], 1e6)[0]
    return zip_equal(gradients, [variable for _, variable in pairs])


def _averaged_by_hand(loss, variables):
    import horovod.tensorflow as hvd

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
}
if KERAS:
    AVERAGES["dmp of Keras"] = (
        lambda loss, variables: dmp.DistributedOptimizer(KERAS[0][1].SGD(1.0)).apply_gradients(
            zip_equal(tf.gradients(loss, variables), variables)
        ),
        True,
        True,
    )


def _loss_of_rank(table, dense):
    rows = tf.nn.embedding_lookup(table, tf.constant([5], tf.int64))
    return (tf.reduce_sum(rows) + tf.reduce_sum(dense)) * (1.0 + communicator().rank)


def check_averages():
    """How far a table and a dense variable move in each way to train, during collective training."""
    moved = {}
    for way, (make_step, _, _) in AVERAGES.items():
        with tf.Graph().as_default(), deeprec.CollectiveStrategy().scope():
            with tf.compat.v1.Session(config=harness.session_config()) as session:
                sok.Init(global_batch_size=communicator().size)
                table = sok.EmbeddingVariable("table", dim=1, initializer=0.0)
                dense = tf.compat.v1.get_variable("dense", initializer=[0.0], use_resource=True)
                step = make_step(_loss_of_rank(table, dense), [table, dense])
                rows = tf.nn.embedding_lookup(table, tf.constant([5], tf.int64))
                session.run(tf.compat.v1.global_variables_initializer())
                session.run(step)
                moved[way] = [-float(np.squeeze(value)) for value in session.run([rows, dense])]
    return moved


@pytest.fixture(scope="module")
def launched():
    return ranks.run_checks([check_averages], ranks=SIZE)["check_averages"]


@pytest.mark.parametrize("way", AVERAGES)
def test_gradients_are_averaged_once(launched, way):
    total = sum(range(1, SIZE + 1))
    expected = [total / SIZE if is_averaged else total for is_averaged in AVERAGES[way][1:]]
    for moved in launched:
        np.testing.assert_allclose(moved[way], expected, rtol=1e-6)
