# Tags: slow
"""Optimizers over ranks: sok.DistributedOptimizer trains models with and without tables as in one process;
fused updates give the same bits with the same exchanges."""

import contextlib
import functools

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

train = tf.compat.v1.train
legacy = compat.legacy_keras_optimizers()[0][1]
LossScaleOptimizer = sok.tf.keras.mixed_precision.LossScaleOptimizer
Distributed = sok.DistributedOptimizer

BATCH = 24
STEPS = 12
VOCABULARY = 30
# The boundaries of the ranks' parts of a batch: uneven parts, and an empty one.
BOUNDS = {1: [0, BATCH], 2: [0, 7, BATCH], 3: [0, 5, 5, BATCH]}

INNER = {
    "sgd": lambda: train.GradientDescentOptimizer(0.2),
    "adagrad": lambda: train.AdagradOptimizer(0.1),
    "adam": lambda: train.AdamOptimizer(0.01),
    "keras_sgd": lambda: legacy.SGD(0.2),
}

WRAPPED = {
    "gathered slices": lambda inner: Distributed(inner, op="sum"),
    "dense slices": lambda inner: Distributed(inner, op="sum", sparse_as_dense=True),
    "loss scale outside": lambda inner: LossScaleOptimizer(Distributed(inner, op="sum"), initial_scale=8.0),
    "loss scale inside": lambda inner: Distributed(LossScaleOptimizer(inner, initial_scale=8.0), op="sum"),
}


class _Model:
    """A table, an ordinary embedding and a dense layer; the loss is divided by the global batch size."""

    def __init__(self):
        self.ids = tf.compat.v1.placeholder(tf.int64, [None])
        self.labels = tf.compat.v1.placeholder(tf.float32, [None])
        self.table = sok.EmbeddingVariable("table", dim=4)
        initial = np.random.default_rng(3).normal(size=[VOCABULARY, 4]).astype(np.float32)
        self.ordinary = tf.compat.v1.get_variable("ordinary", initializer=initial, use_resource=True)
        self.kernel = tf.compat.v1.get_variable("kernel", initializer=initial[:8, 0], use_resource=True)
        rows = tf.nn.embedding_lookup(self.table, self.ids)
        features = tf.concat([rows, tf.nn.embedding_lookup(self.ordinary, self.ids)], axis=1)
        logits = tf.linalg.matvec(features, self.kernel)
        losses = tf.nn.sigmoid_cross_entropy_with_logits(labels=self.labels, logits=logits)
        self.loss = tf.reduce_sum(losses) / BATCH
        self.all_rows = tf.nn.embedding_lookup(self.table, tf.range(VOCABULARY, dtype=tf.int64))

    def feed(self, step):
        """This rank's part of a step's batch."""
        rng = np.random.default_rng(step)
        ids = rng.integers(0, VOCABULARY, BATCH)
        bounds = BOUNDS[communicator().size]
        mine = ids[bounds[communicator().rank] : bounds[communicator().rank + 1]]
        return {self.ids: mine, self.labels: (mine % 3 == 0).astype(np.float32)}

    def state(self, session):
        return session.run([self.all_rows, self.ordinary, self.kernel])


def _trained(make_train_op):
    with harness.graph_and_session() as session:
        model = _Model()
        step = make_train_op(model)
        harness.initialize(session)
        for i in range(STEPS):
            session.run(step, model.feed(i))
        return model.state(session)


def _by_global_norm(model, between=lambda: None):
    optimizer = Distributed(train.GradientDescentOptimizer(0.5), op="sum")
    gradients, variables = zip_equal(*optimizer.compute_gradients(model.loss))
    between()
    clipped, _ = tf.clip_by_global_norm(gradients, 0.05)
    return optimizer.apply_gradients(zip_equal(clipped, variables))


# Ways to train, with a clip that sees the gradients and the rows of the whole batch.
WAYS = {
    f"{wrapped}, {inner}": lambda model, wrapped=wrapped, inner=inner: WRAPPED[wrapped](
        INNER[inner]()
    ).minimize(model.loss)
    for wrapped in WRAPPED
    for inner in INNER
    if wrapped == "gathered slices" or inner == "adagrad"
}
WAYS["global norm"] = _by_global_norm


def _in_collective_training():
    from sparse_operation_kit import deeprec  # adds names to TensorFlow

    with deeprec.CollectiveStrategy().scope():
        pass
    deeprec.uninstall()


def _by_hand(model):
    optimizer = Distributed(train.AdagradOptimizer(0.1), op="sum")
    variables = [model.table, model.ordinary, model.kernel]
    pairs = list(zip_equal(tf.gradients(model.loss, variables), variables))
    with pytest.raises(ValueError, match="not combined over the ranks"):
        optimizer.apply_gradients(pairs)
    return optimizer.apply_gradients(optimizer.combine_gradients(pairs))


def _by_horovod(model):
    import horovod.tensorflow as hvd

    tables, others = sok.split_embedding_variable_from_others([model.table, model.ordinary, model.kernel])
    optimizer = train.AdagradOptimizer(0.1)
    pairs = optimizer.compute_gradients(model.loss, [*tables, *others])
    reduced = [(hvd.allreduce(g, op=hvd.Sum), v) for g, v in pairs if v is not model.table]
    return optimizer.apply_gradients([pairs[0], *reduced])


# Ways for several ranks, and the way of one process that each equals.
OF_RANKS = {
    "norms after collective training": (
        lambda model: _by_global_norm(model, _in_collective_training),
        "global norm",
    ),
    "combined by hand": (_by_hand, "gathered slices, adagrad"),
    "combined by Horovod": (_by_horovod, "gathered slices, adagrad"),
}


def check_training():
    ways = {**WAYS, **{way: make for way, (make, _) in OF_RANKS.items() if communicator().size > 1}}
    return {way: _trained(make) for way, make in ways.items()}


def check_gathered_gradients_of_tables_are_refused():
    import horovod.tensorflow as hvd

    messages = []
    with tf.Graph().as_default():
        model = _Model()
        inner = train.GradientDescentOptimizer(0.1)
        gradient = tf.gradients(model.loss, [model.table])[0]
        for make in (
            lambda: hvd.DistributedOptimizer(inner).minimize(
                model.loss, var_list=[model.table, model.kernel]
            ),
            lambda: inner.apply_gradients([(hvd.allreduce(gradient, op=hvd.Sum), model.table)]),
        ):
            with pytest.raises(ValueError) as error:
                make()
            messages.append(str(error.value))
        conditional = tf.cond(model.loss > 0, lambda: gradient.values, lambda: gradient.values * 2)
        inner.apply_gradients([(tf.IndexedSlices(conditional, tf.identity(gradient.indices)), model.table)])
    return messages


def check_sum_and_average():
    """How far a rank-dependent gradient moves a dense and a sliced variable, by form of the argument."""
    import horovod.tensorflow as hvd

    moved = []
    for op in ("sum", "average", hvd.Sum, hvd.Average):
        with tf.Graph().as_default(), tf.compat.v1.Session(config=harness.session_config()) as session:
            dense, sliced = tf.Variable([0.0], name="dense"), tf.Variable([[0.0]], name="sliced")
            parts = tf.reduce_sum(dense) + tf.reduce_sum(tf.gather(sliced, [0]))
            loss = parts * (1.0 + communicator().rank)
            step = Distributed(train.GradientDescentOptimizer(1.0), op=op).minimize(loss)
            harness.initialize(session)
            session.run(step)
            moved.append([-float(np.squeeze(value)) for value in session.run([dense, sliced])])
    return moved


def check_a_gradient_that_is_not_finite_on_one_rank():
    results = []
    for wrapped in ("loss scale outside", "loss scale inside"):
        with harness.graph_and_session() as session:
            table = sok.EmbeddingVariable("table", dim=2, initializer=1.0)
            poison = tf.compat.v1.placeholder(tf.float32, [])
            rows = tf.nn.embedding_lookup(table, [communicator().rank])
            optimizer = WRAPPED[wrapped](train.GradientDescentOptimizer(0.5))
            step = optimizer.minimize(tf.reduce_sum(rows) * poison)
            scale = getattr(optimizer, "loss_scale", None)
            scale = optimizer.inner_optimizer.loss_scale if scale is None else scale
            harness.initialize(session)
            last = communicator().rank == communicator().size - 1
            session.run(step, {poison: np.inf if last else 1.0})
            skipped = session.run([rows, scale])
            session.run(step, {poison: 1.0})
            results.append([np.asarray(value).tolist() for value in [*skipped, session.run(rows)]])
    return results


CHECKS = [value for name, value in list(globals().items()) if name.startswith("check_")]


SIZE = sized(3, 2)


@functools.lru_cache(maxsize=None)
def _launched(size):
    """The results of the checks that run on a number of ranks; MPI starts two of them."""
    checks = CHECKS if size == SIZE else [check_sum_and_average]
    of_updates = [_check_optimizers] if size in CASES else []
    return ranks.run_checks([*checks, *of_updates], ranks=size, transport="mpi" if size == 2 else "gloo")


@pytest.fixture(scope="module")
def one_process():
    return check_training()


@pytest.mark.parametrize("way", [*WAYS, *OF_RANKS])
def test_training_is_that_of_one_process(one_process, way):
    expected = one_process[OF_RANKS[way][1] if way in OF_RANKS else way]
    for of_rank in _launched(SIZE)["check_training"]:
        harness.assert_close_arrays(of_rank[way], expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("size", [2, 3])
def test_sum_and_average(size):
    total = sum(range(1, size + 1))
    expected = [[total] * 2, [total / size] * 2] * 2
    for moved in _launched(size)["check_sum_and_average"]:
        np.testing.assert_allclose(moved, expected, rtol=1e-6)


def test_gradients_of_tables_that_horovod_gathered_are_refused():
    for messages in _launched(SIZE)["check_gathered_gradients_of_tables_are_refused"]:
        assert len(messages) == 2
        for message in messages:
            assert "embedding variable 'table' went through Horovod's allreduce" in message
            assert "sok.DistributedOptimizer" in message


def test_all_ranks_skip_a_step_that_is_not_finite_on_one():
    for results in _launched(SIZE)["check_a_gradient_that_is_not_finite_on_one_rank"]:
        assert results == [[[[1.0, 1.0]], 4.0, [[0.5, 0.5]]]] * 2


deeprec.uninstall()  # importing it has installed its names
v1 = tf.compat.v1

STEPS_UPDATES = 3
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
    return tf.RaggedTensor.from_value_rowids(keys, tf.range(tf.size(keys)) // 3).to_sparse()


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
        fetched = [session.run(step, model.feed(i)) for i in range(STEPS_UPDATES)]
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
    """The output names the optimizer."""
    _launched(size)
