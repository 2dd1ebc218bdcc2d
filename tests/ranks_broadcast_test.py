"""Broadcasting ordinary variables over ranks, with an op and with a hook."""

import numpy as np
import pytest
import tensorflow as tf

import ranks
import sparse_operation_kit as sok
from sparse_operation_kit import compat
from sparse_operation_kit.ranks.communicator import communicator

SIZE = 3


def _own_value():
    return 10.0 + communicator().rank


def _variables():
    """Variables of several kinds and dtypes whose values depend on the rank."""
    own = _own_value()
    with tf.compat.v1.variable_scope("scope"):
        resource = tf.compat.v1.get_variable("resource", initializer=[own, -own], use_resource=True)
        reference = tf.compat.v1.get_variable("reference", initializer=own, use_resource=False)
    # TensorFlow 1.15 has no kernels for variables of uint64.
    unsigned = [tf.uint64] if compat.IS_TENSORFLOW_2 else []
    others = [
        tf.Variable(tf.cast(own, dtype), name=dtype.name)
        for dtype in (tf.int64, tf.bfloat16, tf.bool, *unsigned, tf.float16)
    ]
    return [resource, reference, *others, tf.compat.v1.train.get_or_create_global_step()]


def _values(session, variables):
    return [np.asarray(value, np.float64).tolist() for value in session.run(variables)]


def check_global_variables():
    """The initial values on this rank, and the values after broadcasts from two roots."""
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        session.run(sok.Init(global_batch_size=SIZE, seed=1))
        table = sok.EmbeddingVariable("table", dim=2)
        variables = _variables()
        rows = tf.nn.embedding_lookup(table, [1, 2])
        broadcast = sok.broadcast_global_variables(root_rank=1)
        session.run(tf.compat.v1.global_variables_initializer())
        before = session.run(rows)
        results = [_values(session, variables)]
        session.run(broadcast)
        results.append(_values(session, variables))
        np.testing.assert_array_equal(session.run(rows), before)
        return results


def check_a_tensor_of_uint64():
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        value = tf.constant([2**63 + communicator().rank], tf.uint64)
        return session.run(communicator().broadcast(value, 1, "value")).tolist()


def check_some_variables():
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        first, second = tf.Variable(_own_value()), tf.Variable(_own_value())
        session.run(tf.compat.v1.global_variables_initializer())
        session.run(sok.broadcast_variables([first], root_rank=2))
        return _values(session, [first, second])


def check_hook_with_a_table_that_trains():
    with tf.Graph().as_default():
        sok.Init(global_batch_size=SIZE, seed=1)
        table = sok.EmbeddingVariable("table", dim=2, initializer=1.0)
        variables = _variables()
        rows = tf.nn.embedding_lookup(table, [communicator().rank])
        step = tf.compat.v1.train.AdagradOptimizer(0.1).minimize(tf.reduce_sum(rows), var_list=[table])
        hooks = [sok.BroadcastGlobalVariablesHook(root_rank=2)]
        with tf.compat.v1.train.MonitoredTrainingSession(hooks=hooks) as session:
            values = _values(session, variables)
            session.run(step)
            assert session.run(rows)[0, 0] < 1.0
        return values


def check_what_cannot_be_sent():
    with tf.Graph().as_default():
        words = tf.Variable("word", name="words")
        with pytest.raises(TypeError, match="Variable 'words' of string cannot be sent"):
            sok.broadcast_variables([words])
        with pytest.raises(ValueError, match="Rank 3 is not one of the 3 ranks"):
            sok.broadcast_global_variables(3)


CHECKS = [value for name, value in list(globals().items()) if name.startswith("check_")]


@pytest.fixture(scope="module")
def results():
    return ranks.run_checks(CHECKS, ranks=SIZE)


def test_all_ranks_get_the_values_of_the_root(results):
    before = [own for own, _ in results["check_global_variables"]]
    assert before[0] != before[1] != before[2]
    assert [after for _, after in results["check_global_variables"]] == [before[1]] * SIZE


def test_numbers_beyond_those_of_int64_are_sent(results):
    assert results["check_a_tensor_of_uint64"] == [[2**63 + 1]] * SIZE


def test_other_variables_stay(results):
    assert results["check_some_variables"] == [[12.0, 10.0 + rank] for rank in range(SIZE)]


def test_the_hook_broadcasts_before_the_first_step(results):
    values = results["check_hook_with_a_table_that_trains"]
    assert values == [results["check_global_variables"][2][0]] * SIZE


def test_unsupported_variables_are_an_error(results):
    assert results["check_what_cannot_be_sent"] == [None] * SIZE


def test_one_rank_needs_no_broadcast():
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        variable = tf.Variable(3.0)
        session.run(variable.initializer)
        session.run(sok.broadcast_global_variables())
        assert session.run(variable) == 3.0
        with pytest.raises(ValueError, match="Rank 1"):
            sok.broadcast_global_variables(1)
