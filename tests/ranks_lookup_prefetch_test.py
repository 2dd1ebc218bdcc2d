# Tags: slow
"""LookupPrefetch over ranks: the same bits and the same number of exchanges as without."""

from __future__ import annotations

import contextlib
import functools
import tempfile

import pytest
import tensorflow as tf

import harness
import prefetched_training as training
import ranks
import sparse_operation_kit as sok
from device_of_tests import sized
from same_length import zip_equal
from sparse_operation_kit.ranks.communicator import communicator
from sparse_operation_kit.ranks.exchange_names import exchange_statistics

v1 = tf.compat.v1

# The capacities are those with which tables on two or three ranks evict rows.
POLICIES = {
    "adagrad": lambda name: {},
    "adam": lambda name: {},
    "lazy adam": lambda name: {"capacity": 30, "on_full": "evict_lfu"},
    "sgd": lambda name: {"admission": sok.CounterFilter(2), "capacity": 20, "on_full": "evict_lru"},
}


def _look_up_sums_too(tables: dict, batch: dict) -> dict:
    """The group's lookups, and a layer whose exchange is sums."""
    outputs = training.look_up(tables, batch)
    layer = sok.DistributedEmbedding("sum", None, 4, slot_num=1, max_nnz=8, exchange="sums", name="summed")
    bags = tf.RaggedTensor.from_row_lengths(batch["keys2"], batch["lengths2"]).to_sparse()
    tables["summed"] = layer.embedding_variable
    return {**outputs, "rows": [*outputs["rows"], layer(bags)[:, 0]]}


def _train_both_ways(folder: str, optimizers: tuple[str, ...]) -> list[list[training.Run]]:
    data = training.batches(communicator().rank)
    return [
        [
            training.train(
                ahead,
                optimizer,
                data=data,
                policies=POLICIES[optimizer],
                look_up=_look_up_sums_too if optimizer == "adagrad" else training.look_up,
                folder=f"{folder}/{optimizer} {ahead}",
            )
            for ahead in (False, True)
        ]
        for optimizer in optimizers
    ]


@pytest.mark.parametrize(
    ("size", "optimizers"),
    # On one rank: lookup_prefetch_test.
    sized([(2, ("adam", "sgd")), (3, ("adagrad", "lazy adam"))], [(2, ("adagrad", "sgd"))]),
)
def test_outputs_tables_and_slots_are_the_same(size, optimizers):
    with tempfile.TemporaryDirectory() as folder:
        for of_rank in ranks.run(_train_both_ways, folder, optimizers, ranks=size, timeout=300):
            for optimizer, (plain, ahead) in zip_equal(optimizers, of_rank):
                ahead.assert_equal(plain)
                assert len(plain.steps) == training.STEPS
                assert len(plain.tables["wide"]["keys"]) > 20
                of_wide = plain.statistics["wide"]
                has_evicted = of_wide.admitted_ids > of_wide.rows
                assert has_evicted == ("capacity" in POLICIES[optimizer]("wide")), of_wide


class _Model:
    """A table, and lookups in batches of which the last but one may be malformed."""

    def __init__(self, lengths: list[list[int]]) -> None:
        dataset = harness.dataset_of(lambda: iter(lengths), tf.TensorSpec([2], tf.int64))
        self.iterator = v1.data.make_initializable_iterator(dataset)
        self.table = sok.EmbeddingVariable("table", 2)
        self.prefetch = sok.LookupPrefetch(self.iterator, self._look_up)
        rows, self.splits = self.prefetch.outputs
        self.update = v1.train.GradientDescentOptimizer(0.1).minimize(tf.reduce_sum(rows))

    def _look_up(self, ends: tf.Tensor) -> tuple:
        splits = tf.concat([[0], ends], 0)
        bags = tf.RaggedTensor.from_row_splits(tf.constant([1, 2, 3, 4], tf.int64), splits, validate=False)
        return sok.group_embedding_lookup_sparse([self.table], [bags], ["sum"])[0], splits

    def start(self, session: v1.Session) -> None:
        harness.initialize(session)
        session.run(self.iterator.initializer)
        session.run(self.prefetch.prime)

    def step(self, session: v1.Session) -> list[int]:
        return session.run([self.splits, self.update, self.prefetch.advance])[0].tolist()


def _exchanges_of_a_step() -> int:
    with harness.graph_and_session() as session:
        model = _Model([[2, 4]] * 5)
        statistics = exchange_statistics()
        model.start(session)
        model.step(session)
        before = session.run(statistics).exchanges
        model.step(session)
        model.step(session)
        return (session.run(statistics).exchanges - before) / 2


def _bad_batch_of_one_rank() -> tuple[list, str]:
    """The results of the steps, and the error of the last: one rank's third batch is malformed."""
    rank = communicator().rank
    with harness.graph_and_session() as session:
        model = _Model([[2, 4], [1, 4], [9, 4] if rank == 1 else [0, 4], [2, 4]])
        model.start(session)
        steps = []
        with pytest.raises(tf.errors.InvalidArgumentError) as error:
            for _ in range(4):
                steps.append(model.step(session))
        return steps, error.value.message


def _monitored_steps(count: int) -> list[int]:
    """The batches that a MonitoredTrainingSession trains in `count` steps, or to the data's end for 0."""
    with tf.Graph().as_default():
        sok.Init(global_batch_size=harness.GLOBAL_BATCH_SIZE, seed=1)
        table = sok.EmbeddingVariable("table", 2)
        iterator = v1.data.make_initializable_iterator(tf.data.Dataset.range(6).batch(1))
        v1.add_to_collection(v1.GraphKeys.TABLE_INITIALIZERS, iterator.initializer)
        look_up = functools.partial(lambda table, keys: (tf.nn.embedding_lookup(table, keys), keys), table)
        prefetch = sok.LookupPrefetch(iterator, look_up)
        rows, keys = prefetch.outputs
        step = v1.train.get_or_create_global_step()
        update = v1.train.AdamOptimizer(0.1).minimize(tf.reduce_sum(rows), step)
        hooks = [prefetch, *([v1.train.StopAtStepHook(num_steps=count)] if count else [])]
        seen = []
        with v1.train.MonitoredTrainingSession(hooks=hooks) as session, contextlib.suppress(StopIteration):
            while not session.should_stop():
                seen += session.run([keys, update])[0].tolist()
        return seen


def _monitored() -> list[list[int]]:
    return [_monitored_steps(0), _monitored_steps(4)]


@pytest.fixture(scope="module")
def results() -> dict[str, list]:
    return ranks.run_checks([_exchanges_of_a_step, _bad_batch_of_one_rank, _monitored], ranks=2)


def test_a_step_has_three_exchanges_and_errors_are_every_ranks_in_their_own_step(results):
    assert results["_exchanges_of_a_step"] == [3, 3]
    for steps, message in results["_bad_batch_of_one_rank"]:
        assert steps == [[0, 2, 4], [0, 1, 4]]
        assert "On rank 1" in message and "'table'" in message, message


def test_monitored_sessions_of_ranks_end_with_the_data_or_before(results):
    for seen in results["_monitored"]:
        assert seen == [list(range(6)), list(range(4))]
