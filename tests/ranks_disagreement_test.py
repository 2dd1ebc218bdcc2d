"""If ranks disagree about a table or a group, all get an error that names both sides, instead of hanging."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
import tensorflow as tf

import harness
import ranks
import sparse_operation_kit as sok
from sparse_operation_kit.lookup import group
from sparse_operation_kit.ranks.communicator import communicator

train = tf.compat.v1.train
KEYS = [1, 2, 3]


def _run(build: Callable[[bool], tf.Tensor]) -> None:
    """Runs a few steps of `build(whether this is rank 1)`."""
    with harness.graph_and_session() as session:
        step = build(communicator().rank == 1)
        harness.initialize(session)
        for _ in range(3):
            session.run(step)


def _lookup(name: str = "users", dim: int = 4, key_dtype: tf.DType = tf.int64, **options) -> tf.Tensor:
    variable = sok.EmbeddingVariable(name, dim, key_dtype=key_dtype, **options)
    return group.lookup_group([group.DenseLookup(variable, tf.constant(KEYS, key_dtype))])[0]


def _exchanged(how: str) -> tf.Tensor:
    ids = tf.sparse.from_dense(tf.constant([KEYS], tf.int64))
    lookup = group.SparseLookup(sok.EmbeddingVariable("users", 4), ids, "sum", exchange=how)
    return group.lookup_group([lookup])[0]


def _trained(optimizer: Callable) -> tf.Operation:
    return optimizer(0.1).minimize(tf.reduce_sum(_lookup()))


# What rank 1 does otherwise, and what the message of every rank says of the others and of rank 1.
DISAGREEMENTS = [
    (lambda odd: _lookup(dim=8 if odd else 4), "dim 4", "dim 8"),
    (lambda odd: _lookup(key_dtype=tf.int32 if odd else tf.int64), "int64 keys", "int32 keys"),
    (lambda odd: _lookup(capacity=50 if odd else None), "no bound", "capacity 50"),
    (lambda odd: _lookup(memory="host" if odd else "device"), "no bound", "rows in memory of the host"),
    (lambda odd: _lookup(initializer=0.5 if odd else None), r"uniform\(-0\.05", r"constant\(0\.5\)"),
    (lambda odd: _exchanged("sums" if odd else "rows"), "exchanged as rows", "exchanged as sums"),
    (
        lambda odd: _trained(train.AdagradOptimizer if odd else train.GradientDescentOptimizer),
        "trained by 'sgd'",
        "trained by 'adagrad'",
    ),
]


def check_both_sides_are_named_on_every_rank():
    rank = communicator().rank
    for build, *sides in DISAGREEMENTS:
        with pytest.raises(tf.errors.FailedPreconditionError) as error:
            _run(build)
        message = error.value.message
        assert "Ranks disagree about embedding variable 'users'" in message
        mine, other = sides if rank != 1 else reversed(sides)
        assert re.search(f"rank {rank} has 'users' [^;]*{mine}", message), message
        assert re.search(f"rank [^{rank}] has 'users' [^;]*{other}", message), message


def check_after_an_error_ranks_that_agree_go_on():
    _run(lambda odd: _lookup())


def _in_groups(of_one: bool) -> tf.Operation:
    variables = [sok.EmbeddingVariable(name, 4) for name in ("items", "users")]
    lookups = [group.DenseLookup(variable, tf.constant(KEYS, tf.int64)) for variable in variables]
    groups = [[lookup] for lookup in lookups] if of_one else [lookups]
    return tf.group(*[group.lookup_group(one) for one in groups])


def check_other_groups_on_a_rank_are_named_instead_of_a_hang():
    with pytest.raises(tf.errors.OpError) as error:
        _run(_in_groups)
    # A rank that ended would end Horovod before the others know what it waited for.
    with harness.graph_and_session() as session:
        session.run(communicator().allreduce(tf.constant(1.0), average=False, name="all have the message"))
    message = error.value.message
    assert "lookup of 'items', 'users'" in message, message
    assert re.search("rank 1 waits for [^;]*lookup of '(items|users)':", message), message


CHECKS = [value for name, value in list(globals().items()) if name.startswith("check_")]


def test_on_three_ranks():
    """The output names the check that failed."""
    ranks.run_checks(CHECKS, ranks=3, env={"SOK_STALL_SECONDS": "3"})
