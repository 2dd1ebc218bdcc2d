"""Groups of lookups over ranks equal one process with all batches, and need three exchanges per step."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

import harness
import ranks
import sparse_operation_kit as sok
from device_of_tests import sized
from same_length import zip_equal
from sparse_operation_kit.ranks.exchange_statistics import exchange_statistics

BATCH = 6
# The dims of the tables, by feature; None is an ordinary variable.
DIMS = (4, 1, None, 17, 4, 4, 1)
COMBINERS = ("sum", "mean", "sum", "sqrtn", "mean", "sqrtn", "mean")
WEIGHTED = (False, False, False, False, False, True, True)
FEATURES = (1, 26)


def _rank() -> tuple[int, int]:
    import horovod.tensorflow as hvd

    hvd.init()
    return hvd.rank(), hvd.size()


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
    rank, _ = _rank()
    return [_train(Batch(rank), side_by_side) for side_by_side in (False, True)]


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


@pytest.fixture(scope="module", params=sized([2, 3, 4], [2]))
def results(request) -> tuple[int, dict[str, list]]:
    # More ranks would make the same ops, so the features are counted on two.
    checks = [_train_a_rank, _exchanges_by_features] if request.param == 2 else [_train_a_rank]
    return request.param, ranks.run_checks(checks, ranks=request.param)


def test_a_group_gives_what_one_process_gives_on_all_batches(results):
    size, by_check = results
    expected = _train(Batch.joined([Batch(rank) for rank in range(size)]), False)
    for way in (0, 1):
        before, after = (
            np.concatenate([of_rank[way][when] for of_rank in by_check["_train_a_rank"]]) for when in (0, 1)
        )
        np.testing.assert_array_equal(before, expected[0])
        np.testing.assert_allclose(after, expected[1], rtol=1e-5, atol=1e-6)
        assert np.abs(after - before).max() > 0.01


@pytest.mark.parametrize("results", [2], indirect=True, scope="module")
def test_a_step_has_three_exchanges_whatever_the_number_of_features(results):
    size, by_check = results
    assert by_check["_exchanges_by_features"] == [dict.fromkeys(FEATURES, 3)] * size
