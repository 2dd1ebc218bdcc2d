"""sok.Init over ranks: the arguments that must agree, and the seed that rank 0 decides."""

import pytest
import tensorflow as tf

import ranks
import sparse_operation_kit as sok
from sparse_operation_kit import native
from sparse_operation_kit.ranks import initialize
from sparse_operation_kit.ranks.communicator import communicator

SIZE = 3


def _init(**kwargs):
    """Runs sok.Init in a process that has not called it yet; returns its value or its error message."""
    initialize._reset()
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        try:
            return session.run(sok.Init(**kwargs))
        except tf.errors.InvalidArgumentError as error:
            return error.message


def check_same_arguments():
    return _init(global_batch_size=6 * SIZE, seed=3, gradient_exchange_dtype=tf.float16)


def check_several_sessions():
    initialize._reset()
    with tf.Graph().as_default():
        status = sok.Init(global_batch_size=SIZE)
        again = sok.Init(global_batch_size=SIZE)
        results = []
        for _ in range(2):
            with tf.compat.v1.Session() as session:
                results += session.run([status, again])
        return results


def check_batch_size_is_no_multiple():
    with tf.Graph().as_default(), pytest.raises(ValueError) as error:
        sok.Init(global_batch_size=2 * SIZE + 1)
    return str(error.value)


def check_other_batch_size():
    return _init(global_batch_size=SIZE * (2 if communicator().rank == 1 else 1))


def check_other_gradient_dtype():
    return _init(
        global_batch_size=SIZE, gradient_exchange_dtype=[None, tf.float32, "bfloat16"][communicator().rank]
    )


def check_rank_0_decides_the_seed():
    initialize._reset()
    ranks_ = communicator()
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        session.run(sok.Init(global_batch_size=SIZE, seed=[-5, 6, None][ranks_.rank]))
        # Another Init in the session gets the seed that the first one decided.
        other = native.ops.sok_init(
            [SIZE, 0, tf.float32.as_datatype_enum] * SIZE, rank=ranks_.rank, ranks=SIZE
        )
        with pytest.raises(tf.errors.FailedPreconditionError) as error:
            session.run(other)
        return error.value.message


def _tables():
    tables = [sok.EmbeddingVariable(name=f"table{i}", dim=2, initializer=1.0) for i in range(2)]
    return tables, tf.reduce_sum(sok.group_embedding_lookup(tables, [[1, 2]] * 2)[0])


def check_initializers_run_init():
    """In new sessions: initializers alone, together with Init, and again."""
    initialize._reset()
    results = []
    with tf.Graph().as_default():
        status = sok.Init(global_batch_size=SIZE, seed=2)
        _, rows = _tables()
        initializer = tf.compat.v1.global_variables_initializer()
        for fetches in (initializer, [status, initializer]):
            with tf.compat.v1.Session() as session:
                for _ in range(2):
                    session.run(fetches)
                    results.append(float(session.run(rows)))
    return results


def check_one_rank_alone_initializes_again():
    initialize._reset()
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        status = sok.Init(global_batch_size=SIZE, seed=2)
        tables, rows = _tables()
        session.run(tf.compat.v1.global_variables_initializer())
        session.run(rows)
        if communicator().rank == 1:
            session.run([tables[0].initializer, status])
        return [int(size) for size in session.run([table.size() for table in tables])]


def check_initializers_tell_who_disagrees():
    initialize._reset()
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        sok.Init(global_batch_size=SIZE * (2 if communicator().rank == 1 else 1))
        table = sok.EmbeddingVariable("table", dim=2)
        with pytest.raises(tf.errors.InvalidArgumentError) as error:
            session.run(table.initializer)
        return error.value.message


def check_a_monitored_session():
    """Every rank is the chief of its own session."""
    initialize._reset()
    with tf.Graph().as_default():
        sok.Init(global_batch_size=SIZE, seed=2)
        _, rows = _tables()
        tf.compat.v1.train.get_or_create_global_step()
        with tf.compat.v1.train.MonitoredTrainingSession() as session:
            return float(session.run(rows))


CHECKS = [value for name, value in list(globals().items()) if name.startswith("check_")]


@pytest.fixture(scope="module")
def results():
    return ranks.run_checks(CHECKS, ranks=SIZE)


def test_the_same_arguments_everywhere(results):
    assert results["check_same_arguments"] == [b"OK"] * SIZE
    assert results["check_several_sessions"] == [[b"OK"] * 4] * SIZE


def test_a_batch_that_does_not_divide_is_refused(results):
    for message in results["check_batch_size_is_no_multiple"]:
        assert "global_batch_size=7 is not a multiple of the 3 ranks" in message


@pytest.mark.parametrize(
    ("check", "message"),
    [
        ("check_other_batch_size", "rank 0 has global_batch_size=3, rank 1 has global_batch_size=6"),
        (
            "check_other_gradient_dtype",
            "rank 0 has gradient_exchange_dtype=float, rank 2 has gradient_exchange_dtype=bfloat16",
        ),
    ],
)
def test_every_rank_is_told_who_disagrees(results, check, message):
    for told in results[check]:
        assert f"sok.Init: the ranks disagree: {message}" in told


def test_initializers_run_init(results):
    assert results["check_initializers_run_init"] == [[4.0] * 4] * SIZE
    assert results["check_a_monitored_session"] == [4.0] * SIZE


def test_where_init_has_run_an_initializer_concerns_one_rank(results):
    # Of the keys 1 and 2, rank 1 has one and rank 2 the other.
    assert results["check_one_rank_alone_initializes_again"] == [[0, 0], [0, 1], [1, 1]]


def test_initializers_tell_who_disagrees(results):
    for told in results["check_initializers_tell_who_disagrees"]:
        assert "rank 0 has global_batch_size=3, rank 1 has global_batch_size=6" in told


def test_rank_0_decides_the_seed(results):
    for rank, told in enumerate(results["check_rank_0_decides_the_seed"]):
        assert f"rank {rank} of 3, global batch size 3, seed -5," in told
