# Tags: versions
"""tf.GradientTape in graphs: it watches tables like variables, and its gradients train them."""

import re

import numpy as np
import pytest
import tensorflow as tf

import feature_column_support as support
import harness
import sparse_operation_kit as sok
from same_length import zip_equal
from sparse_operation_kit import compat, feature_columns
from sparse_operation_kit.compat.tensors import with_values

pytestmark = pytest.mark.cases_on_gpu(2)
session = harness.session

originals_afterwards = support.originals_afterwards
v1 = tf.compat.v1
train = v1.train
KEYS = [5, 6, 5, -1, 7, 6]


def sparse_keys():
    indices = [[0, 0], [0, 1], [1, 0], [2, 0], [2, 1], [3, 0]]
    return tf.SparseTensor(indices, tf.constant(KEYS, tf.int64), [4, 2])


def table(name="table", dim=3, **arguments):
    return sok.EmbeddingVariable(name, dim=dim, **arguments)


def distributed_layer():
    layer = sok.DistributedEmbedding("mean", 100, 3, 2, 2, name="layer")
    return [layer.embedding_variable], layer(sparse_keys())


def all2all_layer():
    layer = sok.All2AllDenseEmbedding(100, 3, 2, 3, name="layer")
    return [layer.embedding_variable], layer(tf.reshape(tf.constant(KEYS, tf.int64), [1, 2, 3]))


def embedding_lookup():
    variable = table()
    return [variable], tf.nn.embedding_lookup(variable, KEYS)


def lookup_of_a_fixed_table():
    variable = table(capacity=8, use_hashtable=False)
    return [variable], tf.nn.embedding_lookup(variable, np.abs(KEYS))


def embedding_lookup_sparse():
    variable = table()
    return [variable], tf.nn.embedding_lookup_sparse(variable, sparse_keys(), None, combiner="sqrtn")


def gather():
    variable = table()
    return [variable], tf.gather(variable, tf.constant(KEYS, tf.int64))


def several_lookups():
    variable = table()
    return [variable], tf.nn.embedding_lookup(variable, KEYS) * tf.nn.embedding_lookup(variable, KEYS[::-1])


def group():
    variables = [table(f"table{i}", dim) for i, dim in enumerate((3, 1, 4))]
    weights = with_values(sparse_keys(), tf.constant([1, 2, 0.5, 3, 1, 1.0]))
    rows = sok.group_embedding_lookup_sparse(
        variables, [sparse_keys()] * 3, ["sum", "mean", "sqrtn"], sp_weights=[None, weights, None]
    )
    return variables, tf.concat(rows, axis=1)


def group_of_rows():
    variables = [table(f"table{i}", dim) for i, dim in enumerate((3, 1))]
    return variables, tf.concat(sok.group_embedding_lookup(variables, [KEYS] * 2), axis=1)


def _column(key="a"):
    keys = feature_columns.categorical_column_with_embedding(key, tf.int64)
    return tf.feature_column.embedding_column(keys, 3)


def input_layer():
    with feature_columns.group_embedding_column_scope():
        columns = [_column("a"), _column("b")]
    rows = support.input_layer({"a": tf.constant(KEYS, tf.int64), "b": tf.constant(KEYS, tf.int64)}, columns)
    return v1.trainable_variables(), rows


def dense_features():
    layer = support.dense_features([_column()], name="layer")
    return layer.trainable_weights, layer({"a": tf.constant(KEYS, tf.int64)})


def linear_model():
    column = feature_columns.categorical_column_with_embedding("a", tf.int64)
    rows = support.fc.linear_model({"a": tf.constant(KEYS, tf.int64)}, [column])
    return [variable for variable in v1.trainable_variables() if hasattr(variable, "dim")], rows


LOOKUPS = [
    distributed_layer,
    all2all_layer,
    embedding_lookup,
    lookup_of_a_fixed_table,
    embedding_lookup_sparse,
    gather,
    several_lookups,
    group,
    group_of_rows,
    input_layer,
    pytest.param(dense_features, marks=support.needs_dense_features),
    linear_model,
]


def update_ops():
    return sorted(
        op.type
        for op in v1.get_default_graph().get_operations()
        if op.type.startswith("Sok") and op.type.endswith("ApplyGradients")
    )


@pytest.mark.parametrize("look_up", LOOKUPS)
def test_a_tape_gives_what_tf_gradients_gives(session, look_up):
    with tf.GradientTape() as tape:
        variables, rows = look_up()
        loss = tf.reduce_sum(tf.square(rows - 0.5))
    assert {id(variable) for variable in tape.watched_variables()} >= {id(one) for one in variables}
    got, want = tape.gradient(loss, variables), tf.gradients(loss, variables)
    for gradient, wanted in zip_equal(got, want):
        assert isinstance(gradient, tf.IndexedSlices)
        assert gradient.values.op.type == wanted.values.op.type
    harness.initialize(session)
    got, want = session.run([got, want])
    for gradient, wanted in zip_equal(got, want):
        assert np.any(gradient.values)
        np.testing.assert_array_equal(gradient.indices, wanted.indices)
        np.testing.assert_array_equal(gradient.values, wanted.values)


@pytest.mark.parametrize("in_function", [False, True])
@pytest.mark.parametrize("optimizer", [train.GradientDescentOptimizer, sok.optimizers.Adam])
def test_a_loop_trains_a_table_as_it_trains_a_variable(optimizer, in_function):
    start = np.full([6, 2], 0.25, np.float32)
    makers = [
        lambda: table(dim=2, capacity=6, use_hashtable=False, initializer=0.25),
        lambda: v1.Variable(start, use_resource=True),
    ]
    (losses, rows, kernel), want = (_losses_rows_and_kernel(make, optimizer, in_function) for make in makers)
    assert losses[-1] < losses[0] and np.any(rows != start)
    harness.assert_close_arrays((losses, rows, kernel), want, rtol=2e-6, atol=1e-7)


def _losses_rows_and_kernel(make, optimizer, in_function):
    with harness.graph_and_session() as session:
        variables = [make(), v1.Variable([[1.0], [-2.0]], use_resource=True)]
        placeholder = v1.placeholder(tf.int64, [None])

        def gradients_of(keys):
            with tf.GradientTape() as tape:
                rows = tf.nn.embedding_lookup(variables[0], keys)
                loss = tf.reduce_sum(tf.square(tf.matmul(tf.tanh(rows), variables[1]) - 1))
            return loss, tape.gradient(loss, variables)

        loss, gradients = (tf.function(gradients_of) if in_function else gradients_of)(placeholder)
        step = optimizer(0.1).apply_gradients(zip_equal(gradients, variables))
        harness.initialize(session)
        rng = np.random.default_rng(3)
        losses = [session.run([loss, step], {placeholder: rng.integers(0, 6, 4)})[0] for _ in range(20)]
        return (losses, *session.run([variables[0].read_value(), variables[1]]))


def test_a_function_that_a_tape_calls(session):
    variable = table(initializer=2.0)
    look_up = tf.function(lambda keys: tf.reduce_sum(tf.nn.embedding_lookup(variable, keys) ** 2))
    with tf.GradientTape() as tape:
        loss = look_up(tf.constant(KEYS, tf.int64))
    gradient = tape.gradient(loss, variable)
    harness.initialize(session)
    by_key = harness.gradient_by_key(session, variable, gradient, [5, 6, -1, 7])
    np.testing.assert_array_equal(by_key, np.repeat([[8], [8], [4], [4]], 3, axis=1))


def test_a_whole_step_in_a_function(session):
    variable = table(initializer=2.0)
    optimizer = train.GradientDescentOptimizer(0.25)

    @tf.function
    def step():
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.nn.embedding_lookup(variable, [1]) ** 2)
        with tf.control_dependencies(
            [optimizer.apply_gradients([(tape.gradient(loss, variable), variable)])]
        ):
            return tf.identity(loss)

    loss = step()
    harness.initialize(session)
    assert [session.run(loss) for _ in range(3)] == [12, 3, 0.75]


def test_a_persistent_tape(session):
    variable = table(initializer=1.0)
    with tf.GradientTape(persistent=True) as tape:
        rows = tf.nn.embedding_lookup(variable, [3])
        once, thrice = tf.reduce_sum(rows), tf.reduce_sum(3 * rows)
    gradients = [tape.gradient(loss, variable).values for loss in (once, thrice, once)]
    harness.initialize(session)
    assert [float(value[0, 0]) for value in session.run(gradients)] == [1, 3, 1]


def test_nested_tapes(session):
    variable = table(initializer=1.0)
    with tf.GradientTape() as outer:
        rows = tf.nn.embedding_lookup(variable, [3])
        with tf.GradientTape() as inner:
            loss = tf.reduce_sum(2 * tf.nn.embedding_lookup(variable, [3]))
        both = loss + tf.reduce_sum(rows)
    gradients = [
        inner.gradient(loss, variable).values,
        *tf.nest.map_structure(tf.convert_to_tensor, [outer.gradient(both, variable).values]),
    ]
    harness.initialize(session)
    got = session.run(gradients)
    assert np.sum(got[0]) == 6 and np.sum(got[1]) == 9


def test_a_tape_that_does_not_watch_a_table(session):
    watched, other, frozen = table("watched"), table("other"), table("frozen", trainable=False)
    variables = [watched, other, frozen]
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch(watched)
        loss = sum(tf.reduce_sum(tf.nn.embedding_lookup(one, [3])) for one in variables)
    gradients = tape.gradient(loss, variables)
    assert gradients[1:] == [None, None]
    with tf.GradientTape() as tape:
        tape.watch(frozen)
        loss = sum(tf.reduce_sum(tf.nn.embedding_lookup(one, [3])) for one in (frozen, watched))
        with tape.stop_recording():
            unseen = tf.reduce_sum(tf.nn.embedding_lookup(other, [3]))
        loss += unseen
    gradients += tape.gradient(loss, variables)
    assert gradients[4] is None
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(tf.nn.embedding_lookup(frozen, [3]))
    assert tape.gradient(loss, frozen) is None
    harness.initialize(session)
    for value in session.run([gradients[place].values for place in (0, 3, 5)]):
        np.testing.assert_array_equal(value, np.ones([1, 3]))


def test_without_training_there_is_no_row_in_the_gradient(session):
    variable = table()
    with tf.GradientTape() as tape:
        rows = sok.group_embedding_lookup([variable], [KEYS], training=False)[0]
        loss = tf.reduce_sum(rows)
    gradient = tape.gradient(loss, variable)
    harness.initialize(session)
    assert session.run(gradient.values).shape == (0, 3)


def test_gradients_of_weights(session):
    variable = table(initializer=2.0)
    weights = tf.constant([1.0, 2, 3, 4, 5, 6])
    with tf.GradientTape() as tape:
        tape.watch(weights)
        rows = sok.group_embedding_lookup_sparse(
            [variable], [sparse_keys()], ["sum"], sp_weights=[with_values(sparse_keys(), weights)]
        )[0]
        loss = tf.reduce_sum(rows)
    of_weights, of_table = tape.gradient(loss, [weights, variable])
    harness.initialize(session)
    np.testing.assert_array_equal(session.run(of_weights), np.full(6, 6.0))
    by_key = harness.gradient_by_key(session, variable, of_table, [5, 6, -1, 7])
    np.testing.assert_array_equal(by_key[:, 0], [4, 8, 4, 5])


def _loop(session, variable, apply_step, steps=3):
    harness.initialize(session)
    for _ in range(steps):
        session.run(apply_step)
    return harness.table_contents(session, variable)[1]


def test_a_loss_scale_optimizer(session):
    variable = table(initializer=1.0)
    optimizer = sok.tf.keras.mixed_precision.LossScaleOptimizer(train.GradientDescentOptimizer(0.25), 8.0)
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(tf.nn.embedding_lookup(variable, [1, 2]) ** 2)
        scaled = optimizer.get_scaled_loss(loss)
    gradients = optimizer.get_unscaled_gradients(tape.gradient(scaled, [variable]))
    step = optimizer.apply_gradients(zip_equal(gradients, [variable]))
    np.testing.assert_array_equal(_loop(session, variable, step), np.full([2, 3], 0.125))


def test_optimizers_that_tape_a_callable():
    optimizers = [train.GradientDescentOptimizer(0.25)]
    optimizers += [module.SGD(0.25) for _, module in compat.legacy_keras_optimizers()][:1]
    for optimizer in optimizers:
        with harness.graph_and_session() as session:
            variable = table(initializer=1.0)

            def loss(variable=variable):
                return tf.reduce_sum(tf.nn.embedding_lookup(variable, [1, 2]) ** 2)

            step = optimizer.minimize(loss, var_list=[variable])
            np.testing.assert_array_equal(_loop(session, variable, step), np.full([2, 3], 0.125))


def test_a_second_derivative_is_refused(session):
    variable = table("named")
    with tf.GradientTape() as outer:
        with tf.GradientTape() as inner:
            loss = tf.reduce_sum(tf.nn.embedding_lookup(variable, [1]) ** 3)
        penalty = tf.reduce_sum(inner.gradient(loss, variable).values ** 2)
    with pytest.raises(LookupError, match="second derivative.*named"):
        outer.gradient(penalty, variable)
    loss = tf.reduce_sum(tf.nn.embedding_lookup(variable, [1]) ** 3)
    (gradient,) = tf.gradients(loss, variable)
    with pytest.raises(LookupError, match="second derivative.*named"):
        tf.gradients(gradient.values, variable)
    assert tf.gradients(tf.stop_gradient(gradient.values), variable) == [None]


def test_jacobians_and_zeros_are_refused(session):
    variable, other = table("named"), v1.Variable(2.0, use_resource=True)
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(variable)
        rows = tf.nn.embedding_lookup(variable, [1, 2])
        unconnected = other * other
    with pytest.raises(TypeError, match="Jacobian.*named"):
        tape.jacobian(rows, [other, variable])
    # Version 1.15 makes it the cause of another error.
    with pytest.raises((TypeError, SystemError)) as raised:
        tape.gradient(unconnected, variable, unconnected_gradients="zero")
    assert re.search("named.*no dense value", str(raised.value.__cause__ or raised.value))


def _batches(count=6):
    rng = np.random.default_rng(5)
    for _ in range(count):
        yield {"keys": rng.integers(0, 5, 3), "factors": rng.normal(size=3).astype(np.float32)}


def _prefetched(how):
    """Trains tables and a kernel, with or without prefetched lookups, and with or without a tape."""
    with harness.graph_and_session() as session:
        used, unused = table("used", initializer=0.5), table("unused", initializer=0.5)
        kernel = v1.Variable([1.0, -1.0, 2.0], use_resource=True)
        signature = {"keys": tf.TensorSpec([None], tf.int64), "factors": tf.TensorSpec([None], tf.float32)}
        data = harness.dataset_of(_batches, signature)
        iterator = v1.data.make_initializable_iterator(data)

        def look_up(batch):
            rows = [tf.nn.embedding_lookup(one, batch["keys"]) for one in (used, unused)]
            return rows[0] * tf.expand_dims(batch["factors"], 1) * kernel, rows[1]

        with tf.GradientTape() as tape:
            prefetch = sok.LookupPrefetch(iterator, look_up) if how != "plain" else None
            outputs = prefetch.outputs if prefetch else look_up(iterator.get_next())
            loss = tf.reduce_sum(tf.square(outputs[0] - 0.25))
        variables = [used, kernel, unused]
        gradients = tape.gradient(loss, variables) if how != "ahead" else tf.gradients(loss, variables)
        assert gradients[2] is None
        step = train.GradientDescentOptimizer(0.125).apply_gradients(zip_equal(gradients, variables))
        ops = update_ops()
        harness.initialize(session)
        session.run([iterator.initializer])
        if prefetch:
            session.run(prefetch.prime)
        for _ in range(6):
            session.run([step, prefetch.advance] if prefetch else step)
        return harness.table_contents(session, used)[1], session.run(kernel), ops


def test_batches_that_are_drawn_ahead():
    want = _prefetched("plain")
    for how in ("ahead", "ahead with a tape"):
        harness.assert_equal_arrays(_prefetched(how), want)
