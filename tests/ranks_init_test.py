"""sok.Init over ranks: what they must agree about, and what rank 0 decides."""

import pytest
import tensorflow as tf

import ranks
import sparse_operation_kit as sok
from sparse_operation_kit import native
from sparse_operation_kit.core import initialize
from sparse_operation_kit.core.communicator import communicator

SIZE = 3


def _init(**kwargs):
    """What running sok.Init gives in a process that has not called it yet: its value, or its error's text."""
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
        # Another Init in the session is told what the first one has decided.
        other = native.ops.sok_init(
            [SIZE, 0, tf.float32.as_datatype_enum] * SIZE, rank=ranks_.rank, ranks=SIZE
        )
        with pytest.raises(tf.errors.FailedPreconditionError) as error:
            session.run(other)
        return error.value.message


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


def test_rank_0_decides_the_seed(results):
    for rank, told in enumerate(results["check_rank_0_decides_the_seed"]):
        assert f"rank {rank} of 3, global batch size 3, seed -5," in told
