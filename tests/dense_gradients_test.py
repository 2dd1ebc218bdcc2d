"""Gradients that reach a table as dense tensors, or through recomputed blocks."""

import numpy as np
import pytest
import tensorflow as tf

import harness
import sparse_operation_kit as sok

session = harness.session


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
