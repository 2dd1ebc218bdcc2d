"""A model for tests of admission, eviction and bounds, and a slow reference that computes its rows."""

from __future__ import annotations

import collections
import dataclasses

import numpy as np
import tensorflow as tf

import harness
import sparse_operation_kit as sok
from sparse_operation_kit.lookup import group

v1 = tf.compat.v1
DIM = 3
INITIAL = 10.0  # every element of a new row
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


class StatisticsReference:
    """Counts the statistics of a table by their definition."""

    def __init__(self, filter_freq: int = 0) -> None:
        self._filter_freq = filter_freq
        self._counts: collections.Counter[int] = collections.Counter()
        self._rows: set[int] = set()
        self._totals: collections.Counter[str] = collections.Counter()

    def look_up(self, keys: np.ndarray) -> None:
        """A step that looks up keys in training."""
        self._counts.update(keys.tolist())
        distinct = set(keys.tolist())
        admitted = {key for key in distinct - self._rows if self._counts[key] >= self._filter_freq}
        self._rows |= admitted
        filtered = len(distinct - self._rows)
        self._totals.update(ids=len(keys), distinct_ids=len(distinct))
        self._totals.update(admitted_ids=len(admitted), filtered_ids=filtered)

    def statistics(self) -> dict[str, float]:
        """What `sok.TableStatistics` has, without exchanges and a disk."""
        totals = self._totals
        ratio = totals["distinct_ids"] / totals["ids"] if totals["ids"] else 0
        return {
            **dict.fromkeys(sok.TableStatistics._fields, 0),
            **totals,
            "rows": len(self._rows),
            "unique_ratio": ratio,
        }


@dataclasses.dataclass
class Row:
    """The row of a key: its value, and its usage."""

    value: float
    frequency: int
    last_used: int
    last_step: int


class ReferenceTable:
    """A table with one float per row. `step` looks up all ranks' keys and takes an SGD step at rate 1."""

    def __init__(
        self,
        filter_freq: int = 0,
        default_value: float = 0.0,
        capacity: int | None = None,
        on_full: str = "error",
        steps_to_live: int | None = None,
        l2_weight_threshold: float = 0.0,
        dim: int = 1,
        before_lookup: bool = False,
    ) -> None:
        self.rows: dict[int, Row] = {}
        self.waiting: collections.Counter[int] = collections.Counter()
        self.last_seen: dict[int, int] = {}
        self._filter_freq = filter_freq
        self._default_value = default_value
        self._capacity = capacity
        self._on_full = on_full
        self._steps_to_live = steps_to_live
        self._l2_weight_threshold = l2_weight_threshold
        self._dim = dim
        self._before_lookup = before_lookup
        self._steps = 0
        self._counts_global_steps = False
        self._uses = 0

    def read(self, key: int) -> float:
        """The value of a lookup without training, which inserts nothing."""
        return self.rows[key].value if key in self.rows else self._absent_value()

    def step(self, keys: list[int], update: bool = True, global_step: int | None = None) -> list[float]:
        """Returns the looked-up value for each key, and trains unless `update` is False.

        `global_step` is the graph's global step before its increment; with None, the table counts its own
        steps.
        """
        self._uses += 1
        counts = collections.Counter(keys)
        present = set(self.rows)
        self._admit(counts)
        still_default = set(self.rows) - present if self._before_lookup and self._filter_freq > 0 else set()
        values = [self._default_value if key in still_default else self.read(key) for key in keys]
        if not update:
            return values
        number = self._steps + 1 if global_step is None else self._tell(global_step)
        self._steps = max(self._steps, number)
        for key, count in counts.items():
            if key in self.rows:
                self.rows[key].value -= count
                self.rows[key].last_step = number
        return values

    def save(self, global_step: int | None = None) -> None:
        """Evicts the rows that are evicted when a checkpoint is written."""
        if global_step is not None:
            self._tell(global_step)
        if self._steps_to_live:
            oldest = self._steps - self._steps_to_live
            self.rows = {key: row for key, row in self.rows.items() if row.last_step >= oldest}
            for key in [key for key in self.waiting if self.last_seen[key] < oldest]:
                del self.waiting[key]
        threshold = self._l2_weight_threshold
        self.rows = {
            key: row for key, row in self.rows.items() if 0.5 * self._dim * row.value**2 >= threshold
        }

    def evict(self, keys: list[int]) -> None:
        """Removes the rows of keys."""
        for key in keys:
            self.rows.pop(key, None)
            self.waiting.pop(key, None)

    def _tell(self, global_step: int) -> int:
        """Switches the table to the graph's global step; rows and waiting keys keep their age."""
        if not self._counts_global_steps:
            by = global_step - self._steps
            for row in self.rows.values():
                row.last_step = max(row.last_step + by, 0)
            self.last_seen = {key: max(step + by, 0) for key, step in self.last_seen.items()}
            self._counts_global_steps, self._steps = True, global_step
        self._steps = max(self._steps, global_step)
        return global_step

    def _absent_value(self) -> float:
        return self._default_value if self._filter_freq > 0 else INITIAL

    def _admit(self, counts: collections.Counter[int]) -> None:
        new = []
        for key, count in counts.items():
            if key in self.rows:
                self.rows[key].frequency += count
                self.rows[key].last_used = self._uses
                continue
            self.waiting[key] += count
            self.last_seen[key] = self._steps
            if self.waiting[key] >= self._filter_freq:
                new.append(key)
        self._make_room(len(new), counts)
        for key in new:
            self.rows[key] = Row(INITIAL, self.waiting.pop(key), self._uses, self._steps)

    def _make_room(self, new: int, kept: collections.Counter[int]) -> None:
        if self._capacity is None:
            return
        excess = len(self.rows) + new - self._capacity
        candidates = [key for key in self.rows if key not in kept]
        if self._on_full == "evict_lfu":
            candidates.sort(key=lambda key: (self.rows[key].frequency, self.rows[key].last_used, key))
        else:
            candidates.sort(key=lambda key: (self.rows[key].last_used, key))
        assert excess <= 0 or self._on_full != "error"
        for key in candidates[: max(0, excess)]:
            del self.rows[key]
