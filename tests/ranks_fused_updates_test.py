"""Fused updates, in the op that sums gradients, over ranks: the same bits and the same exchanges."""

import contextlib

import numpy as np
import pytest
import tensorflow as tf

import harness
import ranks
import sparse_operation_kit as sok
from device_of_tests import sized
from same_length import zip_equal
from sparse_operation_kit import compat, deeprec
from sparse_operation_kit.changes import replacements
from sparse_operation_kit.changes.replacement_table import Part
from sparse_operation_kit.deeprec.replacement_entries import Part as DeepRecPart
from sparse_operation_kit.lookup import group
from sparse_operation_kit.ranks import initialize
from sparse_operation_kit.ranks.communicator import communicator

deeprec.uninstall()  # importing it has installed its names
v1 = tf.compat.v1
train = v1.train
legacy = compat.legacy_keras_optimizers()[0][1]

STEPS = 3
IDS = 15
# "long" is longer than the CPU's blocks of sums, RowGradients::kBlockFloats; "shared" is looked up twice,
# with weights; "rows" and "sums" have these exchange modes.
DIMS = {"long": sized(4097, 70), "shared": 16, "rows": 3, "sums": 5}

OPTIMIZERS = {
    "sgd": lambda: train.GradientDescentOptimizer(0.1),
    "adagrad": lambda: train.AdagradOptimizer(0.1),
    "adadelta": lambda: train.AdadeltaOptimizer(5.0),
    "adam": lambda: train.AdamOptimizer(0.05),
    "lazy_adam": lambda: sok.tf.keras.optimizers.LazyAdamOptimizer(0.05),
    "keras_adam": lambda: legacy.Adam(0.05),
    "keras_adamax": lambda: legacy.Adamax(0.05),
    "keras_nadam": lambda: legacy.Nadam(0.05),
}


class Model:
    """Four tables in one group."""

    def __init__(self):
        self.tables = [sok.EmbeddingVariable(name, dim) for name, dim in DIMS.items()]
        long, shared, rows, sums = self.tables
        self.keys = [v1.placeholder(tf.int64, [None]) for _ in range(5)]
        self.weights = v1.placeholder(tf.float32, [None])
        self.outputs = group.lookup_group(
            [
                group.DenseLookup(long, self.keys[0]),
                group.DenseLookup(shared, self.keys[1]),
                group.SparseLookup(shared, _bags(self.keys[2]), "mean", self.weights),
                group.SparseLookup(rows, _bags(self.keys[3]), "sqrtn"),
                group.SparseLookup(sums, _bags(self.keys[4]), "sum", exchange="sums"),
            ]
        )
        self.loss = tf.add_n([tf.reduce_sum(tf.square(output - 0.3)) for output in self.outputs])

    def feed(self, step):
        """The feed of a step. Numbers of keys differ between ranks and are sometimes 0."""
        rng = np.random.default_rng([step, communicator().rank])
        counts = [0 if (step + communicator().rank) % 4 == 2 else int(rng.integers(1, 20)) for _ in self.keys]
        feeds = {
            keys: rng.integers(0, IDS, count) * 2**40 + rng.integers(0, 6, count)
            for keys, count in zip_equal(self.keys, counts)
        }
        return {**feeds, self.weights: rng.uniform(0.5, 2.0, counts[2]).astype(np.float32)}

    def gradients(self):
        return tf.gradients(self.loss, self.tables)


def _bags(keys):
    """Bags of up to three keys."""
    count = tf.shape(keys, out_type=tf.int64)[0]
    indices = tf.stack([tf.range(count) // 3, tf.range(count) % 3], axis=1)
    return tf.SparseTensor(indices, keys, [(count + 2) // 3, 3])


@contextlib.contextmanager
def averages():
    """Averages gradients over ranks, as in collective training."""
    replacements.install(Part.OPTIMIZERS, DeepRecPart.COLLECTIVE_TRAINING)
    try:
        yield
    finally:
        replacements.uninstall(DeepRecPart.COLLECTIVE_TRAINING)


def op_counts():
    """The numbers of ops that sum and update, that only update, and that exchange."""
    found = [op.type for op in tf.compat.v1.get_default_graph().get_operations()]
    fused = found.count("SokGroupSumApplyGradients") + found.count("SokGroupLookupApplyGradients")
    return fused, found.count("SokApplyGradients"), found.count("SokExchange")


def trained(make_step, dtype=None, fused=True):
    """Trains; returns counts of ops, the fetched values of each step, and all ranks' rows of each table."""
    config = harness.session_config()
    with tf.Graph().as_default(), v1.Session(config=config) as session, sok.optimizers.fused_updates(fused):
        session.run(sok.Init(global_batch_size=24, seed=1, gradient_exchange_dtype=dtype))
        model = Model()
        step = make_step(model)
        counts = op_counts()
        harness.initialize(session)
        fetched = [session.run(step, model.feed(i)) for i in range(STEPS)]
        contents = harness.contents_of_tables(session, model.tables)
        return counts, fetched, contents


def assert_same_bits(one, other):
    """Compares two runs."""
    tf.nest.map_structure(np.testing.assert_array_equal, one[1:], other[1:])


def minimized(make):
    def make_step(model):
        optimizer = make()
        if isinstance(optimizer, train.Optimizer):
            return optimizer.minimize(model.loss, var_list=model.tables)
        return optimizer.apply_gradients(zip_equal(model.gradients(), model.tables))

    return make_step


def fused_and_separate(make_step, **options):
    """A run with fused updates, and one with separate update ops for the four tables."""
    one = trained(make_step, **options)
    other = trained(make_step, fused=False, **options)
    assert other[0] == (0, 4, one[0][2])
    assert_same_bits(one, other)
    return one[0][:2]


# By number of ranks: optimizers, those with averages over ranks, and the dtype in which gradients travel.
CASES = sized(
    {
        1: [(["adam"], ["adagrad"], None)],
        2: [
            (["adadelta", "lazy_adam", "keras_adamax"], ["adagrad"], None),
            (["keras_adam"], ["adadelta"], tf.float16),
        ],
        3: [(["sgd", "keras_nadam"], ["adam"], None), (["adam"], [], tf.bfloat16)],
        4: [(["adagrad"], ["lazy_adam"], None)],
    },
    {2: [(["sgd"], ["adam"], None)], 3: [(["lazy_adam"], [], tf.bfloat16)]},
)


def _check_optimizers():
    for names, averaged, dtype in CASES[communicator().size]:
        initialize._reset()  # Init is given another dtype
        for name in names:
            assert fused_and_separate(minimized(OPTIMIZERS[name]), dtype=dtype) == (1, 0), name
        for name in averaged:
            with averages():
                assert fused_and_separate(minimized(OPTIMIZERS[name]), dtype=dtype) == (1, 0), name


@pytest.mark.parametrize("size", CASES)
def test_ranks_train_with_the_same_bits(size):
    ranks.run(_check_optimizers, ranks=size)
