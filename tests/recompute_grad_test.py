"""tf.recompute_grad around lookups in embedding variables."""

import numpy as np
import pytest
import tensorflow as tf

import harness
import sparse_operation_kit as sok

session = harness.session

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
