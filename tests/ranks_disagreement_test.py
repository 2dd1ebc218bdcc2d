"""If ranks disagree about a table or a group, all get an error that names both sides, instead of hanging."""

from __future__ import annotations

import re

import pytest
import tensorflow as tf

import harness
import ranks
import sparse_operation_kit as sok
from sparse_operation_kit.lookup import group
from sparse_operation_kit.ranks.communicator import communicator

KEYS = [1, 2, 3]


def _message_of(build, steps: int = 1) -> str:
    """Runs `steps` steps of the ops of `build(rank)`; returns the type and message of the error."""
    import horovod.tensorflow as hvd

    hvd.init()
    with harness.graph_and_session() as session:
        step = build(hvd.rank())
        harness.initialize(session)
        try:
            for _ in range(steps):
                session.run(step)
        except tf.errors.OpError as error:
            return f"{type(error).__name__}: {error.message}"
    return "no error"


def _lookup(name: str = "users", dim: int = 4, key_dtype: tf.DType = tf.int64, **options) -> tf.Tensor:
    variable = sok.EmbeddingVariable(name, dim, key_dtype=key_dtype, **options)
    return group.lookup_group([group.DenseLookup(variable, tf.constant(KEYS, key_dtype))])[0]


def _dims_differ() -> str:
    return _message_of(lambda rank: _lookup(dim=4 + 4 * (rank == 1)))


def _key_dtypes_differ() -> str:
    return _message_of(lambda rank: _lookup(key_dtype=tf.int32 if rank == 1 else tf.int64))


def _capacities_differ() -> str:
    return _message_of(lambda rank: _lookup(capacity=50 if rank == 1 else None))


def _memories_differ() -> str:
    return _message_of(lambda rank: _lookup(memory="host" if rank == 1 else "device"))


def _initializers_differ() -> str:
    return _message_of(lambda rank: _lookup(initializer=0.5 if rank == 1 else None))


def _exchanges_differ() -> str:
    def build(rank: int) -> tf.Tensor:
        variable = sok.EmbeddingVariable("users", 4)
        ids = tf.sparse.from_dense(tf.constant([KEYS], tf.int64))
        lookup = group.SparseLookup(variable, ids, "sum", exchange="sums" if rank == 1 else "rows")
        return group.lookup_group([lookup])[0]

    return _message_of(build)


def _optimizers_differ() -> str:
    def build(rank: int) -> tf.Operation:
        train = tf.compat.v1.train
        optimizer = train.AdagradOptimizer(0.1) if rank == 1 else train.GradientDescentOptimizer(0.1)
        return optimizer.minimize(tf.reduce_sum(_lookup()))

    return _message_of(build, steps=3)


def _agree() -> str:
    """Afterwards, the same processes work if they agree."""
    return _message_of(lambda rank: _lookup())


def _groups_differ() -> str:
    def build(rank: int) -> tf.Operation:
        variables = [sok.EmbeddingVariable(name, 4) for name in ("items", "users")]
        lookups = [group.DenseLookup(variable, tf.constant(KEYS, tf.int64)) for variable in variables]
        if rank == 1:
            return tf.group(*[group.lookup_group([lookup])[0] for lookup in lookups])
        return tf.group(*group.lookup_group(lookups))

    message = _message_of(build)
    # A rank that ended would end Horovod before the others know what it waited for.
    with harness.graph_and_session() as session:
        session.run(communicator().allreduce(tf.constant(1.0), average=False, name="all have the message"))
    return message


def _all_checks() -> dict[str, str]:
    checks = [
        _dims_differ,
        _key_dtypes_differ,
        _capacities_differ,
        _memories_differ,
        _initializers_differ,
        _exchanges_differ,
        _optimizers_differ,
        _agree,
        _groups_differ,
    ]
    return {check.__name__: check() for check in checks}


# The texts for rank 0 and for rank 1 in the message of every rank.
SIDES = {
    "_dims_differ": ("dim 4", "dim 8"),
    "_key_dtypes_differ": ("int64 keys", "int32 keys"),
    "_capacities_differ": ("no bound", "capacity 50"),
    "_memories_differ": ("no bound", "rows in memory of the host"),
    "_initializers_differ": (r"uniform\(-0\.05", r"constant\(0\.5\)"),
    "_exchanges_differ": ("exchanged as rows", "exchanged as sums"),
    "_optimizers_differ": ("trained by 'sgd'", "trained by 'adagrad'"),
}


@pytest.fixture(scope="module")
def messages() -> list[dict[str, str]]:
    return ranks.run(_all_checks, ranks=3, env={"SOK_STALL_SECONDS": "3"})


@pytest.mark.parametrize("check", SIDES)
def test_both_sides_are_named_on_every_rank(messages, check):
    for rank, by_check in enumerate(messages):
        message = by_check[check]
        assert message.startswith("FailedPreconditionError"), message
        assert "Ranks disagree about embedding variable 'users'" in message
        mine, other = SIDES[check][rank == 1], SIDES[check][rank != 1]
        assert re.search(f"rank {rank} has 'users' [^;]*{mine}", message), message
        assert re.search(f"rank [^{rank}] has 'users' [^;]*{other}", message), message


def test_after_an_error_ranks_that_agree_go_on(messages):
    assert [by_check["_agree"] for by_check in messages] == ["no error"] * 3


def test_other_groups_on_a_rank_are_named_instead_of_a_hang(messages):
    for by_check in messages:
        message = by_check["_groups_differ"]
        assert "lookup of 'items', 'users'" in message, message
        assert re.search("rank 1 waits for [^;]*lookup of '(items|users)':", message), message
