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


def _rows_of(rank_of_key, owner=None):
    """The rows of this rank, if `rank_of_key` says which rank has given the row of a key."""
    mine = [
        key for key in rank_of_key if (key % 2**64 % SIZE if owner is None else owner) == communicator().rank
    ]
    return {key: _row(key, rank_of_key[key]) for key in mine}


def check_rows_reach_the_owners_of_their_keys():
    found = _assigned([[5, -1, 3], [], [2**40, 4, 0]], before=[3, 4])
    assert found == _rows_of({5: 0, -1: 0, 3: 0, 2**40: 2, 4: 2, 0: 2})
    table_of = lambda: sok.EmbeddingVariable("table", DIM, key_dtype=tf.uint32)  # noqa: E731
    assert _assigned([[2**32 - 1], [1], [2**31]], table_of) == _rows_of({2**32 - 1: 0, 1: 1, 2**31: 2})
    table_of = lambda: experiment.DynamicVariable(DIM, mode="localized:1")  # noqa: E731
    assert _assigned([[1], [2], [3]], table_of) == _rows_of({1: 0, 2: 1, 3: 2}, owner=1)


def check_the_lowest_rank_decides():
    assert _assigned([[7, 8, 9]] * SIZE) == _rows_of({7: 0, 8: 0, 9: 0})
    assert _assigned([[9, 1], [1, 2], [2, 9]]) == _rows_of({9: 0, 1: 0, 2: 1})


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
        for table, rows in zip_equal(tables, ({10: 0, 30: 2}, {20: 1})):
            given = {key + giver: _row(row, giver) for key, row in rows.items() for giver in range(SIZE)}
            assert _contents(session, table) == {key: row for key, row in given.items() if key % SIZE == rank}


FIXED = {"capacity": 2, "use_hashtable": False}
# Keys and columns of their rows by rank, options of the table, the rank that is wrong, and its error.
WRONG = [
    ([[1, 2], [3, 3], [4]], (2, 2, 2), {}, 1, "'table' cannot take rows for a key that occurs twice"),
    (
        [[1, 2], [3], [4]],
        (2, 2, 3),
        {},
        2,
        "'table' of dim 2 cannot take keys of shape [1] with rows of shape [1 3]",
    ),
    ([[1], [2], [6]], (2, 2, 2), FIXED, 2, "'table' has the keys [0, 6), not [6]"),
]


def check_all_ranks_raise_what_one_rank_gives_wrongly():
    rank = communicator().rank
    for keys, columns, options, wrong, message in WRONG:
        with harness.graph_and_session() as session:
            table = sok.EmbeddingVariable("table", DIM, **options)
            fed = tf.compat.v1.placeholder(tf.int64), tf.compat.v1.placeholder(tf.float32)
            assign = table.assign_rows(*fed)
            harness.initialize(session)
            before = _contents(session, table)
            rows = np.zeros([len(keys[rank]), columns[rank]])
            with pytest.raises(tf.errors.OpError) as error:
                session.run(assign, dict(zip_equal(fed, (keys[rank], rows))))
            assert _contents(session, table) == before
            message = message if rank == wrong else f"'table': assign_rows: rank {wrong} failed"
            assert f"Embedding variable {message}" in error.value.message


CHECKS = [value for name, value in list(globals().items()) if name.startswith("check_")]


def test_on_three_ranks():
    """The output names the check that failed."""
    ranks.run_checks(CHECKS, ranks=SIZE)
