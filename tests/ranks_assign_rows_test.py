"""Rows that ranks assign reach their owners, or none; statistics of tables are those of one process."""

import pathlib

import numpy as np
import pytest
import tensorflow as tf

import harness
import ranks
import sparse_operation_kit as sok
from row_policy_model import StatisticsReference
from same_length import zip_equal
from sparse_operation_kit import experiment
from sparse_operation_kit.lookup import group
from sparse_operation_kit.ranks.communicator import communicator
from sparse_operation_kit.ranks.exchange_names import exchange_statistics

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
v1 = tf.compat.v1
STEPS = 6
DIMS = {"small": 2, "wide": 6, "rare": 4}


def keys_of(step, rank, name):
    rng = np.random.default_rng([step, rank, DIMS[name]])
    return np.zeros(0, np.int64) if rank == 1 and step % 3 == 1 else harness.zipf_keys(rng, 40 + 10 * rank)


def count():
    """(statistics after each step, bytes that this rank sent in the steps), for three tables."""
    known = communicator()
    with harness.graph_and_session() as session:
        options = {"rare": {"admission": sok.CounterFilter(3)}}
        # Built in different orders on the ranks.
        names = sorted(DIMS, key=lambda name: DIMS[name] * (-1) ** known.rank)
        tables = {name: sok.EmbeddingVariable(name, DIMS[name], **options.get(name, {})) for name in names}
        keys = {name: v1.placeholder(tf.int64, [None]) for name in tables}
        rows = group.lookup_group([group.DenseLookup(tables[name], keys[name]) for name in sorted(names)])
        loss = tf.add_n([tf.reduce_sum(row) for row in rows])
        step_op = v1.train.GradientDescentOptimizer(0.1).minimize(loss)
        statistics = sok.table_statistics()
        harness.initialize(session)
        bytes_sent = exchange_statistics().bytes_sent_to_others
        after, sent = [], 0
        for step in range(STEPS):
            before = session.run(bytes_sent)
            session.run(step_op, {keys[name]: keys_of(step, known.rank, name) for name in names})
            sent += session.run(bytes_sent) - before
            after.append({name: numbers._asdict() for name, numbers in session.run(statistics).items()})
        return after, int(sent)


def expected(size):
    """The expected statistics after each step."""
    references = {name: StatisticsReference(3 if name == "rare" else 0) for name in DIMS}
    after = []
    for step in range(STEPS):
        for name, reference in references.items():
            reference.look_up(np.concatenate([keys_of(step, rank, name) for rank in range(size)]))
        after.append({name: reference.statistics() for name, reference in references.items()})
    return after


def test_on_three_ranks_whose_statistics_are_the_numbers_of_all():
    """The output names the check that failed."""
    found = ranks.run_checks([*CHECKS, count], ranks=SIZE)["count"]
    wanted = expected(SIZE)
    for after, _ in found:
        for step, (got, want) in enumerate(zip_equal(after, wanted)):
            assert got == {
                name: {**want[name], "exchange_bytes": got[name]["exchange_bytes"]} for name in DIMS
            }, step
    # All bytes of the steps are attributed to tables, except the headers of messages.
    headers = STEPS * SIZE * (SIZE - 1) * 8 * (4 + 4 + 5)
    total = sum(numbers["exchange_bytes"] for numbers in found[0][0][-1].values())
    assert total + headers == sum(sent for _, sent in found)


def monitor(folder):
    """Trains with the hook on every rank. Ranks have different numbers of runs that are not steps."""
    known = communicator()
    with tf.Graph().as_default():
        global_step = v1.train.get_or_create_global_step()
        sok.Init(global_batch_size=known.size, seed=1)
        table = sok.EmbeddingVariable("table", dim=2, initializer=1.0)
        keys = global_step * 10 + tf.range(known.rank + 1, dtype=tf.int64)
        loss = tf.reduce_sum(tf.nn.embedding_lookup(table, keys))
        step = v1.train.GradientDescentOptimizer(0.1).minimize(loss, global_step)
        hooks = [sok.TableSummaryHook(f"{folder}/{known.rank}", save_steps=3)]
        with v1.train.MonitoredTrainingSession(hooks=hooks) as session:
            for _ in range(10):
                session.run(step)
                for _ in range(2 * known.rank):
                    session.run(global_step)


def test_rank_0_writes(tmp_path):
    ranks.run(monitor, str(tmp_path), ranks=2)
    assert [path.name for path in pathlib.Path(tmp_path).iterdir()] == ["0"]
    found = {}
    for path in pathlib.Path(tmp_path).glob("0/events*"):
        for event in v1.train.summary_iterator(str(path)):
            found.update({(value.tag, event.step): value.simple_value for value in event.summary.value})
    assert {step for _, step in found} == {3, 6, 9}
    for step in (3, 6, 9):
        assert found["embedding/table/rows", step] == 2 * step
        assert found["embedding/table/admitted_ids_per_step", step] == 2
        assert found["embedding/table/unique_ratio", step] == pytest.approx(2 / 3)
        assert found["embedding/table/exchange_bytes_per_step", step] > 0


def train_apart():
    """Rank 0 reads statistics while the other trains: this is an error, not a hang."""
    known = communicator()
    with harness.graph_and_session() as session:
        table = sok.EmbeddingVariable("table", 2)
        rows = tf.nn.embedding_lookup(table, tf.constant([1], tf.int64))
        statistics = sok.table_statistics()
        harness.initialize(session)
        with pytest.raises(tf.errors.OpError, match="statistics of 'table'"):
            session.run(statistics if known.rank == 0 else rows)


def test_ranks_in_different_steps_fail():
    ranks.run(train_apart, ranks=2, env={"SOK_STALL_SECONDS": "3"})
