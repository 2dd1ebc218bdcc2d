"""EmbeddingVariable.assign_rows over ranks: rows reach their owners, and all ranks raise or none."""

import numpy as np
import pytest
import tensorflow as tf

import harness
import ranks
import sparse_operation_kit as sok
from same_length import zip_equal
from sparse_operation_kit import experiment
from sparse_operation_kit.ranks.communicator import communicator

SIZE = 3
DIM = 2


def _row(key, rank):
    return [float(key % 1000), float(rank)]


def _contents(session, table):
    """The rows that this rank holds, by key."""
    return {int(key): row.tolist() for key, row in zip_equal(*session.run(table.keys_and_rows()))}


def _assigned(keys_of_rank, table_of=lambda: sok.EmbeddingVariable("table", DIM), before=()):
    """The rows of this rank after each rank has assigned rows to its keys."""
    rank = communicator().rank
    keys = keys_of_rank[rank]
    with harness.graph_and_session() as session:
        table = table_of()
        fed = tf.compat.v1.placeholder(table.key_dtype, [None])
        assign = table.assign_rows(fed, np.reshape([_row(key, rank) for key in keys], [-1, DIM]))
        rows = tf.nn.embedding_lookup(table, tf.constant(before or [0], table.key_dtype))
        step = tf.compat.v1.train.AdamOptimizer(0.1).minimize(tf.reduce_sum(rows))
        harness.initialize(session)
        if before:
            session.run(step)
        assert session.run(assign, {fed: keys}) == b"OK"
        return _contents(session, table)


def check_each_rank_gives_a_part():
    return _assigned([[5, -1, 3], [], [2**40, 4, 0]], before=[3, 4])


def check_all_ranks_give_the_same_keys():
    return _assigned([[7, 8, 9]] * SIZE)


def check_some_keys_are_given_twice():
    return _assigned([[9, 1], [1, 2], [2, 9]])


def check_narrow_keys():
    return _assigned(
        [[2**32 - 1], [1], [2**31]], lambda: sok.EmbeddingVariable("table", DIM, key_dtype=tf.uint32)
    )


def check_a_localized_variable():
    return _assigned([[1], [2], [3]], lambda: experiment.DynamicVariable(DIM, mode="localized:1"))


def check_several_ops_of_a_run():
    """Which ranks may run in different orders."""
    rank = communicator().rank
    with harness.graph_and_session() as session:
        tables = [sok.EmbeddingVariable(name, DIM) for name in ("table", "other")]
        keys = [tf.constant([key + rank], tf.int64) for key in (10, 20, 30)]
        assign = [
            tables[which].assign_rows(key, [_row(number, rank)])
            for number, (which, key) in enumerate(zip_equal((0, 1, 0), keys))
        ]
        harness.initialize(session)
        session.run(assign[rank:] + assign[:rank])
        return [_contents(session, table) for table in tables]


def check_training_goes_on():
    """As that of an ordinary variable of which one process assigns all rows."""
    rank = communicator().rank
    with harness.graph_and_session() as session:
        table = sok.EmbeddingVariable("table", DIM, initializer=0.5)
        plain = tf.compat.v1.get_variable("plain", [8, DIM], initializer=tf.constant_initializer(0.5))
        ids = tf.compat.v1.placeholder(tf.int64, [None])
        losses = [tf.reduce_sum(tf.square(tf.nn.embedding_lookup(one, ids))) for one in (table, plain)]
        optimizer = tf.compat.v1.train.AdamOptimizer(0.1)
        step = sok.DistributedOptimizer(optimizer, op="sum").minimize(losses[0] / SIZE)
        step = tf.group(step, tf.compat.v1.train.AdamOptimizer(0.1).minimize(losses[1], var_list=[plain]))
        keys = tf.compat.v1.placeholder(tf.int64, [None])
        new = tf.stack([tf.cast(keys, tf.float32), tf.cast(keys, tf.float32) + 0.5], axis=1)
        own = slice(rank, None, SIZE)
        assign = table.assign_rows(keys[own], new[own]), tf.compat.v1.scatter_update(plain, keys, new)
        both = tf.nn.embedding_lookup(table, [1, 2, 3, 5]), tf.nn.embedding_lookup(plain, [1, 2, 3, 5])
        harness.initialize(session)
        for assigned, batches in (([], [[1, 2, 3], [2], [3, 2]]), ([5, 1, 3], [[2], [1, 5]]), ([2], [[3]])):
            session.run(assign, {keys: assigned})
            for batch in batches:
                session.run(step, {ids: batch})
        return session.run(both)


def _errors(keys_of_rank, table_of=lambda: sok.EmbeddingVariable("table", DIM), columns=(DIM,) * SIZE):
    """This rank's error, and its rows afterwards."""
    rank = communicator().rank
    keys = keys_of_rank[rank]
    with harness.graph_and_session() as session:
        table = table_of()
        fed = tf.compat.v1.placeholder(tf.int64), tf.compat.v1.placeholder(tf.float32)
        assign = table.assign_rows(*fed)
        harness.initialize(session)
        before = _contents(session, table)
        with pytest.raises(tf.errors.OpError) as error:
            session.run(assign, dict(zip_equal(fed, (keys, np.zeros([len(keys), columns[rank]])))))
        assert _contents(session, table) == before
        return error.value.message


def check_a_key_twice_on_a_rank():
    return _errors([[1, 2], [3, 3], [4]])


def check_rows_of_another_dim():
    return _errors([[1, 2], [3], [4]], columns=(DIM, DIM, DIM + 1))


def check_a_key_out_of_range():
    return _errors(
        [[1], [2], [6]], lambda: sok.EmbeddingVariable("table", DIM, capacity=2, use_hashtable=False)
    )


CHECKS = [value for name, value in list(globals().items()) if name.startswith("check_")]


@pytest.fixture(scope="module")
def results():
    return ranks.run_checks(CHECKS, ranks=SIZE)


def _of_ranks(rank_of_key):
    """The rows of each rank, if `rank_of_key` says which rank has given the row of a key."""
    return [
        {key: _row(key, rank) for key, rank in rank_of_key.items() if key % 2**64 % SIZE == owner}
        for owner in range(SIZE)
    ]


def test_rows_reach_the_owners_of_their_keys(results):
    want = _of_ranks({5: 0, -1: 0, 3: 0, 2**40: 2, 4: 2, 0: 2})
    assert results["check_each_rank_gives_a_part"] == want
    assert results["check_narrow_keys"] == _of_ranks({2**32 - 1: 0, 1: 1, 2**31: 2})
    assert results["check_a_localized_variable"] == [{}, {key: _row(key, key - 1) for key in (1, 2, 3)}, {}]


def test_several_ops_of_a_run_set_their_own_rows(results):
    of_ranks = results["check_several_ops_of_a_run"]
    for number, keys in ((0, {10: 0, 30: 2}), (1, {20: 1})):
        found = {}
        for tables in of_ranks:
            found.update(tables[number])
        assert found == {key + rank: _row(row, rank) for key, row in keys.items() for rank in range(SIZE)}


def test_training_goes_on_with_the_slots_of_each_row(results):
    for table, plain in results["check_training_goes_on"]:
        np.testing.assert_allclose(table, plain, rtol=1e-5)


def test_the_lowest_rank_decides(results):
    assert results["check_all_ranks_give_the_same_keys"] == _of_ranks(dict.fromkeys((7, 8, 9), 0))
    assert results["check_some_keys_are_given_twice"] == _of_ranks({9: 0, 1: 0, 2: 1})


@pytest.mark.parametrize(
    ("check", "rank", "message"),
    [
        ("check_a_key_twice_on_a_rank", 1, "'table' cannot take rows for a key that occurs twice"),
        (
            "check_rows_of_another_dim",
            2,
            "'table' of dim 2 cannot take keys of shape [1] with rows of shape [1 3]",
        ),
        ("check_a_key_out_of_range", 2, "'table' has the keys [0, 6), not [6]"),
    ],
)
def test_all_ranks_raise_what_one_rank_gives_wrongly(results, check, rank, message):
    told = results[check]
    assert f"Embedding variable {message}" in told[rank]
    for other in set(range(SIZE)) - {rank}:
        assert f"Embedding variable 'table': assign_rows: rank {rank} failed" in told[other]
