# Tags: versions
# Not on GPUs: ordinary variables, for which the fake GPU has few of TensorFlow's kernels
"""IntegerLookup numbers keys as a dict does: eagerly, in functions, sessions, threads and checkpoints."""

import threading

import numpy as np
import pytest
import tensorflow as tf

import harness
import sparse_operation_kit.dist_model_parallel as dmp
from same_length import zip_equal
from sparse_operation_kit.dist_model_parallel.keras import keras, keras_session

# TensorFlow 1.15 executes eagerly only if it is asked to.
tf.compat.v1.enable_v2_behavior()


class Reference:
    """The behavior of the layer, with a dict."""

    def __init__(self, max_tokens):
        self.max_tokens, self.number_of, self.counts = max_tokens, {}, [0] * (max_tokens + 1)

    def __call__(self, keys, training=True):
        flat = np.ravel(keys).tolist()
        if training:
            for key in flat:
                if key != -1 and len(self.number_of) < self.max_tokens:
                    self.number_of.setdefault(key, len(self.number_of) + 1)
                self.counts[self.number_of.get(key, 0)] += 1
        return np.reshape([self.number_of.get(key, 0) for key in flat], np.shape(keys))

    @property
    def vocabulary(self):
        return [-1, *self.number_of]


def check_state(layer, reference, session=None):
    assert layer.get_vocabulary(session) == reference.vocabulary
    counts = layer.get_counts(session)
    assert counts.dtype == np.int64
    assert counts.tolist() == reference.counts[: len(reference.vocabulary)]


def batches(seed=0):
    """Batches of several shapes: skewed, hostile, empty, all new, all known."""
    rng = np.random.default_rng(seed)
    return [
        harness.zipf_keys(rng, 60).reshape(4, 15),
        harness.HOSTILE_KEYS,
        np.zeros([0, 3], np.int64),
        rng.integers(-(2**63), 2**63 - 1, [2, 3, 4]),
        np.repeat(harness.HOSTILE_KEYS, 3)[::-1],
        harness.zipf_keys(rng, 60).reshape(60, 1),
    ]


@pytest.mark.parametrize("max_tokens", [1, 5, 30, 1000])
def test_it_numbers_keys_as_a_dict_does(max_tokens):
    layer, reference = dmp.IntegerLookup(max_tokens), Reference(max_tokens)
    for keys in batches():
        np.testing.assert_array_equal(layer(keys, training=False), reference(keys, training=False))
        numbers = layer(keys)
        np.testing.assert_array_equal(numbers, reference(keys))
        assert numbers.dtype == tf.int64
        check_state(layer, reference)


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_in_a_session_with_any_threads(threads):
    """A batch large enough that threads share it."""
    keys = harness.zipf_keys(np.random.default_rng(3), 30_000, 6000, 1.05)
    reference = Reference(4000)
    expected = [reference(part) for part in np.split(keys, 3)]
    with harness.graph_and_session(threads) as session:
        fed = tf.compat.v1.placeholder(tf.int64, [None])
        layer = dmp.IntegerLookup(4000)
        numbers = layer(fed)
        assert numbers.shape.as_list() == [None]
        harness.initialize(session)
        session.graph.finalize()
        for part, wanted in zip_equal(np.split(keys, 3), expected):
            np.testing.assert_array_equal(session.run(numbers, {fed: part}), wanted)
        check_state(layer, reference, session)
        with session.as_default():
            check_state(layer, reference)


def test_whether_it_trains_can_be_fed():
    with harness.graph_and_session() as session:
        training = tf.compat.v1.placeholder(tf.bool, [])
        layer = dmp.IntegerLookup(3)
        numbers = layer(tf.constant([7, 8]), training=training)
        harness.initialize(session)
        assert session.run(numbers, {training: False}).tolist() == [0, 0]
        assert session.run(numbers, {training: True}).tolist() == [1, 2]
        assert session.run(numbers, {training: False}).tolist() == [1, 2]
        assert layer.get_counts(session).tolist() == [0, 1, 1]


def test_in_a_function():
    layer, reference = dmp.IntegerLookup(20), Reference(20)
    numbers = tf.function(layer, input_signature=[tf.TensorSpec(None, tf.int64)])
    for keys in batches(1):
        np.testing.assert_array_equal(numbers(keys), reference(keys))
    check_state(layer, reference)


@pytest.mark.parametrize("dtype", [tf.int32, tf.int64, tf.uint32, tf.int8])
def test_any_integers(dtype):
    layer = dmp.IntegerLookup(3)
    assert layer(tf.constant([[5, 6], [5, 7]], dtype)).numpy().tolist() == [[1, 2], [1, 3]]


def test_ragged_and_sparse_keys():
    layer = dmp.IntegerLookup(4)
    numbers = layer(tf.ragged.constant([[[50, 60], []], [[70, 50]]], dtype=tf.int64))
    assert numbers.to_list() == [[[1, 2], []], [[3, 1]]]
    sparse = layer(tf.SparseTensor([[0, 3], [1, 0]], tf.constant([80, 60], tf.int64), [2, 4]))
    assert tf.sparse.to_dense(sparse).numpy().tolist() == [[0, 0, 0, 4], [2, 0, 0, 0]]


def test_threads_give_each_key_one_number():
    layer = dmp.IntegerLookup(500)
    keys = [harness.zipf_keys(np.random.default_rng(seed), 400, 400) for seed in range(4)]
    numbers = [None] * len(keys)

    def run(thread):
        numbers[thread] = np.stack([layer(tf.constant(keys[thread])) for _ in range(10)])

    threads = [threading.Thread(target=run, args=[thread]) for thread in range(len(keys))]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    vocabulary = np.array(layer.get_vocabulary())
    for of_thread, of_keys in zip_equal(numbers, keys):
        np.testing.assert_array_equal(vocabulary[of_thread], np.tile(of_keys, [10, 1]))
    assert sorted(vocabulary[1:]) == sorted(set(np.concatenate(keys)))
    assert layer.get_counts().sum() == 4 * 400 * 10


def test_a_read_keeps_its_values():
    """A tensor that was read before shares no memory with the variable that is changed in place."""
    layer = dmp.IntegerLookup(5)
    layer([10, 20])
    before = [variable.read_value() for variable in layer.weights]
    copies = [value.numpy().copy() for value in before]
    layer([30, 10])
    harness.assert_equal_arrays(before, copies)
    assert layer.get_vocabulary() == [-1, 10, 20, 30]
    for variable in dmp.IntegerLookup(5).weights:
        assert np.sum(variable.numpy() > 0) == 0


def test_a_saver_restores_it(tmp_path):
    reference = Reference(50)
    with harness.graph_and_session() as session:
        fed = tf.compat.v1.placeholder(tf.int64, None)
        layer = dmp.IntegerLookup(50)
        numbers = layer(fed)
        saver = tf.compat.v1.train.Saver()
        harness.initialize(session)
        for keys in batches()[:2]:
            reference(keys)
            session.run(numbers, {fed: keys})
        path = saver.save(session, str(tmp_path / "saved"))
        session.run(numbers, {fed: [123456789, 987654321]})
        saver.restore(session, path)
        check_state(layer, reference, session)
    with harness.graph_and_session() as session:
        fed = tf.compat.v1.placeholder(tf.int64, None)
        layer = dmp.IntegerLookup(50)
        numbers = layer(fed)
        tf.compat.v1.train.Saver().restore(session, path)
        for keys in batches()[2:]:
            np.testing.assert_array_equal(session.run(numbers, {fed: keys}), reference(keys))
        check_state(layer, reference, session)


def test_without_a_session_keras_session_is_read():
    with tf.Graph().as_default():
        layer = dmp.IntegerLookup(5)
        numbers = layer(tf.constant([20, 10, 20], tf.int64))
        keras_session().run(tf.compat.v1.global_variables_initializer())
        np.testing.assert_array_equal(keras_session().run(numbers), [1, 2, 1])
        assert layer.get_vocabulary() == [-1, 20, 10]


def model_of(max_tokens):
    keys = keras.Input([2], dtype=tf.int64)
    embedded = dmp.Embedding(max_tokens + 1, 3, combiner="sum")(dmp.IntegerLookup(max_tokens)(keys))
    return keras.Model(keys, keras.layers.Dense(1)(embedded))


def test_keras_saves_its_weights_and_predicts_without_adding(tmp_path):
    keys = harness.zipf_keys(np.random.default_rng(1), 40, 30).reshape(20, 2)
    model, reference = model_of(15), Reference(15)
    model.compile("sgd", "mse")
    assert np.ptp(model.predict(keys, verbose=0)) == 0  # all are number 0
    model.fit(keys, np.ones([20, 1]), verbose=0, shuffle=False)
    reference(keys)
    expected = model.predict(keys, verbose=0)
    check_state(model.layers[1], reference)
    model.save_weights(str(tmp_path / "weights.h5"))
    another = model_of(15)
    another.load_weights(str(tmp_path / "weights.h5"))
    check_state(another.layers[1], reference)
    np.testing.assert_allclose(another.predict(keys, verbose=0), expected, rtol=1e-6)


def test_a_config_makes_an_equal_layer():
    layer = dmp.IntegerLookup(7, use_gpu=False, name="keys")
    copy = dmp.IntegerLookup.from_config(layer.get_config())
    assert (copy.max_tokens, copy.use_gpu, copy.name) == (7, False, "keys")


def test_bad_arguments_and_keys_are_refused():
    with pytest.raises(ValueError, match="'films': max_tokens must be at least 1, not 0"):
        dmp.IntegerLookup(0, name="films")
    with pytest.raises(ValueError, match="'films': max_tokens must be at most 1073741823, not 1073741824"):
        dmp.IntegerLookup(2**30, name="films")
    with pytest.raises(TypeError, match="max_tokens must be an int, not '5'"):
        dmp.IntegerLookup("5")
    for keys in (tf.constant([1.0]), tf.constant([1], tf.uint64), tf.constant(["a"])):
        with pytest.raises(TypeError, match="'films': keys are (float32|uint64|string), not of an integer"):
            dmp.IntegerLookup(5, name="films")(keys)


def test_variables_without_values_are_named():
    with harness.graph_and_session() as session:
        numbers = dmp.IntegerLookup(5, name="films")(tf.constant([1]))
        with pytest.raises(tf.errors.FailedPreconditionError, match="films.*is not initialized"):
            session.run(numbers)


@pytest.mark.parametrize("variable, value", [("_size", 6), ("_size", -1), ("_slots", 4), ("_slots", -1)])
def test_damaged_state_is_refused(variable, value):
    layer = dmp.IntegerLookup(5, name="films")
    layer([10, 20, 30])
    damaged = getattr(layer, variable)
    damaged.assign(tf.fill(damaged.shape, tf.cast(value, damaged.dtype)))
    for training in (False, True):
        with pytest.raises(tf.errors.DataLossError, match="'films': The vocabulary is damaged"):
            layer([40], training=training)
