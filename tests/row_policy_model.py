"""A model for tests of admission and eviction: a table whose rows a slow reference can compute."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

import harness
import sparse_operation_kit as sok
from row_policy_reference import INITIAL
from sparse_operation_kit.lookup import group

v1 = tf.compat.v1
DIM = 3
DEFAULT = -2.5
OPTION = sok.InitializerOption(INITIAL, default_value_no_permission=DEFAULT)
CBF = {"max_element_size": 4096, "false_positive_probability": 1e-6}
CAPACITY = 50
L2 = 20.0
# The policies of a table, and those of the reference.
CASES = {
    "counter": (lambda: {"admission": sok.CounterFilter(3)}, {"filter_freq": 3}),
    "bloom": (lambda: {"admission": sok.CBFFilter(3, **CBF)}, {"filter_freq": 3}),
    "before_lookup": (
        lambda: {"admission": sok.CounterFilter(3, before_lookup=True)},
        {"filter_freq": 3, "before_lookup": True},
    ),
    "global_step": (lambda: {"eviction": sok.GlobalStepEvict(5)}, {"steps_to_live": 5}),
    "global_step_and_counter": (
        lambda: {"eviction": sok.GlobalStepEvict(5), "admission": sok.CounterFilter(2)},
        {"steps_to_live": 5, "filter_freq": 2},
    ),
    "l2_weight": (lambda: {"eviction": sok.L2WeightEvict(L2)}, {"l2_weight_threshold": L2, "dim": DIM}),
    "evict_lru": (
        lambda: {"capacity": CAPACITY, "on_full": "evict_lru"},
        {"capacity": CAPACITY, "on_full": "evict_lru"},
    ),
    "evict_lfu": (
        lambda: {"capacity": CAPACITY, "on_full": "evict_lfu", "admission": sok.CounterFilter(2)},
        {"capacity": CAPACITY, "on_full": "evict_lfu", "filter_freq": 2},
    ),
}


class Trained:
    """A table in a graph, with a lookup of fed keys, and SGD steps with rate 1 on the sum of the rows."""

    def __init__(self, name: str = "table", **policies) -> None:
        self.keys = v1.placeholder(tf.int64, [None])
        self.table = sok.EmbeddingVariable(name, DIM, initializer=OPTION, **policies)
        self.rows = tf.nn.embedding_lookup(self.table, self.keys)
        loss = tf.reduce_sum(self.rows)
        self.gradient = tf.gradients(loss, self.table)[0]
        self.update = v1.train.GradientDescentOptimizer(1.0).minimize(loss)
        (self.read_rows,) = group.lookup_group([group.DenseLookup(self.table, self.keys)], training=False)

    def step(self, session: v1.Session, keys: list[int], update: bool = True) -> list[float]:
        """Returns the looked-up value for each key; all columns of a row are equal."""
        rows = session.run([self.rows, self.update] if update else [self.rows], {self.keys: keys})[0]
        assert np.all(rows == rows[:, :1])
        return rows[:, 0].tolist()

    def read(self, session: v1.Session, keys: list[int]) -> list[float]:
        """The values of a lookup without training."""
        return session.run(self.read_rows, {self.keys: keys})[:, 0].tolist()


def batches_of_keys(seed: int, steps: int, largest: int = 40) -> list[list[int]]:
    """Skewed keys that repeat within and between batches, including hostile keys, and empty batches."""
    rng = np.random.default_rng(seed)
    few = np.concatenate([harness.HOSTILE_KEYS, np.arange(30)])
    batches = []
    for _ in range(steps):
        skewed = harness.zipf_keys(rng, int(rng.integers(0, largest)), vocabulary=200)
        batches.append([int(key) for key in np.concatenate([skewed, rng.choice(few, rng.integers(0, 6))])])
    return batches
