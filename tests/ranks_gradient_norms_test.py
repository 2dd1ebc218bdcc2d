"""Norms and clips of tables' gradients are those of the exact gradient: one sum per row over all lookups of a
step and over all ranks. The reference is a dense gradient in NumPy."""

import numpy as np
import pytest
import tensorflow as tf

import harness
import ranks
import sparse_operation_kit as sok
from device_of_tests import sized
from same_length import zip_equal
from sparse_operation_kit import compat
from sparse_operation_kit.changes import replacements
from sparse_operation_kit.changes.replacement_table import Part
from sparse_operation_kit.lookup import group
from sparse_operation_kit.ranks.communicator import communicator

v1 = tf.compat.v1
train = v1.train

ROWS = 12
DIM = 3
STEPS = 2
RATE = 0.1
KERAS = compat.legacy_keras_optimizers()


def _bags(ids):
    """Bags of one id."""
    return tf.RaggedTensor.from_value_rowids(ids, tf.range(tf.size(ids))).to_sparse()


def _layer(table, ids):
    lookup = group.SparseLookup(table, _bags(ids), "sum", slots=1, exchange="sums")
    return group.lookup_group([lookup])[0][:, 0]


# The lookups of a step in one table, each of an even number of ids.
LOOKUPS = {
    "rows": tf.nn.embedding_lookup,
    "gather": tf.gather,
    "a matrix of ids": lambda table, ids: tf.reshape(
        tf.nn.embedding_lookup(table, tf.reshape(ids, [-1, 2])), [-1, DIM]
    ),
    "bags": lambda table, ids: tf.nn.embedding_lookup_sparse(table, _bags(ids), None, combiner="sum"),
    "a layer": _layer,
    "a group": lambda table, ids: tf.add_n(sok.group_embedding_lookup([table, table], [ids, ids])) / 2,
}


def _lookups():
    return LOOKUPS if communicator().size == 1 else {name: LOOKUPS[name] for name in ("rows", "a layer")}


class Model:
    """Two tables with the same ids and a vector; the loss is linear, so its gradient is what is fed."""

    def __init__(self):
        self.tables = [sok.EmbeddingVariable(name, DIM, initializer=1.0) for name in ("one", "two")]
        self.vector = v1.get_variable("vector", initializer=np.ones(ROWS, np.float32), use_resource=True)
        self.variables = [*self.tables, self.vector]
        self.ids = [v1.placeholder(tf.int64, [None]) for _ in _lookups()]
        self.factors = [v1.placeholder(tf.float32, [None, DIM]) for _ in _lookups()]
        self.of_vector = v1.placeholder(tf.float32, [ROWS])
        fed = list(zip_equal(_lookups().values(), self.ids, self.factors))
        losses = [
            tf.reduce_sum(look_up(table, ids) * factors)
            for table in self.tables
            for look_up, ids, factors in fed
        ]
        evaluated = sok.group_embedding_lookup(self.tables, [self.ids[0]] * 2, training=False)
        losses.append(tf.reduce_sum(self.vector * self.of_vector) + tf.reduce_sum(evaluated))
        self.losses = [tf.add_n(losses[::2]), tf.add_n(losses[1::2])]
        everything = tf.range(ROWS, dtype=tf.int64)
        self.state = [*(tf.nn.embedding_lookup(table, everything) for table in self.tables), self.vector]

    def batch(self, step, rank):
        rng = np.random.default_rng([step, rank])
        counts = [2 * int(rng.integers(0 if rank else 1, 5)) for _ in _lookups()]
        ids = [rng.integers(0, ROWS, count) for count in counts]
        factors = [rng.normal(size=[count, DIM]).astype(np.float32) for count in counts]
        return ids, factors, rng.normal(size=ROWS).astype(np.float32)

    def feed(self, step):
        ids, factors, of_vector = self.batch(step, communicator().rank)
        lists = zip_equal([*self.ids, *self.factors], [*ids, *factors])
        return {**dict(lists), self.of_vector: of_vector}

    def exact(self, step):
        """The dense gradients of all ranks' batches."""
        of_table, of_vector = np.zeros([ROWS, DIM]), np.zeros(ROWS)
        for rank in range(communicator().size):
            ids, factors, vector = self.batch(step, rank)
            for some, values in zip_equal(ids, factors):
                np.add.at(of_table, some, values)
            of_vector += vector
        return [of_table, of_table, of_vector]


def _added_up(gradients):
    """One gradient for each variable from those of several losses."""
    return [
        tf.IndexedSlices(tf.concat([g.values for g in of_one], 0), tf.concat([g.indices for g in of_one], 0))
        if isinstance(of_one[0], tf.IndexedSlices)
        else tf.add_n([g for g in of_one if g is not None])
        for of_one in zip_equal(*gradients)
    ]


def _norm(gradients):
    return np.sqrt(sum(np.sum(np.square(gradient)) for gradient in gradients))


def _by_norm(gradient, limit, axis=None):
    norm = np.sqrt(np.sum(np.square(gradient), axis=axis, keepdims=True))
    return gradient * limit / np.maximum(norm, limit)


def _of_tables(clip):
    return lambda gradients: [*map(clip, gradients[:2]), gradients[2]]


def _by_global_norm(gradients, limit):
    return [gradient * limit / max(_norm(gradients), limit) for gradient in gradients]


# What a program does with the gradients, and what that does to the dense ones.
CHANGES = {
    "nothing": (list, list),
    "global norm": (lambda gs: tf.clip_by_global_norm(gs, 2.0)[0], lambda gs: _by_global_norm(gs, 2.0)),
    "norm": (lambda gs: [tf.clip_by_norm(g, 2.0) for g in gs], lambda gs: [_by_norm(g, 2.0) for g in gs]),
    "norms of rows": (
        _of_tables(lambda g: tf.clip_by_norm(g, 0.5, axes=[-1])),
        _of_tables(lambda g: _by_norm(g, 0.5, 1)),
    ),
    "norms of columns": (
        _of_tables(lambda g: tf.clip_by_norm(g, 0.5, axes=[0])),
        _of_tables(lambda g: _by_norm(g, 0.5, 0)),
    ),
    "value": (
        lambda gs: [tf.clip_by_value(g, -0.3, 0.2) for g in gs],
        lambda gs: [np.clip(g, -0.3, 0.2) for g in gs],
    ),
    "value, then global norm": (
        lambda gs: tf.clip_by_global_norm([tf.clip_by_value(g, -0.3, 0.2) for g in gs], 0.5)[0],
        lambda gs: _by_global_norm([np.clip(g, -0.3, 0.2) for g in gs], 0.5),
    ),
}
# The same by arguments of Keras' optimizers. Those of TensorFlow 1.15 clip only in their own `minimize`.
OF_KERAS = {"clipnorm": "norm", "global_clipnorm": "global norm"} if compat.IS_TENSORFLOW_2 and KERAS else {}


def _adam(first, second, gradient, step):
    first[:] = 0.9 * first + 0.1 * gradient
    second[:] = 0.999 * second + 0.001 * np.square(gradient)
    rate = RATE * np.sqrt(1 - 0.999**step) / (1 - 0.9**step)
    return rate * first / (np.sqrt(second) + 1e-8)


def _reference(model, change, rule):
    """The variables after the steps, and the norm of the exact gradient in each step."""
    state = [np.ones([ROWS, DIM]), np.ones([ROWS, DIM]), np.ones(ROWS)]
    moments = [(np.zeros_like(one), np.zeros_like(one)) for one in state]
    norms = []
    for step in range(STEPS):
        exact = model.exact(step)
        norms.append([_norm(exact), _norm(exact[:1])])
        for one, of_one, gradient in zip_equal(state, moments, change(exact)):
            one -= RATE * gradient if rule == "sgd" else _adam(*of_one, gradient, step + 1)
    return state, norms


def _deviation(make_step, change, rule):
    """How far training is from the reference, at most, and norms if `make_step` returns them."""
    with harness.graph_and_session() as session:
        model = Model()
        step = make_step(model)
        harness.initialize(session)
        session.run(model.state)  # Adam moves all rows
        found = [session.run(step, model.feed(i)) for i in range(STEPS)]
        want, norms = _reference(model, CHANGES[change][1], rule)
        pairs = list(zip_equal(session.run(model.state), want))
        if isinstance(step, list):
            pairs += [(np.array([one[1:] for one in found]), np.array(norms))]
        return max(float(np.max(np.abs(got - exact) / (1 + np.abs(exact)))) for got, exact in pairs)


MAKE = {
    "sgd": lambda: train.GradientDescentOptimizer(RATE),
    "adam": lambda: train.AdamOptimizer(RATE),
}


def _clipped(change, rule, of_losses):
    def make_step(model):
        optimizer = sok.DistributedOptimizer(MAKE[rule](), op="sum")
        if of_losses == "one by one":
            each = [tf.gradients(loss, model.variables) for loss in model.losses]
            pairs = optimizer.combine_gradients(zip_equal(_added_up(each), model.variables))
        else:
            pairs = optimizer.compute_gradients(tf.add_n(model.losses), model.variables)
        gradients = [gradient for gradient, _ in pairs]
        norms = [tf.linalg.global_norm(gradients), v1.global_norm([gradients[0], None], name="of_one")]
        clipped = CHANGES[change][0](gradients)
        return [optimizer.apply_gradients(zip_equal(clipped, model.variables)), *norms]

    return _deviation(make_step, change, rule)


def _clipped_by_keras(argument, rule):
    def make_step(model):
        kind = KERAS[0][1].SGD if rule == "sgd" else KERAS[0][1].Adam
        more = {"epsilon": 1e-8} if rule == "adam" else {}
        optimizer = sok.DistributedOptimizer(kind(RATE, **{argument: 2.0}, **more), op="sum")
        return optimizer.minimize(tf.add_n(model.losses), var_list=model.variables)

    return _deviation(make_step, OF_KERAS[argument], rule)


# The change, the optimizer, and whether the gradients of the two losses are taken one by one.
PROGRAMS = [
    ("global norm", "sgd", "one by one"),
    ("norm", "adam", "together"),
    ("value", "adam", "one by one"),
]


def check_programs():
    """The deviations of all programs from the reference."""
    found = {program: _clipped(*program) for program in PROGRAMS}
    found.update({argument: _clipped_by_keras(argument, "sgd") for argument in OF_KERAS})
    return found


def check_changes():
    """For each change, the dense gradient of this rank's rows, and the exact one of all rows."""
    with harness.graph_and_session() as session:
        model = Model()
        optimizer = sok.DistributedOptimizer(MAKE["sgd"](), op="sum")
        pairs = optimizer.compute_gradients(tf.add_n(model.losses), model.variables)
        changed = {name: change([g for g, _ in pairs])[0] for name, (change, _) in CHANGES.items()}
        keys, _ = model.tables[0].keys_and_rows()  # of this rank
        harness.initialize(session)
        session.run(model.state)
        keys = session.run(keys)
        found = {}
        for name, gradient in session.run(changed, model.feed(0)).items():
            dense = np.zeros([ROWS, DIM])
            np.add.at(dense, keys[gradient.indices], gradient.values)
            found[name] = dense, CHANGES[name][1](model.exact(0))[0]
        return found


def check_raw_gradients():
    """The deviation of a norm that a program without an optimizer of this library takes."""
    with harness.graph_and_session() as session:
        model = Model()
        norm = tf.linalg.global_norm(tf.gradients(model.losses, model.tables))
        harness.initialize(session)
        want = _norm(model.exact(0)[:2])
        return abs(float(session.run(norm, model.feed(0))) - want) / want


CHECKS = [check_changes, check_programs, check_raw_gradients]


# On two ranks, ranks_collective_strategy_test clips.
@pytest.fixture(scope="module", params=[1, sized(3, 2)], ids="{} ranks".format)
def found(request):
    if request.param > 1:
        return ranks.run_checks(CHECKS, ranks=request.param)
    return {check.__name__: [check()] for check in CHECKS}


@pytest.mark.parametrize("change", CHANGES)
def test_clips_are_those_of_the_exact_gradient(found, change):
    of_ranks = [result[change] for result in found["check_changes"]]
    np.testing.assert_allclose(sum(dense for dense, _ in of_ranks), of_ranks[0][1], rtol=1e-5, atol=1e-6)


def test_training_and_norms_are_those_of_the_exact_gradient(found):
    for deviations in found["check_programs"]:
        assert len(deviations) == len(PROGRAMS) + len(OF_KERAS)
        assert {program: far for program, far in deviations.items() if not far < 2e-6} == {}


def test_raw_gradients_have_the_norm_of_all_ranks(found):
    assert max(found["check_raw_gradients"]) < 1e-6


def test_norms_do_not_depend_on_the_number_of_threads():
    rng = np.random.default_rng(0)
    ids = [rng.integers(0, 30000, 40000) for _ in range(3)]
    factors = [rng.normal(size=[40000, DIM]).astype(np.float32) for _ in ids]
    results = []
    for threads in (1, 2, 7):
        with harness.graph_and_session(intra_op_threads=threads) as session:
            table = sok.EmbeddingVariable("table", DIM)
            fed = [v1.placeholder(tf.float32, [None, DIM]) for _ in ids]
            losses = [tf.reduce_sum(tf.nn.embedding_lookup(table, i) * f) for i, f in zip_equal(ids, fed)]
            (gradient,) = tf.gradients(losses, [table])
            clipped = [tf.clip_by_norm(gradient, 1.0), tf.clip_by_norm(gradient, 1.0, axes=[0])]
            harness.initialize(session)
            fetches = [tf.linalg.global_norm([gradient]), *(one.values for one in clipped)]
            results.append(session.run(fetches, dict(zip_equal(fed, factors))))
    for result in results[1:]:
        harness.assert_equal_arrays(result, results[0])


def _without_tables():
    """The graph of norms and clips of ordinary gradients, and their values in eager execution."""
    with tf.Graph().as_default() as graph:
        sliced, dense = (v1.get_variable(name, [5, 2], use_resource=True) for name in ("sliced", "dense"))
        rows = [tf.gather(sliced, [1, 2, 1]), tf.gather(sliced, [2, 3])]
        loss = tf.reduce_sum(rows[0] ** 2) + tf.reduce_sum(rows[1]) + tf.reduce_sum(dense**2)
        gradients = tf.gradients(loss, [sliced, dense])
        for name in (None, "named"):
            tf.linalg.global_norm([*gradients, None], name)
            tf.clip_by_global_norm(gradients, 0.5, name=name)
            for gradient in gradients:
                tf.clip_by_norm(gradient, 0.5, name=name)
                tf.clip_by_norm(gradient, 0.5, [1], name=name)
                tf.clip_by_value(gradient, -0.1, 0.2, name=name)
    eager = []
    if compat.IS_TENSORFLOW_2:
        with tf.init_scope():
            gradient = tf.IndexedSlices(tf.constant([[0.3, 4.0], [5.0, 6.0]]), tf.constant([1, 1]))
            changed = [tf.clip_by_norm(gradient, 0.5), tf.clip_by_value(gradient, 0.0, 0.5)]
            changed += tf.clip_by_global_norm([gradient], 0.5)[0]
            eager = [tf.linalg.global_norm([gradient]).numpy(), *(one.values.numpy() for one in changed)]
    return str(graph.as_graph_def()), eager


def test_gradients_of_other_variables_go_to_tensorflow():
    replacements.uninstall(Part.NORMS)
    graph, eager = _without_tables()
    replacements.install(Part.NORMS)
    graph_with, eager_with = _without_tables()
    assert graph_with == graph
    harness.assert_equal_arrays(eager_with, eager)


def test_gradients_that_nobody_takes_a_norm_of_are_not_added_up():
    with harness.graph_and_session():
        table = sok.EmbeddingVariable("table", DIM)
        losses = [tf.reduce_sum(tf.nn.embedding_lookup(table, [4, 4])) for _ in range(2)]
        optimizer = train.AdamOptimizer(RATE)
        pairs = optimizer.compute_gradients(tf.add_n(losses), [table])
        optimizer.apply_gradients(pairs)
        types = {op.type for op in v1.get_default_graph().get_operations()}
        assert types.isdisjoint({"Unique", "UniqueV2", "UnsortedSegmentSum"})
        tf.linalg.global_norm([pairs[0][0]])
        types = {op.type for op in v1.get_default_graph().get_operations()}
        assert {"Unique", "UnsortedSegmentSum"} <= types
