# Tags: slow
"""Lookups over ranks: groups equal one process with all batches, TensorFlow's ops, no hashing, 16 bits, and
branches, which all ranks must take alike."""

from __future__ import annotations

import functools
from collections.abc import Iterator

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.ops import control_flow_util

import harness
import ranks
import sparse_operation_kit as sok
from device_of_tests import sized
from same_length import zip_equal
from sparse_operation_kit.lookup import group
from sparse_operation_kit.ranks import initialize
from sparse_operation_kit.ranks.communicator import communicator
from sparse_operation_kit.ranks.exchange_names import exchange_statistics

RANKS = 3
RANKS_BRANCH = 2
GROUPS = sized([2, 3, 4], [2])  # the numbers of ranks that train groups
DIRECT_ROWS = 12


def _keys(rank: int, salt: int = 0) -> np.ndarray:
    rng = np.random.default_rng([rank, salt])
    return np.concatenate([harness.zipf_keys(rng, 20 * rank), rng.choice(harness.HOSTILE_KEYS, 7)])


def _tensorflow_lookups(keys: np.ndarray) -> list[np.ndarray]:
    """Outputs of gather, embedding_lookup and weighted embedding_lookup_sparse, and the rows after a step."""
    indices = np.stack([np.arange(len(keys)) // 2, np.arange(len(keys)) % 2], axis=1)
    with harness.graph_and_session() as session:
        bags = tf.SparseTensor(indices, keys, [len(keys) // 2, 2])
        weights = tf.SparseTensor(indices, (1 + keys % 3).astype(np.float32), [len(keys) // 2, 2])
        table = sok.EmbeddingVariable("table", 4)
        outputs = [
            tf.gather(table, tf.constant(keys)),
            tf.nn.embedding_lookup(table, tf.constant(keys)),
            tf.nn.embedding_lookup_sparse(table, bags, weights, combiner="sqrtn"),
        ]
        loss = tf.add_n([tf.reduce_sum(tf.square(output)) for output in outputs])
        step = tf.compat.v1.train.AdagradOptimizer(0.1).minimize(loss)
        harness.initialize(session)
        before = session.run(outputs)
        session.run(step)
        return [*before, session.run(outputs[0])]


def _even_keys(rank: int) -> np.ndarray:
    """Keys for whole bags of two."""
    keys = _keys(rank)
    return keys[: len(keys) // 2 * 2]


def _tensorflow_lookups_of_a_rank() -> list[np.ndarray]:
    return _tensorflow_lookups(_even_keys(communicator().rank))


def _many_tables(keys_by_salt: list[np.ndarray], first: int = 0) -> list[np.ndarray]:
    """A group over five tables of different dims, one of them looked up twice, after a training step.

    The group begins with lookup `first`, which may differ between ranks.
    """
    with harness.graph_and_session() as session:
        tables = [sok.EmbeddingVariable(f"table_{dim}", dim) for dim in (1, 2, 3, 8, 17)]
        lookups = [group.DenseLookup(tables[i % 5], tf.constant(keys)) for i, keys in enumerate(keys_by_salt)]
        outputs = group.lookup_group(lookups[first:] + lookups[:first])
        outputs = outputs[len(lookups) - first :] + outputs[: len(lookups) - first]
        loss = tf.add_n([tf.reduce_sum(tf.square(output)) for output in outputs])
        with sok.optimizers.fused_updates(False):
            step = tf.compat.v1.train.GradientDescentOptimizer(0.1).minimize(loss)
        updates = [op for op in session.graph.get_operations() if op.type == "SokApplyGradients"]
        # In one group, each row has one gradient, so the update need not search for duplicates.
        assert [op.get_attr("indices_unique") for op in updates] == [True] * len(tables)
        harness.initialize(session)
        session.run(step)
        return session.run(outputs)


def _many_tables_of_a_rank() -> list[np.ndarray]:
    rank = communicator().rank
    return _many_tables([_keys(rank, salt) for salt in range(6)], first=2 * rank)


def _direct_table(size: int) -> tuple[list, np.ndarray]:
    """A table without hashing, read as a tensor."""
    with harness.graph_and_session() as session:
        table = sok.EmbeddingVariable("direct", 2, capacity=DIRECT_ROWS // size, use_hashtable=False)
        harness.initialize(session)
        return table.shape.as_list(), session.run(table)


def _direct_table_of_a_rank() -> tuple[list, np.ndarray]:
    return _direct_table(communicator().size)


def _trained_with_gradients_in(dtype: tf.DType) -> np.ndarray:
    """The rows of three keys that all ranks train, with gradients that 16 bits cannot represent."""
    initialize._reset()
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        session.run(
            sok.Init(global_batch_size=harness.GLOBAL_BATCH_SIZE, seed=1, gradient_exchange_dtype=dtype)
        )
        table = sok.EmbeddingVariable("table", 1, initializer=0.0)
        rows = tf.nn.embedding_lookup(table, tf.constant([0, 1, 2], tf.int64))
        step = tf.compat.v1.train.GradientDescentOptimizer(1.0).minimize(
            tf.reduce_sum(rows) * (1 + 2.0**-14 + communicator().rank)
        )
        harness.initialize(session)
        session.run(step)
        return session.run(rows)


def _gradients_in_all_dtypes() -> list[np.ndarray]:
    try:
        return [_trained_with_gradients_in(dtype) for dtype in (tf.float32, tf.float16, tf.bfloat16)]
    finally:
        initialize._reset()


@functools.lru_cache(maxsize=None)
def _launched(size: int) -> dict[str, list]:
    """The results of the checks that run on a number of ranks."""
    checks = [_train_a_rank] if size in GROUPS else []
    if size == RANKS:
        checks += [_tensorflow_lookups_of_a_rank, _many_tables_of_a_rank, _direct_table_of_a_rank]
        checks += [_gradients_in_all_dtypes]
    if size == RANKS_BRANCH:
        # More ranks would make the same ops, so the features are counted on two.
        checks += [_exchanges_by_features, _train_both_ways, _take_different_branches]
    return ranks.run_checks([_trained, *checks], ranks=size, env={"SOK_STALL_SECONDS": "2"})


def _assert_joined(by_rank: list[list[np.ndarray]], one: list[np.ndarray]) -> None:
    for number, expected in enumerate(one):
        joined = np.concatenate([outputs[number] for outputs in by_rank])
        np.testing.assert_allclose(joined, expected, atol=1e-6, rtol=1e-5)


def test_tensorflows_lookups():
    keys = np.concatenate([_even_keys(rank) for rank in range(RANKS)])
    _assert_joined(_launched(RANKS)["_tensorflow_lookups_of_a_rank"], _tensorflow_lookups(keys))


def test_a_group_of_many_tables():
    keys = [np.concatenate([_keys(rank, salt) for rank in range(RANKS)]) for salt in range(6)]
    _assert_joined(_launched(RANKS)["_many_tables_of_a_rank"], _many_tables(keys))


def test_a_direct_table_reads_as_one_tensor_on_every_rank():
    expected_shape, expected = _direct_table(1)
    for shape, values in _launched(RANKS)["_direct_table_of_a_rank"]:
        assert shape == expected_shape == [DIRECT_ROWS, 2]
        np.testing.assert_array_equal(values, expected)


def test_gradients_travel_in_the_dtype_that_init_was_given():
    for exact, half, brain in _launched(RANKS)["_gradients_in_all_dtypes"]:
        # A rank's message to itself is rounded too, so that rows do not depend on their owner.
        total = sum(1 + 2.0**-14 + rank for rank in range(RANKS))
        np.testing.assert_allclose(exact, -np.full([3, 1], total), rtol=1e-7)
        np.testing.assert_array_equal(half, -np.full([3, 1], np.float32(sum(range(1, RANKS + 1)))))
        np.testing.assert_array_equal(brain, half)


BATCH = 6
# The dims of the tables, by feature; None is an ordinary variable.
DIMS = (4, 1, None, 17, 4, 4, 1)
COMBINERS = ("sum", "mean", "sum", "sqrtn", "mean", "sqrtn", "mean")
WEIGHTED = (False, False, False, False, False, True, True)
FEATURES = (1, 26)


class Batch:
    """A rank's lengths, keys and weights of each feature; the first rank has no keys of the fourth."""

    def __init__(self, rank: int) -> None:
        rng = np.random.default_rng(rank)
        self.lengths = [rng.integers(0, 5, BATCH) for _ in DIMS]
        if rank == 0:
            self.lengths[3][:] = 0
        self.keys = [harness.zipf_keys(rng, lengths.sum()) for lengths in self.lengths]
        self.keys[2] = self.keys[2] % 10
        self.weights = [rng.uniform(0.5, 2, lengths.sum()).astype(np.float32) for lengths in self.lengths]

    @staticmethod
    def joined(batches: list[Batch]) -> Batch:
        """The batches of all ranks as the batch of one process."""
        result = Batch(0)
        for name in ("lengths", "keys", "weights"):
            by_feature = zip_equal(*[getattr(batch, name) for batch in batches])
            setattr(result, name, [np.concatenate(parts) for parts in by_feature])
        return result

    def bags(self, feature: int, values: np.ndarray) -> tf.SparseTensor | tf.RaggedTensor:
        ragged = tf.RaggedTensor.from_row_lengths(tf.constant(values), self.lengths[feature])
        return ragged if feature % 2 else ragged.to_sparse()


def _train(batch: Batch, side_by_side: bool) -> list[np.ndarray]:
    """The outputs of a group before and after two steps, by feature."""
    with harness.graph_and_session() as session:
        tables = {dim: sok.EmbeddingVariable(f"table_{dim}", dim) for dim in {*DIMS} - {None}}
        ordinary = tf.compat.v1.get_variable("ordinary", initializer=tf.range(30.0) / 7.0)
        ordinary = tf.reshape(ordinary, [10, 3])
        count = len(DIMS)
        output = sok.group_embedding_lookup_sparse(
            [ordinary if dim is None else tables[dim] for dim in DIMS],
            [batch.bags(i, batch.keys[i]) for i in range(count)],
            COMBINERS,
            sp_weights=[batch.bags(i, batch.weights[i]) if WEIGHTED[i] else None for i in range(count)],
            side_by_side=side_by_side,
        )
        if not side_by_side:
            output = tf.concat(output, axis=1)
        loss = tf.reduce_sum(tf.square(output - 0.5))
        step = tf.compat.v1.train.AdagradOptimizer(0.1).minimize(loss, var_list=list(tables.values()))
        harness.initialize(session)
        before = session.run(output)
        session.run(step)
        session.run(step)
        return [before, session.run(output)]


def _train_a_rank() -> list[list[np.ndarray]]:
    return [_train(Batch(communicator().rank), side_by_side) for side_by_side in (False, True)]


def _exchanges_of_a_step(features: int) -> int:
    """The number of exchanges in a step of a group of `features` features, each with its own table."""
    with harness.graph_and_session() as session:
        tables = [sok.EmbeddingVariable(f"table_{i}", 1 + i % 4) for i in range(features)]
        bags = [
            tf.RaggedTensor.from_row_lengths(tf.constant([i, 7], tf.int64), [1, 1]) for i in range(features)
        ]
        outputs = sok.group_embedding_lookup_sparse(tables, bags, ["mean"] * features)
        step = tf.compat.v1.train.GradientDescentOptimizer(0.1).minimize(
            tf.add_n([tf.reduce_sum(output) for output in outputs])
        )
        statistics = exchange_statistics()
        harness.initialize(session)
        session.run(step)
        before = session.run(statistics).exchanges
        session.run(step)
        return session.run(statistics).exchanges - before


def _exchanges_by_features() -> dict[int, int]:
    return {features: _exchanges_of_a_step(features) for features in FEATURES}


@pytest.mark.parametrize("size", GROUPS)
def test_a_group_gives_what_one_process_gives_on_all_batches(size):
    by_rank = _launched(size)["_train_a_rank"]
    expected = _train(Batch.joined([Batch(rank) for rank in range(size)]), False)
    for way in (0, 1):
        before, after = (np.concatenate([of_rank[way][when] for of_rank in by_rank]) for when in (0, 1))
        np.testing.assert_array_equal(before, expected[0])
        np.testing.assert_allclose(after, expected[1], rtol=1e-5, atol=1e-6)
        assert np.abs(after - before).max() > 0.01


def test_a_step_has_three_exchanges_whatever_the_number_of_features():
    found = _launched(RANKS_BRANCH)["_exchanges_by_features"]
    assert found == [dict.fromkeys(FEATURES, 3)] * RANKS_BRANCH


v1 = tf.compat.v1
DIM = 3
# Whether the first and the second condition hold, in each step.
STEPS = [(False, False), (True, False), (True, True), (False, True), (True, True)]


def _batch(step: int) -> np.ndarray:
    return np.random.default_rng(step).integers(0, 30, 8 * RANKS_BRANCH)


def _rows(model: dict) -> tf.Tensor:
    """Rows [batch, DIM], of one table in both branches and outside, and of another in a nested branch."""
    users, items, keys = (model[name] for name in ("users", "items", "keys"))

    def in_both() -> tf.Tensor:
        of_users, of_items = sok.group_embedding_lookup([users, items], [keys, keys + 1])
        return of_users * of_items

    def inner() -> tf.Tensor:
        return tf.cond(model["second"], in_both, lambda: tf.nn.embedding_lookup(users, keys))

    chosen = tf.cond(model["first"], inner, lambda: tf.nn.embedding_lookup(users, 2 * keys))
    return chosen + tf.nn.embedding_lookup(users, keys - 5)


def _train_branch() -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Keys and rows of both tables after each step, sorted by key."""
    known = communicator()
    with harness.graph_and_session() as session:
        model = {name: v1.placeholder(tf.bool, []) for name in ("first", "second")}
        model["keys"] = v1.placeholder(tf.int64, [None])
        tables = [sok.EmbeddingVariable(name, DIM, initializer=0.5) for name in ("users", "items")]
        model["users"], model["items"] = tables
        loss = tf.reduce_sum(tf.square(_rows(model)))
        step = sok.DistributedOptimizer(v1.train.AdamOptimizer(0.01), op="sum").minimize(loss)
        harness.initialize(session)
        for number, (first, second) in enumerate(STEPS):
            keys = np.split(_batch(number), known.size)[known.rank]
            session.run(step, {model["first"]: first, model["second"]: second, model["keys"]: keys})
            for keys, rows in harness.contents_of_tables(session, tables):
                order = np.argsort(keys)
                yield keys[order], rows[order]


def _train_both_ways() -> list[list[tuple[np.ndarray, np.ndarray]]]:
    results = []
    for with_functions in (False, True):
        control_flow_util.ENABLE_CONTROL_FLOW_V2 = with_functions
        results.append(list(_train_branch()))
    return results


def _take_different_branches() -> str:
    with harness.graph_and_session() as session:
        users, items = (sok.EmbeddingVariable(name, DIM) for name in ("users", "items"))
        rows = tf.cond(
            tf.equal(communicator().rank, v1.placeholder_with_default(0, [])),
            lambda: tf.nn.embedding_lookup(users, [1]),
            lambda: tf.nn.embedding_lookup(items, [1]),
        )
        step = sok.DistributedOptimizer(v1.train.AdamOptimizer(0.01), op="sum").minimize(tf.reduce_sum(rows))
        # A rank that ended would end Horovod before the others know what it waited for.
        together = communicator().allreduce(tf.constant(1.0), average=False, name="all have the message")
        harness.initialize(session)
        with pytest.raises(tf.errors.FailedPreconditionError) as error:
            session.run(step)
        session.run(together)
        return error.value.message


def test_as_in_one_process():
    want = list(_train_branch())
    for of_rank in _launched(RANKS_BRANCH)["_train_both_ways"]:
        for of_way in of_rank:
            for (keys, rows), (want_keys, want_rows) in zip_equal(of_way, want):
                np.testing.assert_array_equal(keys, want_keys)
                np.testing.assert_allclose(rows, want_rows, rtol=1e-5, atol=1e-6)


def test_ranks_that_take_different_branches_get_an_error():
    for message in _launched(RANKS_BRANCH)["_take_different_branches"]:
        waits = "rank 0 waits for 'lookup of 'users': ids'; rank 1 waits for 'lookup of 'items': ids'"
        assert waits in message, message


STEPS_NARROW = 4
BAG = 2


def _keys_of(step: int) -> np.ndarray:
    """The keys of all ranks."""
    return harness.zipf_keys(np.random.default_rng(step), 60, vocabulary=50)


def _trained() -> dict[str, list]:
    """Trains two tables of one group. Sums are exact, so that they do not depend on the number of ranks."""
    known = communicator()
    with harness.graph_and_session() as session:
        of_rows, of_sums = (
            sok.EmbeddingVariable(name, 3, dtype=dtype, slot_dtype=tf.bfloat16)
            for name, dtype in (("of_rows", tf.bfloat16), ("of_sums", tf.float16))
        )
        keys = v1.placeholder(tf.int64, [None])
        at = tf.range(tf.shape(keys, out_type=tf.int64)[0])
        bags = tf.SparseTensor(
            tf.stack([at // BAG, at % BAG], 1), keys, [tf.size(keys, tf.int64) // BAG, BAG]
        )
        outputs = group.lookup_group(
            [group.DenseLookup(of_rows, keys), group.SparseLookup(of_sums, bags, "sum", exchange="sums")]
        )
        loss = tf.add_n([tf.reduce_sum(output * 0.25) for output in outputs])
        step = sok.tf.keras.optimizers.LazyAdamOptimizer(0.05).minimize(loss, var_list=[of_rows, of_sums])
        harness.initialize(session)
        found = []
        for number in range(STEPS_NARROW):
            whole_bags = np.array_split(_keys_of(number).reshape(-1, BAG), known.size)
            fed = {keys: whole_bags[known.rank].reshape(-1)}
            found.append([output.tolist() for output in session.run([*outputs, step], fed)[:2]])
        contents = harness.TableReader(of_rows, of_sums).read(session)
        return {"outputs": found, "rows": [dict(zip_equal(k.tolist(), r.tolist())) for k, r in contents]}


def test_ranks_give_the_bits_of_one_process():
    alone = _trained()
    for size in (2, 3, 4):
        results = _launched(size)["_trained"]
        for table in (0, 1):
            together = {}
            for result in results:
                together.update(result["rows"][table])
            assert together == alone["rows"][table], f"table {table} on {size} ranks"
        for step in range(STEPS_NARROW):
            dense = [row for result in results for row in result["outputs"][step][0]]
            assert dense == alone["outputs"][step][0]
            sums = np.array([row for result in results for row in result["outputs"][step][1]])
            np.testing.assert_allclose(sums, alone["outputs"][step][1], rtol=1e-6, atol=1e-7)
