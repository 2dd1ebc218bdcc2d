"""sok.Init over ranks, whose arguments must agree, and broadcasts of ordinary variables."""

import numpy as np
import pytest
import tensorflow as tf

import ranks
import sparse_operation_kit as sok
from sparse_operation_kit import compat, native
from sparse_operation_kit.ranks import initialize
from sparse_operation_kit.ranks.communicator import communicator

v1 = tf.compat.v1
SIZE = 3


def _initialized(**kwargs):
    """Runs sok.Init in a process that has not called it yet; returns its value."""
    initialize._reset()
    with tf.Graph().as_default(), v1.Session() as session:
        return session.run(sok.Init(**kwargs))


def check_same_arguments():
    assert _initialized(global_batch_size=6 * SIZE, seed=3, gradient_exchange_dtype=tf.float16) == b"OK"


def check_several_sessions():
    initialize._reset()
    with tf.Graph().as_default():
        both = [sok.Init(global_batch_size=SIZE) for _ in range(2)]
        for _ in range(2):
            with v1.Session() as session:
                assert session.run(both) == [b"OK"] * 2


def check_batch_size_is_no_multiple():
    with tf.Graph().as_default(), pytest.raises(
        ValueError, match="global_batch_size=7 is not a multiple of the 3 ranks"
    ):
        sok.Init(global_batch_size=2 * SIZE + 1)


# Arguments by rank, and what every rank is told.
DISAGREEMENTS = [
    (
        lambda rank: {"global_batch_size": SIZE * (2 if rank == 1 else 1)},
        "rank 0 has global_batch_size=3, rank 1 has global_batch_size=6",
    ),
    (
        lambda rank: {
            "global_batch_size": SIZE,
            "gradient_exchange_dtype": [None, tf.float32, "bfloat16"][rank],
        },
        "rank 0 has gradient_exchange_dtype=float, rank 2 has gradient_exchange_dtype=bfloat16",
    ),
]


def check_every_rank_is_told_who_disagrees():
    for arguments, message in DISAGREEMENTS:
        message = f"sok.Init: the ranks disagree: {message}"
        with pytest.raises(tf.errors.InvalidArgumentError, match=message):
            _initialized(**arguments(communicator().rank))
        # So do initializers, which run Init.
        initialize._reset()
        with tf.Graph().as_default(), v1.Session() as session:
            sok.Init(**arguments(communicator().rank))
            table = sok.EmbeddingVariable("table", dim=2)
            with pytest.raises(tf.errors.InvalidArgumentError, match=message):
                session.run(table.initializer)


def check_rank_0_decides_the_seed():
    initialize._reset()
    rank = communicator().rank
    with tf.Graph().as_default(), v1.Session() as session:
        session.run(sok.Init(global_batch_size=SIZE, seed=[-5, 6, None][rank]))
        # Another Init in the session gets the seed that the first one decided.
        other = native.ops.sok_init([SIZE, 0, tf.float32.as_datatype_enum] * SIZE, rank=rank, ranks=SIZE)
        message = f"rank {rank} of 3, global batch size 3, seed -5,"
        with pytest.raises(tf.errors.FailedPreconditionError, match=message):
            session.run(other)


def _tables():
    initialize._reset()
    status = sok.Init(global_batch_size=SIZE, seed=2)
    tables = [sok.EmbeddingVariable(name=f"table{i}", dim=2, initializer=1.0) for i in range(2)]
    return status, tables, tf.reduce_sum(sok.group_embedding_lookup(tables, [[1, 2]] * 2)[0])


def check_initializers_run_init():
    """In new sessions: initializers alone, together with Init, and again."""
    with tf.Graph().as_default():
        status, _, rows = _tables()
        initializer = v1.global_variables_initializer()
        for fetches in (initializer, [status, initializer]):
            with v1.Session() as session:
                for _ in range(2):
                    session.run(fetches)
                    assert session.run(rows) == 4.0


def check_where_init_has_run_an_initializer_concerns_one_rank():
    with tf.Graph().as_default(), v1.Session() as session:
        status, tables, rows = _tables()
        session.run(v1.global_variables_initializer())
        session.run(rows)
        if communicator().rank == 1:
            session.run([tables[0].initializer, status])
        sizes = session.run([table.size() for table in tables])
        # Of the keys 1 and 2, rank 1 has one and rank 2 the other.
        assert sizes == [[0, 0], [0, 1], [1, 1]][communicator().rank]


def check_a_monitored_session():
    """Every rank is the chief of its own session."""
    with tf.Graph().as_default():
        _, _, rows = _tables()
        v1.train.get_or_create_global_step()
        with v1.train.MonitoredTrainingSession() as session:
            assert session.run(rows) == 4.0


# ---- Broadcasts. ----


# TensorFlow 1.15 has no kernels for variables of uint64.
DTYPES = [tf.int64, tf.bfloat16, tf.bool, *([tf.uint64] if compat.IS_TENSORFLOW_2 else []), tf.float16]


def _variables():
    """Variables of several kinds and dtypes whose values depend on the rank."""
    own = 10.0 + communicator().rank
    with v1.variable_scope("scope"):
        resource = v1.get_variable("resource", initializer=[own, -own], use_resource=True)
        reference = v1.get_variable("reference", initializer=own, use_resource=False)
    others = [tf.Variable(tf.cast(own, dtype), name=dtype.name) for dtype in DTYPES]
    return [resource, reference, *others, v1.train.get_or_create_global_step()]


def _values_of(rank):
    own = 10.0 + rank
    return [[own, -own], own, *(1.0 if dtype is tf.bool else own for dtype in DTYPES), 0.0]


def _values(session, variables):
    return [np.asarray(value, np.float64).tolist() for value in session.run(variables)]


def check_global_variables_get_the_values_of_the_root_and_tables_stay():
    with tf.Graph().as_default(), v1.Session() as session:
        session.run(sok.Init(global_batch_size=SIZE, seed=2))
        table = sok.EmbeddingVariable("table", dim=2)
        variables = _variables()
        rows = tf.nn.embedding_lookup(table, [1, 2])
        broadcast = sok.broadcast_global_variables(root_rank=1)
        session.run(v1.global_variables_initializer())
        before = session.run(rows)
        assert _values(session, variables) == _values_of(communicator().rank)
        session.run(broadcast)
        assert _values(session, variables) == _values_of(1)
        np.testing.assert_array_equal(session.run(rows), before)


def check_numbers_beyond_those_of_int64():
    with tf.Graph().as_default(), v1.Session() as session:
        value = tf.constant([2**63 + communicator().rank], tf.uint64)
        assert session.run(communicator().broadcast(value, 1, "value")).tolist() == [2**63 + 1]


def check_some_variables():
    own = 10.0 + communicator().rank
    with tf.Graph().as_default(), v1.Session() as session:
        first, second = tf.Variable(own), tf.Variable(own)
        session.run(v1.global_variables_initializer())
        session.run(sok.broadcast_variables([first], root_rank=2))
        assert session.run([first, second]) == [12.0, own]


def check_the_hook_broadcasts_before_the_first_step_of_a_table():
    with tf.Graph().as_default():
        sok.Init(global_batch_size=SIZE, seed=2)
        table = sok.EmbeddingVariable("table", dim=2, initializer=1.0)
        variables = _variables()
        rows = tf.nn.embedding_lookup(table, [communicator().rank])
        step = v1.train.AdagradOptimizer(0.1).minimize(tf.reduce_sum(rows), var_list=[table])
        hooks = [sok.BroadcastGlobalVariablesHook(root_rank=2)]
        with v1.train.MonitoredTrainingSession(hooks=hooks) as session:
            assert _values(session, variables) == _values_of(2)
            session.run(step)
            assert session.run(rows)[0, 0] < 1.0


def check_what_cannot_be_sent():
    with tf.Graph().as_default():
        words = tf.Variable("word", name="words")
        with pytest.raises(TypeError, match="Variable 'words' of string cannot be sent"):
            sok.broadcast_variables([words])
        with pytest.raises(ValueError, match="Rank 3 is not one of the 3 ranks"):
            sok.broadcast_global_variables(3)


CHECKS = [value for name, value in list(globals().items()) if name.startswith("check_")]


def test_on_three_ranks():
    """The output names the check that failed."""
    ranks.run_checks(CHECKS, ranks=SIZE)


def test_one_rank_needs_no_broadcast():
    with tf.Graph().as_default(), v1.Session() as session:
        variable = tf.Variable(3.0)
        session.run(variable.initializer)
        session.run(sok.broadcast_global_variables())
        assert session.run(variable) == 3.0
        with pytest.raises(ValueError, match="Rank 1"):
            sok.broadcast_global_variables(1)
