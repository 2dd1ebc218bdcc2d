# Tags: versions
# Not on GPUs: ordinary variables, for which the fake GPU has few of TensorFlow's kernels
"""The layers Embedding and ConcatOneHotEmbedding, compared with TensorFlow's lookups and Keras' layer."""

import numpy as np
import pytest
import tensorflow as tf

import sparse_operation_kit.dist_model_parallel as dmp
from same_length import zip_equal
from sparse_operation_kit import compat
from sparse_operation_kit.compat.internals import policy_or_dtype
from sparse_operation_kit.dist_model_parallel.keras import keras

# TensorFlow 1.15 executes eagerly only if it is asked to.
tf.compat.v1.enable_v2_behavior()

ROWS, COLUMNS = 50, 3


def table(rows=ROWS, columns=COLUMNS):
    """Rows that are all different."""
    return np.random.default_rng(1).normal(size=[rows, columns]).astype(np.float32)


def layer_of(combiner=None, **kwargs):
    return dmp.Embedding(ROWS, COLUMNS, combiner=combiner, weights=[table()], **kwargs)


def combined(bags, combiner):
    """The expected rows of lists of ids; zeros for an empty list."""
    rows = [table()[bag].astype(np.float64) for bag in bags]
    divisors = [max(len(bag), 1) if combiner == "mean" else 1 for bag in bags]
    sums = [bag.sum(axis=0) / divisor for bag, divisor in zip_equal(rows, divisors)]
    return np.array(sums).reshape([-1, COLUMNS])


def draw_bags(rng, batch, longest=6):
    return [rng.integers(0, ROWS, rng.integers(0, longest)).tolist() for _ in range(batch)]


def ragged(bags, dtype=tf.int64):
    flat = [number for bag in bags for number in bag]
    return tf.RaggedTensor.from_row_lengths(tf.constant(flat, dtype), [len(bag) for bag in bags])


def sparse(bags, dtype=tf.int64):
    return tf.sparse.from_dense(0) if not bags else ragged(bags, dtype).to_sparse()


@pytest.mark.parametrize("dtype", [tf.int32, tf.int64, tf.uint8, tf.uint32, tf.float32])
@pytest.mark.parametrize("shape", [[], [4], [4, 1], [4, 5], [2, 3, 4], [0, 5], [4, 0]], ids=str)
def test_without_a_combiner_it_is_keras_layer(shape, dtype):
    ids = np.random.default_rng(0).integers(0, ROWS, shape)
    layer = layer_of()
    output = layer(tf.cast(tf.constant(ids), dtype))
    expected = keras.layers.Embedding(ROWS, COLUMNS, weights=[table()])(ids)
    np.testing.assert_array_equal(output, expected)
    assert layer.compute_output_shape(shape).as_list() == [*shape, COLUMNS]


@pytest.mark.parametrize("combiner", ["sum", "mean"])
@pytest.mark.parametrize("shape", [[4, 1], [4, 5], [2, 3, 4], [2, 1, 2, 3], [0, 5], [4, 0]], ids=str)
def test_fixed_hotness_combines_the_last_dimension(shape, combiner):
    ids = np.random.default_rng(0).integers(0, ROWS, shape)
    layer = layer_of(combiner)
    output = layer(ids)
    expected = combined(ids.reshape([-1, shape[-1]]) if ids.size else [[]] * shape[0], combiner)
    np.testing.assert_allclose(output, expected.reshape([*shape[:-1], COLUMNS]), rtol=1e-6, atol=1e-6)
    assert layer.compute_output_shape(shape).as_list() == [*shape[:-1], COLUMNS]


@pytest.mark.parametrize("dtype", [tf.int32, tf.int64])
@pytest.mark.parametrize("combiner", ["sum", "mean"])
@pytest.mark.parametrize("kind", [ragged, sparse])
@pytest.mark.parametrize("batch", [1, 8, 33])
def test_variable_hotness_combines_each_sample(batch, kind, combiner, dtype):
    """Empty samples, also the last, repeated ids, and exactly TensorFlow's result."""
    bags = [*draw_bags(np.random.default_rng(batch), batch), [7, 7, 7], [], []]
    output = layer_of(combiner)(kind(bags, dtype))
    np.testing.assert_allclose(output, combined(bags, combiner), rtol=1e-6, atol=1e-6)
    of_tensorflow = tf.nn.embedding_lookup_sparse(table(), sparse(bags), None, combiner=combiner)
    np.testing.assert_array_equal(output[: len(of_tensorflow)], of_tensorflow)


def test_a_batch_without_ids_gives_zeros():
    for combiner in ("sum", "mean"):
        np.testing.assert_array_equal(layer_of(combiner)(ragged([[], []])), np.zeros([2, COLUMNS]))
    assert layer_of()(ragged([[], []])).values.shape == [0, COLUMNS]


def test_sparse_ids_in_any_order():
    ids = tf.SparseTensor([[2, 0], [0, 5], [2, 1], [0, 1]], [4, 1, 5, 2], [4, 9])
    np.testing.assert_allclose(
        layer_of("mean")(ids), combined([[2, 1], [], [4, 5], []], "mean"), rtol=1e-6, atol=1e-6
    )


def test_ragged_ids_of_more_dimensions():
    nested = tf.ragged.constant([[[1, 2], []], [], [[3], [4, 4, 5]]], dtype=tf.int64)
    rows = layer_of()(nested)
    assert rows.to_list() == [[table()[bag].tolist() for bag in sample] for sample in nested.to_list()]
    sums = layer_of("sum")(nested)
    assert sums.row_lengths().numpy().tolist() == [2, 0, 2]
    np.testing.assert_allclose(sums.values, combined([[1, 2], [], [3], [4, 4, 5]], "sum"), rtol=1e-6)
    pairs = tf.RaggedTensor.from_row_lengths(tf.constant([[1, 2], [3, 4], [5, 6]]), [2, 1])
    np.testing.assert_allclose(
        layer_of("mean")(pairs).values, combined([[1, 2], [3, 4], [5, 6]], "mean"), rtol=1e-6
    )


@pytest.mark.parametrize("combiner", [None, "sum", "mean"])
def test_gradients_are_slices_equal_to_keras(combiner):
    bags = [[1, 2, 1], [0, 0, 4], [7, 8, 9]]
    factors = tf.constant(np.random.default_rng(2).normal(size=[3, COLUMNS]), tf.float32)
    reference = keras.layers.Embedding(ROWS, COLUMNS, weights=[table()])
    with tf.GradientTape() as tape:
        rows = reference(tf.constant(bags)) / (3.0 if combiner == "mean" else 1.0)
        loss = tf.reduce_sum(tf.reduce_sum(rows, axis=1) * factors)
    expected = tf.convert_to_tensor(tape.gradient(loss, reference.embeddings))
    inputs = [tf.constant(bags), ragged(bags)] + ([sparse(bags)] if combiner else [])
    for ids in inputs:
        layer = layer_of(combiner)
        with tf.GradientTape() as tape:
            output = layer(ids)
            loss = tf.reduce_sum((output if combiner else tf.reduce_sum(output, axis=1)) * factors)
        gradient = tape.gradient(loss, layer.embeddings)
        assert isinstance(gradient, tf.IndexedSlices)
        np.testing.assert_allclose(tf.convert_to_tensor(gradient), expected, rtol=1e-6, atol=1e-6)


def test_it_runs_in_a_function_of_any_batch():
    layer = layer_of("sum")
    layer(tf.constant([[1]]))
    traces = []

    @tf.function(input_signature=[tf.RaggedTensorSpec([None, None], tf.int64)])
    def rows(ids):
        traces.append(ids)
        return layer(ids)

    for bags in ([[1]], [[2, 3], [], [4]]):
        np.testing.assert_allclose(rows(ragged(bags)), combined(bags, "sum"), rtol=1e-6)
    assert len(traces) == 1


def model_of(combiner):
    inputs = keras.Input([None], dtype=tf.int64, ragged=True)
    embedded = dmp.Embedding(ROWS, COLUMNS, combiner=combiner, name="words")(inputs)
    return keras.Model(inputs, keras.layers.Dense(1)(embedded))


@pytest.mark.skipif(
    not compat.IS_TENSORFLOW_2, reason="TensorFlow 1.15 cannot load a SavedModel with ragged inputs"
)
def test_keras_trains_saves_and_loads_a_model(tmp_path):
    bags = draw_bags(np.random.default_rng(3), 12)
    model = model_of("mean")
    model.compile("sgd", "mse")
    model.fit(ragged(bags), np.ones([12, 1]), verbose=0, epochs=2)
    expected = model.predict(ragged(bags), verbose=0)
    model.save(str(tmp_path / "model"), save_format="tf")
    loaded = keras.models.load_model(str(tmp_path / "model"))
    np.testing.assert_allclose(loaded.predict(ragged(bags), verbose=0), expected, rtol=1e-6)
    model.save_weights(str(tmp_path / "weights.h5"))
    another = model_of("mean")
    another.load_weights(str(tmp_path / "weights.h5"))
    np.testing.assert_allclose(another.predict(ragged(bags), verbose=0), expected, rtol=1e-6)


def test_a_config_makes_an_equal_layer():
    layer = dmp.Embedding(
        ROWS, COLUMNS, "ones", keras.regularizers.l2(0.5), keras.regularizers.l1(0.25), "non_neg", "sum"
    )
    copy = dmp.Embedding.from_config(layer.get_config())
    assert copy.get_config() == layer.get_config()
    copy.build()
    np.testing.assert_array_equal(copy.embeddings.numpy(), np.ones([ROWS, COLUMNS]))
    assert copy.embeddings.constraint is not None and copy.combiner == "sum"
    output = copy(tf.constant([[1, 2]]))
    np.testing.assert_allclose(sorted(copy.losses), [0.25 * np.sum(output), 0.5 * ROWS * COLUMNS])


def test_a_config_of_keras_layer_is_taken():
    config = keras.layers.Embedding(ROWS, COLUMNS, mask_zero=True, input_length=3, name="its").get_config()
    layer = dmp.Embedding.from_config(config)
    assert (layer.name, layer.input_dim, layer.output_dim, layer.combiner) == ("its", ROWS, COLUMNS, None)


def test_mixed_precision_computes_in_16_bits():
    layer = layer_of("sum", dtype=policy_or_dtype("mixed_float16"))
    assert layer(tf.constant([[1, 2]])).dtype == tf.float16
    assert layer.embeddings.dtype == tf.float32


@pytest.mark.parametrize("bad", [ROWS, -1, -(2**40), 2**40])
@pytest.mark.parametrize("kind", ["dense", "combined", "ragged", "sparse"])
def test_an_id_outside_the_table_is_named(kind, bad):
    bags = [[0, ROWS - 1], [1, bad]]
    layer = layer_of(None if kind == "dense" else "sum", name="films")
    ids = {"ragged": ragged, "sparse": sparse}.get(kind, tf.constant)(bags)
    with pytest.raises(tf.errors.InvalidArgumentError, match=rf"films\\*': id {bad} is not in \[0, {ROWS}\)"):
        layer(ids)
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        layer = dmp.Embedding(ROWS, COLUMNS, combiner="sum", name="films")
        output = layer({"ragged": ragged, "sparse": sparse}.get(kind, tf.constant)(bags))
        session.run(tf.compat.v1.global_variables_initializer())
        with pytest.raises(tf.errors.InvalidArgumentError, match=rf"films\\*': id {bad} is not in"):
            session.run(output)


@pytest.mark.parametrize(
    "arguments, error, message",
    [
        ({"input_dim": 0}, ValueError, "'films': input_dim must be at least 1, not 0"),
        ({"input_dim": 2.5}, TypeError, "'films': input_dim must be an int, not 2.5"),
        ({"output_dim": -3}, ValueError, "'films': output_dim must be at least 1, not -3"),
        ({"combiner": "max"}, ValueError, "'films': combiner must be 'sum', 'mean' or None, not 'max'"),
    ],
)
def test_bad_arguments_are_refused(arguments, error, message):
    with pytest.raises(error, match=message):
        dmp.Embedding(**{"input_dim": 3, "output_dim": 2, "name": "films", **arguments})


@pytest.mark.parametrize("combiner", [None, "sum", "mean"])
def test_lookups_in_a_table_of_the_program_are_those_of_the_layer(combiner):
    layer = dmp.Embedding(9, 2, combiner=combiner)
    bags = tf.ragged.constant([[1, 1, 8], [], [0]])
    for ids in [tf.constant([[1, 1], [8, 0]]), bags] + ([bags.to_sparse()] if combiner else []):
        expected, found = layer(ids), dmp.embedding_lookup(layer.embeddings, ids, combiner)
        assert type(found) is type(expected)
        np.testing.assert_array_equal(
            getattr(found, "flat_values", found), getattr(expected, "flat_values", expected)
        )
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"embedding_lookup: id 9 is not in \[0, 9\)"):
        dmp.embedding_lookup(layer.embeddings, [[9]], combiner)


def test_tables_that_cannot_be_looked_up_are_refused():
    for table, combiner, message in (
        (tf.zeros([5]), None, r"the table must be \[rows, columns\] of known size, not \(5,\)"),
        (tf.zeros([5, 2]), "max", "combiner must be 'sum', 'mean' or None, not 'max'"),
    ):
        with pytest.raises(ValueError, match=f"embedding_lookup: {message}"):
            dmp.embedding_lookup(table, [[1]], combiner)


def test_ids_that_cannot_be_combined_are_refused():
    with pytest.raises(ValueError, match=r"combiner 'sum' needs ids of shape \[batch, ids\]"):
        layer_of("sum")(tf.constant([1, 2]))
    with pytest.raises(ValueError, match="SparseTensor need a combiner"):
        layer_of()(sparse([[1], [2]]))
    with pytest.raises(ValueError, match=r"takes a SparseTensor of shape \[batch, ids\]"):
        layer_of("sum")(tf.sparse.from_dense(tf.ones([1, 2, 3], tf.int64)))


SIZES = [3, 5, 1, 11]


def test_concatenated_features_have_their_own_rows():
    layer = dmp.ConcatOneHotEmbedding(SIZES, COLUMNS)
    ids = np.stack([np.random.default_rng(4).integers(0, size, 20) for size in SIZES], axis=1)
    parts = np.split(table(sum(SIZES)), np.cumsum(SIZES)[:-1])
    layer.set_weights([table(sum(SIZES))])
    expected = np.stack([part[column] for part, column in zip_equal(parts, ids.T)], axis=1)
    for dtype in (tf.int32, tf.int64):
        np.testing.assert_array_equal(layer(tf.constant(ids, dtype)), expected)
    np.testing.assert_array_equal(layer(tf.constant(ids.reshape([4, 5, 4]))), expected.reshape([4, 5, 4, -1]))
    assert layer(tf.zeros([0, 4], tf.int64)).shape == [0, 4, COLUMNS]
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(layer(ids))
    assert isinstance(tape.gradient(loss, layer.params), tf.IndexedSlices)
    copy = dmp.ConcatOneHotEmbedding.from_config(layer.get_config())
    assert (copy.feature_sizes, copy.embedding_width, copy.input_dim) == (SIZES, COLUMNS, sum(SIZES))


@pytest.mark.parametrize("feature, bad", [(0, 3), (1, -1), (2, 1), (3, 2**40)])
def test_an_id_outside_its_feature_is_named(feature, bad):
    ids = np.zeros([4, 4], np.int64)
    ids[2, feature] = bad
    message = rf"words\\*': id {bad} of feature {feature} is not in \[0, {SIZES[feature]}\)"
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        output = dmp.ConcatOneHotEmbedding(SIZES, COLUMNS, name="words")(tf.constant(ids))
        session.run(tf.compat.v1.global_variables_initializer())
        with pytest.raises(tf.errors.InvalidArgumentError, match=message):
            session.run(output)


def test_bad_arguments_of_concatenated_features_are_refused():
    with pytest.raises(ValueError, match="feature_sizes is empty"):
        dmp.ConcatOneHotEmbedding([], 3)
    with pytest.raises(ValueError, match="a feature's size must be at least 1, not 0"):
        dmp.ConcatOneHotEmbedding([2, 0], 3)
    with pytest.raises(TypeError, match="embedding_width must be an int"):
        dmp.ConcatOneHotEmbedding([2], "3")
    with pytest.raises(ValueError, match=r"takes ids of shape \[batch, 2\], not \(3, 4\)"):
        dmp.ConcatOneHotEmbedding([2, 3], 3)(tf.zeros([3, 4], tf.int64))
