# Tags: versions
"""Gradients of several lookups, in any form that optimizers take, dense ones, and those of recomputed
blocks, train tables like variables."""

import numpy as np
import pytest
import tensorflow as tf

import harness
import optimizer_parity
import sparse_operation_kit as sok
from same_length import zip_equal
from sparse_operation_kit import compat
from sparse_operation_kit.changes import replacements
from sparse_operation_kit.changes.replacement_table import Part

session = harness.session

train = tf.compat.v1.train


CHANGES = {
    "clipped by value": lambda gradients: [tf.clip_by_value(g, -0.01, 0.01) for g in gradients],
    "clipped by norm": lambda gradients: [tf.clip_by_norm(g, 0.02) for g in gradients],
    "clipped by global norm": lambda gradients: tf.clip_by_global_norm(gradients, 0.05)[0],
    "twice": lambda gradients: [
        tf.IndexedSlices(g.values * 2, g.indices) if isinstance(g, tf.IndexedSlices) else g * 2
        for g in gradients
    ],
}


@pytest.mark.cases_on_gpu(2)
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize(
    "make", [train.GradientDescentOptimizer, train.AdagradOptimizer, train.AdamOptimizer]
)
def test_changed_gradients_are_what_is_applied(session, make, change):
    # Ids are distinct in a batch, because TensorFlow's norm of a tf.Variable's gradient counts an id twice.
    twins = optimizer_parity.make_twins()
    steps = []
    for loss, variables in (
        (twins.table_loss, [twins.table, twins.table_dense]),
        (twins.rows_loss, [twins.rows, twins.rows_dense]),
    ):
        optimizer = make(twins.learning_rate)
        gradients, variables = zip_equal(*optimizer.compute_gradients(loss, var_list=variables))
        steps.append(optimizer.apply_gradients(zip_equal(CHANGES[change](list(gradients)), variables)))
    twins.start(session)
    for positions, labels in optimizer_parity.batches(30, distinct=True):
        session.run(steps, twins.feed(positions, labels, 0.3))
    assert optimizer_parity.deviation(*twins.read(session)) < 5e-6


@pytest.mark.cases_on_gpu(2)
@pytest.mark.parametrize(
    "make", [train.GradientDescentOptimizer, train.AdagradOptimizer, train.AdamOptimizer]
)
@pytest.mark.parametrize(
    "gate", [train.Optimizer.GATE_NONE, train.Optimizer.GATE_OP, train.Optimizer.GATE_GRAPH]
)
def test_several_lookups_of_one_table_add_up(session, make, gate):
    twins = optimizer_parity.make_twins()
    other = tf.compat.v1.placeholder(tf.int64, [None])
    steps = []
    for variable, positions in (
        (twins.table, [tf.gather(twins.keys, p) for p in (twins.positions, other)]),
        (twins.rows, [twins.positions, other]),
    ):
        first, second = (tf.nn.embedding_lookup(variable, p) for p in positions)
        loss = tf.reduce_mean(tf.reduce_sum(first**2, axis=1) * twins.labels) + tf.reduce_sum(tf.sin(second))
        optimizer = make(twins.learning_rate)
        pairs = optimizer.compute_gradients(loss, var_list=[variable], gate_gradients=gate)
        steps.append(optimizer.apply_gradients(pairs))
    twins.start(session)
    rng = np.random.default_rng(0)
    for positions, labels in optimizer_parity.batches(30):
        feed = twins.feed(positions, labels, 0.02)
        session.run(steps, {**feed, other: rng.choice(positions, 5)})
    assert optimizer_parity.deviation(*twins.read(session)) < 5e-6


def test_several_tables_and_dense_variables_in_one_optimizer(session):
    rng = np.random.default_rng(0)
    dims = (1, 3, 16)
    keys = np.arange(-10, 10)
    tables = [sok.EmbeddingVariable(name=f"table{dim}", dim=dim) for dim in dims]
    plains = [tf.Variable(np.zeros([keys.size, dim], np.float32)) for dim in dims]
    start = rng.standard_normal([sum(dims), 1]).astype(np.float32)
    dense = [tf.Variable(start) for _ in range(2)]
    positions = [tf.compat.v1.placeholder(tf.int64, [None]) for _ in dims]
    rows = [tf.nn.embedding_lookup(table, keys) for table in tables]
    steps = []
    for which, variables in enumerate((tables, plains)):
        ids = [tf.gather(keys, p) if which == 0 else p for p in positions]
        features = [tf.nn.embedding_lookup(v, i) for v, i in zip_equal(variables, ids)]
        loss = tf.reduce_mean(tf.sin(3 * tf.matmul(tf.concat(features, axis=1), dense[which])))
        optimizer = train.AdamOptimizer(0.05)
        steps.append(optimizer.minimize(loss, var_list=[dense[which], *variables]))
    harness.initialize(session)
    for plain, row in zip_equal(plains, rows):
        plain.load(session.run(row), session)
    for _ in range(50):
        session.run(steps, {p: rng.integers(0, keys.size, 8) for p in positions})
    for got, want in session.run(list(zip_equal([*rows, dense[0]], [*plains, dense[1]]))):
        assert optimizer_parity.deviation(got, want) < 5e-5


def test_missing_gradient_leaves_a_table_alone(session):
    used, unused = (sok.EmbeddingVariable(name=name, dim=2, initializer=1.0) for name in ("used", "unused"))
    rows = [tf.nn.embedding_lookup(table, [4]) for table in (used, unused)]
    optimizer = train.AdamOptimizer(0.1)
    pairs = optimizer.compute_gradients(tf.reduce_sum(rows[0]), var_list=[used, unused])
    assert pairs[1][0] is None
    step = optimizer.apply_gradients(pairs)
    harness.initialize(session)
    session.run(step)
    moved, stayed = session.run(rows)
    np.testing.assert_allclose(moved, [[0.9, 0.9]], rtol=1e-5)
    np.testing.assert_array_equal(stayed, [[1.0, 1.0]])


def test_rows_named_twice_in_a_gradient_get_the_sum(session):
    table = sok.EmbeddingVariable(name="table", dim=1, initializer=0.0)
    rows = tf.nn.embedding_lookup(table, [10, 11])
    gradient = tf.IndexedSlices(tf.constant([[1.0], [2.0], [4.0]]), tf.constant([1, 0, 1], tf.int32))
    step = train.AdagradOptimizer(1.0, initial_accumulator_value=11.0).apply_gradients([(gradient, table)])
    harness.initialize(session)
    session.run(rows)
    session.run(step)
    np.testing.assert_allclose(session.run(rows), [[-2 / np.sqrt(15)], [-5 / np.sqrt(36)]], rtol=1e-6)


_KERAS = compat.legacy_keras_optimizers()


@pytest.fixture(autouse=True)
def _leave_optimizers_as_they_were():
    installed = replacements.is_installed(Part.OPTIMIZERS)
    yield
    replacements.uninstall(Part.OPTIMIZERS)
    if installed:
        replacements.install(Part.OPTIMIZERS)


def _plain_optimizers():
    train = tf.compat.v1.train
    made = {
        "sgd": train.GradientDescentOptimizer(0.1),
        "momentum": train.MomentumOptimizer(0.1, 0.9),
        "adam": train.AdamOptimizer(0.1),
        "adadelta": train.AdadeltaOptimizer(0.1),
    }
    if _KERAS:
        legacy = _KERAS[0][1]
        # 1.15 can only clip each gradient by its own norm.
        clip = "clipnorm" if compat.VERSION < (2, 0) else "global_clipnorm"
        made.update({"keras_sgd": legacy.SGD(0.1), "keras_adam": legacy.Adam(0.1, **{clip: 1.0})})
        made.update({"keras_nadam": legacy.Nadam(0.1)})
    return made


def _train_plain_model(name):
    """Trains without embedding variables; returns (results, names of all ops)."""
    with tf.Graph().as_default() as graph, tf.compat.v1.Session() as session:
        optimizer = _plain_optimizers()[name]
        rng = np.random.default_rng(0)
        table = optimizer_parity.resource(rng.standard_normal([8, 3]).astype(np.float32), name="table")
        dense = optimizer_parity.resource(rng.standard_normal([3, 1]).astype(np.float32), name="dense")
        loss = tf.reduce_sum(tf.matmul(tf.nn.embedding_lookup(table, [1, 2, 2, 5]), dense) ** 2)
        step = optimizer_parity.train(optimizer, loss, [table, dense])
        harness.initialize(session)
        for _ in range(5):
            session.run(step)
        return session.run([table, dense]), [operation.name for operation in graph.get_operations()]


@pytest.mark.cases_on_gpu(2)
@pytest.mark.parametrize("name", _plain_optimizers())
def test_plain_models_are_untouched(name):
    replacements.uninstall(Part.OPTIMIZERS)
    want, want_names = _train_plain_model(name)
    replacements.install(Part.OPTIMIZERS)
    got, got_names = _train_plain_model(name)
    harness.assert_equal_arrays(got, want)
    assert got_names == want_names


def test_methods_replaced_for_a_call_are_back_after_it(session):
    # Replacements of an optimizer's methods for a call must be undone after it.
    table = sok.EmbeddingVariable(name="table", dim=2)
    optimizer = tf.compat.v1.train.AdamOptimizer(0.1)
    optimizer.minimize(tf.reduce_sum(tf.nn.embedding_lookup(table, [1])), var_list=[table])
    assert [name for name, value in vars(optimizer).items() if callable(value)] == []


def test_train_op_and_global_step_are_tensorflows(session):
    table = sok.EmbeddingVariable(name="table", dim=2)
    dense = tf.Variable([[1.0], [1.0]])
    loss = tf.reduce_sum(tf.matmul(tf.nn.embedding_lookup(table, [1, 2]), dense))
    global_step = tf.compat.v1.train.get_or_create_global_step()
    optimizer = tf.compat.v1.train.AdamOptimizer(0.1)
    step = optimizer.minimize(loss, global_step=global_step, name="train")
    harness.initialize(session)
    session.run([step])
    session.run([step])
    assert session.run(global_step) == 2
    assert step.name == "train"
    assert tf.compat.v1.get_collection(tf.compat.v1.GraphKeys.TRAIN_OP) == [step]
    names = sorted(variable.name for variable in optimizer.variables())
    assert names == ["Variable/Adam:0", "Variable/Adam_1:0", "beta1_power:0", "beta2_power:0"]
    assert optimizer.get_slot(table, "m") is None


@pytest.mark.cases_on_gpu(2)
@pytest.mark.parametrize("dense", [True, False])
def test_adam_counts_one_step_per_call(session, dense):
    tables = [sok.EmbeddingVariable(name=name, dim=2) for name in "ab"]
    loss = sum(tf.reduce_sum(tf.nn.embedding_lookup(table, [1, 2])) for table in tables)
    variables = list(tables)
    if dense:
        variables.append(tf.Variable(1.0))
        loss *= variables[-1]
    optimizer = tf.compat.v1.train.AdamOptimizer(0.1, beta1=0.5, beta2=0.75)
    step = optimizer.minimize(loss, var_list=variables)
    harness.initialize(session)
    for _ in range(3):
        session.run(step)
    assert session.run(optimizer._get_beta_accumulators()) == (0.5**4, 0.75**4)


@pytest.mark.cases_on_gpu(2)
@pytest.mark.skipif(not _KERAS, reason="this TensorFlow has no legacy Keras optimizers")
def test_keras_minimize_of_a_function_and_get_slot(session):
    table = sok.EmbeddingVariable(name="table", dim=2, initializer=1.0)
    optimizer = _KERAS[0][1].SGD(0.25, momentum=0.5)
    step = optimizer.minimize(lambda: tf.reduce_sum(tf.nn.embedding_lookup(table, [7])), [table])
    rows = tf.nn.embedding_lookup(table, [7])
    harness.initialize(session)
    session.run(step)
    np.testing.assert_array_equal(session.run(rows), [[0.75, 0.75]])
    session.run(step)
    np.testing.assert_array_equal(session.run(rows), [[0.375, 0.375]])
    assert session.run(optimizer.iterations) == 2
    assert optimizer.get_slot(table, "momentum") is None


def averaged(tower_grads):
    """The average of each gradient over towers, as TensorFlow's tutorial for several GPUs computes it."""
    average = []
    for pairs in zip(*tower_grads):
        gradients = tf.concat([tf.expand_dims(gradient, 0) for gradient, _ in pairs], axis=0)
        average.append((tf.reduce_mean(gradients, 0), pairs[0][1]))
    return average


@pytest.mark.parametrize("options", [{"capacity": 4}, {"capacity": 10, "use_hashtable": False}])
@pytest.mark.parametrize("optimizer", ["GradientDescentOptimizer", "AdamOptimizer", "AdagradOptimizer"])
def test_a_dense_gradient_of_a_table_with_a_capacity(session, options, optimizer):
    table = sok.EmbeddingVariable(name="table", dim=2, **options)
    ordinary = tf.compat.v1.get_variable("ordinary", [10, 2])
    rows = tf.nn.embedding_lookup(table, [9, 8, 7])
    same_start = ordinary.assign(tf.scatter_nd([[9], [8], [7]], rows, [10, 2]))
    trainer = getattr(tf.compat.v1.train, optimizer)(0.5)
    towers = []
    for ids, scale in (([9, 8, 9], 2.0), ([8, 7], 3.0)):
        looked_up = [tf.nn.embedding_lookup(one, ids) for one in (table, ordinary)]
        loss = tf.add_n([tf.reduce_sum(tf.square(one)) * scale for one in looked_up])
        towers.append(trainer.compute_gradients(loss, [table, ordinary]))
    step = trainer.apply_gradients(averaged(towers))
    dense = tf.convert_to_tensor(towers[0][0][0])
    assert dense.shape.as_list() == [options["capacity"], 2]
    harness.initialize(session)
    session.run(same_start)
    for _ in range(3):
        session.run(step)
        np.testing.assert_allclose(session.run(rows), session.run(ordinary)[[9, 8, 7]], rtol=1e-6, atol=1e-7)


def dense_uses():
    """Functions that make a tensor of a gradient, by name."""
    return {
        "add_n": lambda gradient: tf.add_n([gradient, gradient]),
        "clip_by_average_norm": lambda gradient: tf.compat.v1.clip_by_average_norm(gradient, 1.0),
        "concat": lambda gradient: tf.concat([gradient, gradient], 0),
        "convert_to_tensor": tf.convert_to_tensor,
        "expand_dims": lambda gradient: tf.expand_dims(gradient, 0),
        "histogram": lambda gradient: tf.compat.v1.summary.histogram("gradient", gradient),
        "multiply": lambda gradient: tf.multiply(gradient, 2.0),
        "norm": tf.norm,
        "stack": lambda gradient: tf.stack([gradient, gradient]),
    }


@pytest.mark.parametrize("use", sorted(dense_uses()))
def test_a_gradient_without_a_dense_form_names_the_table(session, use):
    table = sok.EmbeddingVariable(name="scope/table", dim=2)
    rows = tf.nn.embedding_lookup(table, [9, 8, 9])
    more = tf.nn.embedding_lookup(table, [8])
    (of_one,) = tf.gradients(tf.reduce_sum(rows), table)
    (of_two,) = tf.gradients(tf.reduce_sum(rows) + tf.reduce_sum(more), table)
    clipped = tf.clip_by_norm(of_two, 1.0)
    for gradient in (of_one, of_two, clipped, -clipped):
        with pytest.raises(NotImplementedError, match="'scope/table' has no dense form.*`values`"):
            dense_uses()[use](gradient)


def test_dense_forms_of_gradients_are_exact(session):
    table = sok.EmbeddingVariable(name="table", dim=2, capacity=6)
    other = sok.EmbeddingVariable(name="other", dim=2, capacity=6)
    outputs = sok.group_embedding_lookup([other, table, table], [[1], [9, 8, 9], [8]])
    gradient = tf.gradients(tf.add_n([tf.reduce_sum(output) for output in outputs]), [table])[0]
    both = tf.IndexedSlices(
        tf.concat([gradient.values] * 2, 0),
        tf.concat([gradient.indices, tf.gradients(outputs[0], other)[0].indices], 0),
    )
    with pytest.raises(NotImplementedError, match="'(table|other)', '(table|other)' .*several tables"):
        tf.convert_to_tensor(both)
    assert tf.convert_to_tensor(tf.IndexedSlices(tf.ones([1, 2]), [1], [3, 2])).shape == [3, 2]
    with pytest.raises(ValueError, match="dense_shape"):
        tf.convert_to_tensor(tf.IndexedSlices(tf.ones([1, 2]), tf.constant([1])))
    with pytest.raises(ValueError, match="float64"):
        tf.convert_to_tensor(gradient, tf.float64)
    keys, rows = table.keys_and_rows()
    dense = [tf.convert_to_tensor(gradient), tf.convert_to_tensor(gradient, tf.float32, name="given")]
    assert dense[1].op.name == "given"
    harness.initialize(session)
    first, second = session.run(dense)
    np.testing.assert_array_equal(first, second)
    at = {key: row for row, key in enumerate(session.run(keys))}
    assert first[at[9]].tolist() == first[at[8]].tolist() == [2, 2] and first.sum() == 8
    assert session.run(rows).shape == (2, 2)


OPTIONS = [{}, {"capacity": 9}, {"capacity": 9, "use_hashtable": False}]
KEYS = np.arange(1, 7)


class Model:
    """Two lookups in one table and one in another, a kernel, and an input that is trained.

    Its ops have kernels on the GPU of `fake_gpu` too: recomputed ones are placed beside the tables.
    """

    def __init__(self, **options):
        self.first = sok.EmbeddingVariable(name="scope/first", dim=2, **options)
        self.second = sok.EmbeddingVariable(name="second", dim=2, **options)
        self.kernel = tf.compat.v1.get_variable("kernel", [2], use_resource=True)
        self.factor = tf.constant([[2.0, -3.0]])
        self.sources = [self.first, self.second, self.kernel, self.factor]

    def output(self, factor):
        rows = tf.nn.embedding_lookup(self.first, [1, 2, 1])
        more = sok.group_embedding_lookup([self.first, self.second], [[2, 3, 4], [5, 5, 6]])
        return tf.square((rows + more[0] * more[1]) * self.kernel) * factor

    def gradients(self, function, with_tape=False):
        if not with_tape:
            return tf.gradients(tf.reduce_sum(function(self.factor)), self.sources)
        with tf.GradientTape() as tape:
            tape.watch(self.factor)
            loss = tf.reduce_sum(function(self.factor))
        return tape.gradient(loss, self.sources)

    def values(self, session, gradients):
        """Returns the gradients' values, those of tables by key."""
        of_tables = [
            harness.gradient_by_key(session, table, gradient, KEYS)
            for table, gradient in zip(self.sources[:2], gradients)
        ]
        return [*of_tables, *session.run(gradients[2:])]


@pytest.mark.parametrize("with_tape", [False, True])
@pytest.mark.parametrize("options", OPTIONS)
def test_gradients_are_those_of_the_function(session, options, with_tape):
    model = Model(**options)
    recomputed = tf.recompute_grad(model.output)
    got, want = model.gradients(recomputed, with_tape), model.gradients(model.output, with_tape)
    assert recomputed.__wrapped__ == model.output
    outputs = [recomputed(model.factor), model.output(model.factor)]
    harness.initialize(session)
    np.testing.assert_array_equal(*session.run(outputs))
    for one, other in zip(model.values(session, got), model.values(session, want)):
        assert np.any(other != 0)
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-9)


def test_lookups_are_made_once(session):
    model = Model(admission=sok.CounterFilter(filter_freq=1))
    gradients = model.gradients(tf.recompute_grad(tf.recompute_grad(model.output)))
    counts = model.first.get_frequency(tf.constant(KEYS))
    harness.initialize(session)
    session.run([gradient for gradient in gradients if gradient is not None])
    assert session.run(counts).tolist() == [2, 2, 1, 1, 0, 0]


def test_an_optimizer_trains_what_is_recomputed():
    results = []
    for wrap in (tf.recompute_grad, lambda function: function):
        with harness.graph_and_session() as session:
            tf.compat.v1.set_random_seed(7)
            model = Model()
            with tf.compat.v1.variable_scope("outer"):
                loss = tf.reduce_sum(wrap(wrap(model.output))(model.factor))
            step = tf.compat.v1.train.AdamOptimizer(0.1).minimize(loss)
            rows = tf.nn.embedding_lookup(model.first, KEYS)
            harness.initialize(session)
            for _ in range(3):
                session.run(step)
            results.append(session.run(rows))
    np.testing.assert_allclose(*results, rtol=1e-5)


def test_a_function_without_lookups_builds_the_ops_of_tensorflow():
    def build(with_table):
        with harness.graph_and_session():
            if with_table:
                sok.EmbeddingVariable(name="table", dim=2)
            kernel = tf.compat.v1.get_variable("kernel", [2, 2], use_resource=True)
            before = len(tf.compat.v1.get_default_graph().get_operations())
            output = tf.recompute_grad(lambda x: tf.matmul(x, kernel))(tf.ones([1, 2]))
            tf.gradients(output, kernel)
            return [op.type for op in tf.compat.v1.get_default_graph().get_operations()[before:]]

    assert build(True) == build(False)


def test_errors_of_the_function_are_its_own():
    def fails(factor):
        raise KeyError("mine")

    with harness.graph_and_session():
        model = Model()
        with pytest.raises(KeyError, match="mine"):
            tf.recompute_grad(fails)(model.factor)

        def branches(factor):
            look_up = lambda: tf.nn.embedding_lookup(model.first, [1])  # noqa: E731
            return factor * tf.cond(tf.reduce_sum(factor) > 0, look_up, look_up)

        with pytest.raises(TypeError, match="'scope/first' inside tf.cond"):
            tf.recompute_grad(branches)(model.factor)
