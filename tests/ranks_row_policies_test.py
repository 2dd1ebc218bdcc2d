"""Admission and bounded tables over ranks: occurrences of a key on all ranks in a step count together."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

import harness
import ranks
import sparse_operation_kit as sok
from device_of_tests import sized
from row_policy_reference import INITIAL, ReferenceTable
from same_length import zip_equal
from sparse_operation_kit.lookup import group

v1 = tf.compat.v1
STEPS = 8
BAG = 4
DEFAULT = -2.5
OPTION = sok.InitializerOption(INITIAL, default_value_no_permission=DEFAULT)
CAPACITY = 13

EXCHANGES = ("rows", "sums")
# The policies of a table, and those of the reference.
CASES = {
    "counter": (lambda: {"admission": sok.CounterFilter(3)}, {"filter_freq": 3}),
    "bloom": (lambda: {"admission": sok.CBFFilter(3, 4096, 1e-6)}, {"filter_freq": 3}),
    "before_lookup": (
        lambda: {"admission": sok.CBFFilter(3, 4096, 1e-6, before_lookup=True)},
        {"filter_freq": 3, "before_lookup": True},
    ),
    "lru": (
        lambda: {"capacity": CAPACITY, "on_full": "evict_lru"},
        {"capacity": CAPACITY, "on_full": "evict_lru"},
    ),
    "lfu": (
        lambda: {"capacity": CAPACITY, "on_full": "evict_lfu"},
        {"capacity": CAPACITY, "on_full": "evict_lfu"},
    ),
}

# By number of ranks, (exchange, policies): all on three, and some on other numbers.
LAUNCHES = {
    2: [("sums", "bloom"), ("rows", "before_lookup"), ("rows", "lru")],
    3: [(exchange, name) for exchange in EXCHANGES for name in CASES],
    4: [("sums", "counter"), ("sums", "lfu")],
}


def _keys(rank: int, step: int) -> np.ndarray:
    """Whole bags of keys. Ranks have different numbers, and some have none."""
    rng = np.random.default_rng([rank, step])
    count = BAG * int(rng.integers(0, 6))
    few = np.concatenate([harness.HOSTILE_KEYS, np.arange(12)])
    return np.where(
        rng.random(count) < 0.3, rng.choice(few, count), harness.zipf_keys(rng, count, vocabulary=60)
    )


def _train(exchange: str, policies: dict) -> list[list[float]]:
    """The outputs of this rank's lookups: rows, or sums of bags."""
    import horovod.tensorflow as hvd

    hvd.init()
    with harness.graph_and_session() as session:
        table = sok.EmbeddingVariable("table", 2, initializer=OPTION, **policies)
        keys = v1.placeholder(tf.int64, [None])
        if exchange == "rows":
            (output,) = group.lookup_group([group.DenseLookup(table, keys)])
        else:
            count = tf.shape(keys, out_type=tf.int64)[0]
            indices = tf.stack([tf.range(count) // BAG, tf.range(count) % BAG], axis=1)
            bags = tf.SparseTensor(indices, keys, [count // BAG, BAG])
            (output,) = group.lookup_group([group.SparseLookup(table, bags, "sum", exchange="sums")])
        update = v1.train.GradientDescentOptimizer(1.0).minimize(tf.reduce_sum(output))
        harness.initialize(session)
        outputs = []
        for step in range(STEPS):
            rows, _ = session.run([output, update], {keys: _keys(hvd.rank(), step)})
            assert np.all(rows == rows[:, :1])
            outputs.append(rows[:, 0].tolist())
        return outputs


def _train_all(cases: list[tuple[str, str]]) -> list[list[list[float]]]:
    return [_train(exchange, CASES[name][0]()) for exchange, name in cases]


def _expected(size: int, exchange: str, **policies) -> list[list[list[float]]]:
    """The expected outputs by rank and step, from one reference table per owner for the keys of all ranks."""
    tables = [ReferenceTable(default_value=DEFAULT, **policies) for _ in range(size)]
    expected = [[] for _ in range(size)]
    seen = set()
    for step in range(STEPS):
        values = {}
        of_all = np.concatenate([_keys(rank, step) for rank in range(size)])
        seen.update(of_all.tolist())
        owners = of_all.view(np.uint64) % np.uint64(size)
        for owner, table in enumerate(tables):
            own = [int(key) for key in of_all[owners == owner]]
            values.update(zip_equal(own, table.step(own)))
        for rank in range(size):
            rows = np.array([values[int(key)] for key in _keys(rank, step)])
            expected[rank].append((rows if exchange == "rows" else rows.reshape(-1, BAG).sum(1)).tolist())
    # The tables have been full, and evicted rows.
    assert "capacity" not in policies or sum(len(table.rows) for table in tables) < len(seen)
    return expected


@pytest.mark.parametrize("size", sized(LAUNCHES, [3]))
def test_what_all_ranks_look_up_counts_together(size):
    cases = LAUNCHES[size]
    found = ranks.run(_train_all, cases, ranks=size)
    for i, (exchange, name) in enumerate(cases):
        expected = _expected(size, exchange, **CASES[name][1])
        assert [of_rank[i] for of_rank in found] == expected, (exchange, name)
