"""variable_scope(...).keep_weights: float32 variables under layers that compute in bfloat16."""

import numpy as np
import pytest
import tensorflow as tf

from sparse_operation_kit import deeprec

v1 = tf.compat.v1


@pytest.fixture(autouse=True)
def installed():
    """Installs DeepRec's names for each test."""
    deeprec.install()
    yield
    deeprec.install()


def dense(inputs, name, units):
    """A dense layer like `tf.layers.dense`, which Keras 3 does not have."""
    with v1.variable_scope(name):
        kernel = v1.get_variable("kernel", [inputs.shape[-1], units], inputs.dtype)
        bias = v1.get_variable("bias", [units], inputs.dtype, v1.zeros_initializer())
    return tf.matmul(inputs, kernel) + bias


def layers():
    """Functions that create a dense layer: the one above, and TensorFlow's if there is one."""
    try:
        theirs = v1.layers.dense
    except (AttributeError, ImportError):
        return [dense]
    return [dense, lambda inputs, name, units: theirs(inputs, units, name=name)]


@pytest.mark.parametrize("layer", layers())
@pytest.mark.parametrize("parts", [None, 1, 2])
def test_layers_compute_in_bfloat16_on_float32_variables(layer, parts):
    values = np.random.default_rng(1).normal(size=[8, 6]).astype(np.float32)
    partitioner = None if parts is None else v1.fixed_size_partitioner(parts)
    with tf.Graph().as_default(), v1.Session() as session:
        v1.set_random_seed(1)
        scope = v1.variable_scope("dnn", partitioner=partitioner, reuse=v1.AUTO_REUSE)
        with scope.keep_weights(dtype=tf.float32):
            hidden = layer(tf.cast(tf.constant(values), tf.bfloat16), "one", 4)
            outputs = layer(tf.nn.relu(hidden), "two", 2)
        assert hidden.dtype == outputs.dtype == tf.bfloat16
        loss = tf.reduce_mean(tf.square(tf.cast(outputs, tf.float32) - 1))
        step = v1.train.AdamOptimizer(0.01).minimize(loss)
        assert {variable.dtype.base_dtype for variable in v1.trainable_variables()} == {tf.float32}
        kernels = [variable for variable in v1.trainable_variables() if "/one/kernel" in variable.name]
        assert len(kernels) == (parts or 1)
        session.run(v1.global_variables_initializer())
        kernel = np.concatenate(session.run(kernels))
        np.testing.assert_allclose(session.run(tf.cast(hidden, tf.float32)), values @ kernel, atol=0.1)
        losses = [session.run([loss, step])[0] for _ in range(40)]
        assert losses[-1] < losses[0]


def test_small_updates_are_not_lost():
    with tf.Graph().as_default(), v1.Session() as session:
        with v1.variable_scope("kept").keep_weights():
            read = v1.get_variable("weight", [], tf.bfloat16, v1.ones_initializer())
        step = v1.train.GradientDescentOptimizer(1e-4).minimize(tf.cast(read, tf.float32))
        session.run(v1.global_variables_initializer())
        for _ in range(8):
            session.run(step)
        (weight,) = v1.trainable_variables()
        assert session.run(weight) == pytest.approx(1 - 8e-4, abs=1e-6)
        assert session.run(tf.cast(read, tf.float32)) == 1.0


def test_other_variables_stay_what_they_are():
    with tf.Graph().as_default():
        with v1.variable_scope("kept").keep_weights():
            assert v1.get_variable("large", [2], tf.float64).dtype.base_dtype == tf.float64
            assert v1.get_variable("same", [2]).dtype.base_dtype == tf.float32
            assert v1.get_variable("step", [], tf.int64, trainable=False).dtype.base_dtype == tf.int64
        with v1.variable_scope("plain"):
            assert v1.get_variable("small", [2], tf.bfloat16).dtype.base_dtype == tf.bfloat16


def test_initial_values_are_cast():
    with tf.Graph().as_default(), v1.Session() as session:
        with v1.variable_scope("kept").keep_weights():
            tensor = v1.get_variable("tensor", None, tf.bfloat16, tf.constant([1.5], tf.bfloat16))
            array = v1.get_variable("array", None, tf.float16, np.array([2.5], np.float16))
        assert (tensor.dtype, array.dtype) == (tf.bfloat16, tf.float16)
        assert {variable.dtype.base_dtype for variable in v1.trainable_variables()} == {tf.float32}
        session.run(v1.global_variables_initializer())
        found = session.run([tf.cast(tensor, tf.float32), tf.cast(array, tf.float32)])
        assert [value.tolist() for value in found] == [[1.5], [2.5]]


def test_the_scopes_own_getter_is_called():
    seen = []

    def getter(original, name, *args, **kwargs):
        seen.append(name)
        return original(name, *args, **kwargs)

    with tf.Graph().as_default():
        with v1.variable_scope("kept", custom_getter=getter).keep_weights():
            with v1.variable_scope("inner", custom_getter=getter):
                value = v1.get_variable("weight", [2], tf.bfloat16)
        assert value.dtype == tf.bfloat16
        assert [variable.dtype.base_dtype for variable in v1.trainable_variables()] == [tf.float32]
    assert seen == ["kept/inner/weight"] * 2


def test_tables_have_float32_rows():
    with tf.Graph().as_default():
        with v1.variable_scope("kept").keep_weights():
            table = deeprec.get_embedding_variable("table", 4)
            rows = tf.cast(tf.nn.embedding_lookup(table, tf.constant([3], tf.int64)), tf.bfloat16)
            outputs = tf.cast(dense(tf.reshape(rows, [1, 4]), "top", 1), tf.float32)
        step = v1.train.AdagradOptimizer(0.1).minimize(tf.reduce_sum(tf.square(outputs - 20)))
        with v1.train.MonitoredTrainingSession() as session:
            results = [session.run([outputs, step])[0][0, 0] for _ in range(30)]
        assert table.dtype == tf.float32
        # Random weights do not begin near 20.
        assert abs(results[-1] - 20) < abs(results[0] - 20)


def test_only_floating_point_dtypes():
    with tf.Graph().as_default(), pytest.raises(ValueError, match="floating-point dtype, but is int32"):
        v1.variable_scope("kept").keep_weights(tf.int32)


def test_uninstalling_takes_the_method_away():
    deeprec.uninstall()
    assert not hasattr(v1.variable_scope, "keep_weights")
