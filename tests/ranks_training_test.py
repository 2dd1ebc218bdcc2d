# Tags: slow
"""Ranks together equal one process with all their batches: outputs, initial rows, trained tables, feature
columns."""

from __future__ import annotations

import dataclasses
import functools

import numpy as np
import pytest
import tensorflow as tf

import feature_column_support as sets
import harness
import ranks
import sparse_operation_kit as sok
from device_of_tests import sized
from same_length import zip_equal
from sparse_operation_kit import compat
from sparse_operation_kit.lookup import group
from sparse_operation_kit.ranks.communicator import communicator

DIM = 5
SLOTS = 3
STEPS = 8  # every rank has had an empty batch, and others
DIRECT_ROWS = 120  # over all ranks; a multiple of 2, 3 and 4
OPTIMIZERS = {
    "sgd": lambda: tf.compat.v1.train.GradientDescentOptimizer(0.125),
    "adagrad": lambda: tf.compat.v1.train.AdagradOptimizer(0.1),
    "adam": lambda: sok.optimizers.Adam(0.05),
    "adadelta": lambda: tf.compat.v1.train.AdadeltaOptimizer(1.0, epsilon=1e-3),
}
if compat.legacy_keras_optimizers():
    _legacy = compat.legacy_keras_optimizers()[0][1]
    OPTIMIZERS["adamax"] = lambda: sok.DistributedOptimizer(_legacy.Adamax(0.05), op="sum")
    OPTIMIZERS["nadam"] = lambda: sok.DistributedOptimizer(_legacy.Nadam(0.05), op="sum")


@dataclasses.dataclass(frozen=True)
class Case:
    """A layer, its training and its keys."""

    kind: str  # "dense", "sparse" (DistributedEmbedding) or "weighted" (a lookup with weights)
    combiner: str = "sum"
    exchange: str = "rows"
    use_hashtable: bool = True
    key_dtype: tf.DType = tf.int64
    optimizer: str = "sgd"
    integers: bool = False  # rows, gradients and rates of which every float32 operation is exact

    @property
    def name(self) -> str:
        table = "hash" if self.use_hashtable else "direct"
        values = "integers" if self.integers else self.optimizer
        return f"{self.kind}_{self.combiner}_{self.exchange}_{table}_{self.key_dtype.name}_{values}"


CASES = [
    Case("dense"),
    Case("dense", optimizer="adagrad"),
    Case("dense", use_hashtable=False, optimizer="adagrad"),
    Case("dense", key_dtype=tf.uint32),
    Case("dense", optimizer="adam"),
    Case("dense", integers=True),
    # Every two of combiner, exchange and kind of training.
    Case("sparse", "sum", "rows", optimizer="sgd"),
    Case("sparse", "sum", "rows", optimizer="adagrad"),
    Case("sparse", "sum", "sums", use_hashtable=False, optimizer="adagrad"),
    Case("sparse", "mean", "sums", optimizer="sgd"),
    Case("sparse", "mean", "sums", optimizer="adagrad"),
    Case("sparse", "mean", "rows", use_hashtable=False, optimizer="adagrad"),
    Case("sparse", "sum", "rows", integers=True),
    Case("sparse", "sum", "sums", integers=True),
    Case("sparse", "mean", "sums", key_dtype=tf.int32),
    Case("weighted", "sqrtn"),
    Case("weighted", "mean", optimizer="adagrad"),
    *(Case("dense", optimizer=name) for name in ("adadelta", "adamax", "nadam") if name in OPTIMIZERS),
]


@dataclasses.dataclass(frozen=True)
class Batch:
    """Keys of `bags` bags of `SLOTS` each, with their weights."""

    keys: np.ndarray
    bag_of_key: np.ndarray
    bags: int
    weights: np.ndarray


def batch_of(case: Case, step: int, rank: int) -> Batch:
    """A rank's batch. Sizes differ, and some batches are empty."""
    rng = np.random.default_rng([step, rank, 17])
    samples = 0 if (step + rank) % 7 == 3 else int(rng.integers(1, 9))
    bags = samples * SLOTS
    lengths = rng.integers(0, 4, bags) if case.kind != "dense" else np.ones(bags, np.int64)
    count = int(lengths.sum())
    if not case.use_hashtable:
        keys = rng.integers(0, DIRECT_ROWS, count)
    elif case.key_dtype == tf.int64:
        keys = np.where(
            rng.random(count) < 0.3, rng.choice(harness.HOSTILE_KEYS, count), harness.zipf_keys(rng, count)
        )
    elif case.key_dtype == tf.int32:
        keys = rng.choice([0, -1, 2**31 - 1, -(2**31), 5, 6, 7], count)
    else:
        keys = rng.choice([0, 1, 2**31, 2**32 - 1, 5, 6, 7], count)
    weights = rng.integers(1, 8, count).astype(np.float32) / 4
    return Batch(
        keys.astype(case.key_dtype.as_numpy_dtype), np.repeat(np.arange(bags), lengths), bags, weights
    )


def together(batches: list[Batch]) -> Batch:
    """The batches, concatenated."""
    firsts = np.cumsum([0] + [batch.bags for batch in batches])
    return Batch(
        np.concatenate([batch.keys for batch in batches]),
        np.concatenate([batch.bag_of_key + first for batch, first in zip_equal(batches, firsts[:-1])]),
        int(firsts[-1]),
        np.concatenate([batch.weights for batch in batches]),
    )


class Model:
    """One case in the default graph."""

    def __init__(self, case: Case, size: int) -> None:
        self._case = case
        self._keys = tf.compat.v1.placeholder(case.key_dtype, [None])
        self._indices = tf.compat.v1.placeholder(tf.int64, [None, 2])
        self._bags = tf.compat.v1.placeholder(tf.int64, [])
        self._weights = tf.compat.v1.placeholder(tf.float32, [None])
        self._training = tf.compat.v1.placeholder_with_default(True, [])
        self.output = self._look_up(case, size)
        # Integers, a different one for every element of a row.
        loss = tf.reduce_sum(self.output * tf.range(1.0, DIM + 1))
        if not case.integers:
            loss = loss / 16 + tf.reduce_sum(tf.square(self.output)) / 64
        optimizer = (
            tf.compat.v1.train.GradientDescentOptimizer(1.0)
            if case.integers
            else OPTIMIZERS[case.optimizer]()
        )
        self.step = optimizer.minimize(loss)

    def _look_up(self, case: Case, size: int) -> tf.Tensor:
        capacity = None if case.use_hashtable else DIRECT_ROWS // size
        initializer = 3.0 if case.integers else None
        common = dict(key_dtype=case.key_dtype, use_hashtable=case.use_hashtable, name=case.name)
        ids = tf.SparseTensor(self._indices, self._keys, tf.stack([self._bags, 9]))
        if case.kind == "weighted":
            self.variable = sok.EmbeddingVariable(
                case.name, DIM, capacity=capacity, key_dtype=case.key_dtype, use_hashtable=case.use_hashtable
            )
            lookup = group.SparseLookup(self.variable, ids, case.combiner, weights=self._weights)
            return group.lookup_group([lookup], self._training)[0]
        if case.kind == "dense":
            layer = sok.All2AllDenseEmbedding(
                capacity, DIM, slot_num=SLOTS, nnz_per_slot=1, embedding_initializer=initializer, **common
            )
            output = layer(tf.reshape(self._keys, [-1, SLOTS, 1]), training=self._training)
        else:
            layer = sok.DistributedEmbedding(
                case.combiner,
                capacity,
                DIM,
                slot_num=SLOTS,
                max_nnz=9,
                embedding_initializer=initializer,
                exchange=case.exchange,
                **common,
            )
            output = layer(ids, training=self._training)
        self.variable = layer.embedding_variable
        return tf.reshape(output, [-1, DIM])

    def feed(self, batch: Batch, training: bool = True) -> dict:
        indices = np.stack([batch.bag_of_key, np.zeros_like(batch.bag_of_key)], axis=1)
        return {
            self._keys: batch.keys,
            self._indices: indices,
            self._bags: batch.bags,
            self._weights: batch.weights,
            self._training: training,
        }


def train(case: Case, size: int, batches: list[Batch]) -> dict:
    """Outputs of the first batch before any step and of all batches in training, and the table.

    The table has the rows of all ranks by key; "rows" is the number on this rank.
    """
    with harness.graph_and_session() as session:
        model = Model(case, size)
        count = model.variable.size()
        harness.initialize(session)
        initial = session.run(model.output, model.feed(batches[0], training=False))
        outputs = [session.run([model.output, model.step], model.feed(batch))[0] for batch in batches]
        keys, rows = harness.table_contents(session, model.variable)
        table = dict(zip_equal(keys.tolist(), rows))
        return {"initial": initial, "outputs": outputs, "table": table, "rows": session.run(count)}


def _train_all() -> tuple[dict[str, dict], dict[int, list]]:
    """The results of cases by name, and the runs of feature columns by seed."""
    rank, size = communicator().rank, communicator().size
    of_cases = {
        case.name: train(case, size, [batch_of(case, step, rank) for step in range(STEPS)])
        for case in _cases(size)
    }
    return of_cases, train_both_ways(SEEDS.get(size, ()))


@functools.lru_cache(maxsize=None)
def _launched(size: int) -> ranks.Job:
    """The result of a launch. Failures are cached too, so that they are not repeated for each case."""
    return ranks.launch(_train_all, ranks=size, transport="mpi" if size == 2 else "gloo", timeout=300)


def _results(size: int) -> list[tuple[dict[str, dict], dict[int, list]]]:
    """Of each rank."""
    job = _launched(size)
    assert job.returncode == 0 and not job.timed_out, job.report()
    return job.results


@functools.lru_cache(maxsize=None)
def _trained_in_one_process(case: Case, size: int) -> dict:
    batches = [together([batch_of(case, step, rank) for rank in range(size)]) for step in range(STEPS)]
    return train(case, 1, batches)


def _cases(size: int) -> list[Case]:
    """Each case once: half of them on three ranks, a quarter on two, and on four. Three again on one rank."""
    of_size = {1: CASES[1::8], 2: CASES[1::4], 3: CASES[::2], 4: CASES[3::4]}
    return sized(of_size[size], CASES[size::6])


@pytest.mark.parametrize(
    ("size", "case"),
    [
        pytest.param(size, case, id=f"{size}-{case.name}")
        for size in sized([1, 2, 3, 4], [3])
        for case in _cases(size)
    ],
)
def test_ranks_equal_one_process(size, case):
    by_rank = [of_cases[case.name] for of_cases, _ in _results(size)]
    one = _trained_in_one_process(case, size)
    exact = case.integers
    compare = (
        np.testing.assert_array_equal
        if exact
        else functools.partial(np.testing.assert_allclose, atol=1e-5, rtol=1e-5)
    )

    initial = one["initial"]
    merged = np.concatenate([result["initial"] for result in by_rank])
    # Rows have the same bits. If owners compute partial sums of bags, the order of summation differs.
    if case.exchange == "rows":
        np.testing.assert_array_equal(merged, initial)
    else:
        np.testing.assert_allclose(merged, initial, atol=1e-6)
    for step in range(STEPS):
        compare(np.concatenate([result["outputs"][step] for result in by_rank]), one["outputs"][step])

    table = by_rank[0]["table"]
    for rank, result in enumerate(by_rank):
        assert result["rows"] == sum(key % 2**64 % size == rank for key in table)
    assert table.keys() == one["table"].keys()
    for key, row in one["table"].items():
        compare(table[key], row)


STEPS_COLUMNS = sized(50, 10)
SAMPLES = 12  # of a step over all ranks
OPTIMIZERS_COLUMNS = ("adagrad", "adam", "sgd")
SEEDS = sized({1: (301,), 2: (301, 306), 3: (303,)}, {3: (301,)})  # of recipes, by number of ranks


def global_steps(recipes, seed):
    rng = np.random.default_rng(seed)
    return [sets.batch(recipes, rng, SAMPLES) for _ in range(STEPS_COLUMNS)]


def part_of(values, rank, size):
    """A rank's samples. Ranks have different numbers: the last has the most; of 3, the first has few."""
    ends = np.rint(SAMPLES * (np.arange(size + 1) / size) ** 1.5).astype(int)
    return {key: value[ends[rank] : ends[rank + 1]] for key, value in values.items()}


def train_both_ways(seeds):
    """By seed, the runs without and with scopes, on this rank's part of the batches."""
    rank, size = communicator().rank, communicator().size
    runs = {}
    for seed in seeds:
        recipes = sets.random_recipes(seed)
        steps = [part_of(values, rank, size) for values in global_steps(recipes, seed)]
        optimizer = OPTIMIZERS_COLUMNS[seed % len(OPTIMIZERS_COLUMNS)]
        runs[seed] = [sets.train(recipes, scoped, steps, optimizer, SAMPLES) for scoped in (False, True)]
    return runs


@functools.lru_cache(maxsize=None)
def train_in_one_process(seed):
    recipes = sets.random_recipes(seed)
    return sets.train(
        recipes,
        True,
        global_steps(recipes, seed),
        OPTIMIZERS_COLUMNS[seed % len(OPTIMIZERS_COLUMNS)],
        SAMPLES,
    )


@pytest.mark.parametrize("size", SEEDS)
def test_any_number_of_ranks_trains_the_same_with_and_without_scopes(size):
    results = [of_seeds for _, of_seeds in _results(size)]
    for seed in SEEDS[size]:
        recipes = sets.random_recipes(seed)
        for alone, grouped in (result[seed] for result in results):
            np.testing.assert_array_equal(grouped.outputs[0], alone.outputs[0])
            if any(recipe.partner for recipe in recipes):
                grouped.assert_close(alone)
            else:
                grouped.assert_equal(alone)
        together = [np.concatenate(parts) for parts in zip_equal(*(run[seed][1].outputs for run in results))]
        variables = results[0][seed][1].variables
        want = train_in_one_process(seed)
        sets.Run(together, variables).assert_close(want)
        for name, value in want.variables.items():
            np.testing.assert_allclose(variables[name], value, rtol=2e-4, atol=2e-5, err_msg=name)
