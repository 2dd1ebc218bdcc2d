# Tags: versions
"""The keys and rows that result from features and options of columns, and errors that name the column."""

import numpy as np
import pytest
import tensorflow as tf

import feature_column_support as support
import harness
import sparse_operation_kit as sok
from feature_column_support import (
    Options,
    fc,
    features,
    group_lookups,
    input_layer,
    integers,
    layer_of_a_fixed_scope,
    strings,
)
from sparse_operation_kit import compat, feature_columns
from sparse_operation_kit.tables.get_embedding_variable import EmbeddingVariableOption

pytestmark = pytest.mark.cases_on_gpu(1)
session = harness.session

originals_afterwards = support.originals_afterwards


def test_strings_hash_to_the_fingerprint_of_their_bytes_modulo_the_largest_int64():
    # FarmHash's Fingerprint64 of the empty string is its constant k2.
    words = ["", "a", "\x00", "ä" * 50]
    with harness.graph_and_session() as session:
        keys = feature_columns.categorical_column.hash_strings(tf.constant(words))
        fingerprints = tf.bitcast(tf.fingerprint(words, method="farmhash64"), tf.uint64)
        keys, fingerprints = session.run([keys, fingerprints])
    assert keys[0] == 0x9AE16A3B2F90404F % (2**63 - 1)
    assert keys.tolist() == [int(one) % (2**63 - 1) for one in fingerprints]


def test_the_ends_of_the_keys_and_minus_one(session):
    column = integers("k", 3, "group", combiner="sum")
    hostile = tf.constant(harness.HOSTILE_KEYS)
    dense = input_layer({"k": hostile[:, tf.newaxis]}, [column])
    sparse = input_layer({"k": tf.sparse.from_dense(hostile[:, tf.newaxis])}, [column])
    harness.initialize(session)
    dense, sparse = session.run([dense, sparse])
    # from_dense drops zeros, and a dense feature drops -1.
    zero, minus_one = list(harness.HOSTILE_KEYS).index(0), list(harness.HOSTILE_KEYS).index(-1)
    assert np.all(dense[minus_one] == 0) and np.all(np.delete(dense, minus_one, axis=0) != 0)
    assert np.all(sparse[zero] == 0) and np.all(np.delete(sparse, zero, axis=0) != 0)


@pytest.mark.parametrize("kind", [Options, EmbeddingVariableOption])
def test_options_reach_the_table(kind):
    options = kind(
        init_option=sok.InitializerOption("ones", default_value_no_permission=0.25),
        filter_option=sok.CounterFilter(filter_freq=2),
    )
    with harness.graph_and_session() as session:
        with feature_columns.group_embedding_column_scope("group"):
            column = feature_columns.categorical_column_with_embedding("a", tf.int32, ev_option=options)
            column = fc.embedding_column(column, 2)
        layer = input_layer({"a": tf.constant([[5], [6], [6]])}, [column])
        harness.initialize(session)
        assert session.run(layer).tolist() == [[0.25] * 2, [1.0] * 2, [1.0] * 2]
        assert session.run(layer).tolist() == [[1.0] * 2] * 3


def test_an_initializer_that_scales_with_the_rows_takes_the_options_number():
    options = EmbeddingVariableOption(init_option=sok.InitializerOption(default_value_dim=24))
    with harness.graph_and_session() as session:
        column = feature_columns.categorical_column_with_embedding("a", tf.int64, ev_option=options)
        initializer = tf.compat.v1.glorot_uniform_initializer()
        with feature_columns.group_embedding_column_scope("group"):
            column = fc.embedding_column(column, 8, initializer=initializer)
        layer = input_layer({"a": tf.range(200, dtype=tf.int64)}, [column])
        harness.initialize(session)
        rows = session.run(layer)
    # Uniform with the limit sqrt(6 / (24 + 8)).
    assert 0.42 < np.max(np.abs(rows)) <= np.sqrt(6 / 32)


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"key": 3}, TypeError, "key must be a string, not 3"),
        ({"key": ""}, ValueError, "key must not be empty"),
        ({"dtype": tf.float32}, ValueError, "Column 'a': dtype must be tf.string or an integer dtype"),
        ({"partition_num": 0}, ValueError, "Column 'a': partition_num must be at least 1, not 0"),
        ({"partition_num": "2"}, TypeError, "Column 'a': partition_num must be an int or None, not '2'"),
        ({"ev_option": 7}, TypeError, "Column 'a': ev_option has no init_option: 7"),
        ({"ev_option": Options(3)}, TypeError, "ev_option.init_option must be None or InitializerOption"),
        ({"ev_option": Options(None, 3)}, TypeError, "must be None or CounterFilter or CBFFilter, not 3"),
        ({"ev_option": Options(None, None, 3)}, TypeError, "GlobalStepEvict or L2WeightEvict, not 3"),
    ],
)
def test_bad_arguments_of_columns(arguments, error, text):
    with pytest.raises(error, match=text):
        feature_columns.categorical_column_with_embedding(**{"key": "a", **arguments})


@pytest.mark.parametrize(("name", "error"), [("", ValueError), (3, TypeError)])
def test_bad_names_of_scopes(name, error):
    with pytest.raises(error, match="name must"), feature_columns.group_embedding_column_scope(name):
        pass


def test_what_a_table_cannot_do_is_refused_by_name():
    column = feature_columns.categorical_column_with_embedding("a")
    with pytest.raises(ValueError, match="'a_embedding': max_norm=1.5 is not supported"):
        fc.embedding_column(column, 3, max_norm=1.5)
    with pytest.raises(ValueError, match="Column 'a': an indicator_column needs a number of buckets"):
        fc.indicator_column(column)


def test_variable_scopes_that_need_dense_values_are_refused():
    with harness.graph_and_session(), tf.compat.v1.variable_scope("model", regularizer=tf.nn.l2_loss):
        with pytest.raises(
            ValueError, match="Column 'a_embedding': variable scope 'model.*' has a regularizer"
        ):
            input_layer(features(), [integers("a", scope="group")])


def grouped(key, **options):
    return integers(key, scope="g", **options)


@pytest.mark.parametrize(
    ("inputs", "columns", "text"),
    [
        ({"a": [1.0]}, lambda: [grouped("a")], "'a': the feature is float32"),
        ({"a": [1]}, lambda: [strings("a", scope="g")], "int32, but .* is string"),
        ({"a": ["1"]}, lambda: [grouped("a")], "string, but .* is int64"),
        ({"b": [1]}, lambda: [grouped("a")], "Feature a is not in"),
        ({"a": [1]}, lambda: [grouped("a", combiner="max")], "unknown combiner 'max'"),
        ({"a": [1]}, lambda: [grouped("a"), grouped("a")], "Duplicate feature column name"),
        (
            {"a": [1], "b": [1, 2]},
            lambda: [grouped("a"), grouped("b")],
            "different batch sizes: 'a_embedding' has 1 rows, 'b_embedding' 2",
        ),
        (
            {"a": [1]},
            lambda: [grouped("a"), fc.categorical_column_with_identity("b", 3)],
            "input_layer takes dense columns",
        ),
    ],
)
def test_bad_calls_of_input_layer(inputs, columns, text):
    with harness.graph_and_session(), pytest.raises(ValueError, match=text):
        input_layer({key: tf.constant(values) for key, values in inputs.items()}, columns())


def test_records_parsed_by_the_columns_spec(tmp_path):
    with tf.Graph().as_default(), feature_columns.group_embedding_column_scope("group"):
        column = feature_columns.categorical_column_with_embedding
        weighted = fc.weighted_categorical_column(column("words"), "weights")
        columns = [
            fc.embedding_column(column("user", tf.int32), 2),
            fc.embedding_column(weighted, 3, combiner="sum"),
            *fc.shared_embedding_columns([column("seen", tf.int64), column("bought", tf.int64)], 2),
            fc.embedding_column(fc.categorical_column_with_hash_bucket("city", 10), 2),
            fc.numeric_column("price"),
        ]
    spec = fc.make_parse_example_spec(columns)
    assert {key: value.dtype for key, value in spec.items() if key != "price"} == {
        "user": tf.int64,
        "words": tf.string,
        "weights": tf.float32,
        "seen": tf.int64,
        "bought": tf.int64,
        "city": tf.string,
    }
    path = str(tmp_path / "samples.tfrecord")
    with tf.io.TFRecordWriter(path) as writer:
        writer.write(_example(user=[-1], words=[b"x", b""], weights=[0.5, -2.0], seen=[3, 3], price=[1.0]))
        writer.write(_example(bought=[3], city=[b"Bonn"], price=[2.0]))
    with harness.graph_and_session() as session:
        dataset = tf.data.TFRecordDataset(path).batch(2).map(lambda batch: tf.io.parse_example(batch, spec))
        parsed = tf.compat.v1.data.make_one_shot_iterator(dataset).get_next()
        parts = {}
        layer = input_layer(parsed, columns, cols_to_output_tensors=parts)
        parts = {column.name: tensor for column, tensor in parts.items()}
        assert group_lookups() == [4]
        harness.initialize(session)
        layer, parts = session.run([layer, parts])
    assert layer.shape == (2, 12)
    # A parsed -1 is a key; missing features read as zeros.
    user, words = parts["user_embedding"], parts["words_weighted_by_weights_embedding"]
    assert np.all(user[0] != 0) and np.all(user[1] == 0) and np.all(words[1] == 0) and np.all(words[0] != 0)
    np.testing.assert_allclose(
        parts["seen_shared_embedding"][0], parts["bought_shared_embedding"][1], rtol=1e-6
    )


def _example(**values):
    feature = {}
    for key, value in values.items():
        if isinstance(value[0], bytes):
            feature[key] = tf.train.Feature(bytes_list=tf.train.BytesList(value=value))
        elif isinstance(value[0], float):
            feature[key] = tf.train.Feature(float_list=tf.train.FloatList(value=value))
        else:
            feature[key] = tf.train.Feature(int64_list=tf.train.Int64List(value=value))
    return tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString()


def test_more_than_two_dimensions_combine_the_last(session):
    layers = []
    for scope, rank_known in ((None, True), ("group", True), ("group", False)):
        keys = tf.constant([[[1, 2]], [[-1, 3]]], tf.int64)
        if not rank_known:
            sparse = tf.sparse.from_dense(keys + 1)
            shape = tf.compat.v1.placeholder_with_default(sparse.dense_shape, None)
            keys = tf.SparseTensor(sparse.indices, sparse.values - 1, shape)
        with tf.compat.v1.variable_scope("same", reuse=tf.compat.v1.AUTO_REUSE):
            layers.append(layer_of_a_fixed_scope([integers("a", 3, scope)], {"a": keys}))
    harness.initialize(session)
    first, second, third = session.run(layers)
    np.testing.assert_array_equal(first, second)
    np.testing.assert_array_equal(first, third)
    assert first.shape == (2, 3)


@pytest.mark.parametrize("layer", ["input_layer", "DenseFeatures"])
def test_ragged_features(session, layer):
    if layer == "DenseFeatures" and not compat.dense_features_layers():
        pytest.skip("Keras 3 has no DenseFeatures, and tf_keras is not installed")
    columns = [integers("a", 3, "group", combiner="sum"), strings("b", 2, "group")]
    inputs = {
        "a": tf.ragged.constant([[1, -1, 7], [], [7]], dtype=tf.int64),
        "b": tf.ragged.constant([["x"], ["", "y"], []]),
    }
    with tf.compat.v1.variable_scope("same", reuse=tf.compat.v1.AUTO_REUSE):
        if layer == "input_layer":
            make = lambda features: layer_of_a_fixed_scope(columns, features)  # noqa: E731
        else:
            make = support.dense_features(columns)
        outputs = [make(inputs), make({key: value.to_sparse() for key, value in inputs.items()})]
    harness.initialize(session)
    ragged, sparse = session.run(outputs)
    np.testing.assert_array_equal(ragged, sparse)
    assert ragged.shape == (3, 5) and np.count_nonzero(ragged) == 10


def test_a_column_need_not_be_in_a_list(session):
    """TensorFlow's columns are tuples, and were taken for lists of columns once there was a table."""
    values = {"x": tf.constant([[1.5, 2.5], [3.5, 4.5]]), "k": tf.constant([[7], [8]], tf.int64)}
    table = input_layer(values, integers("k", 3))
    number = input_layer(values, fc.numeric_column("x", shape=2))
    rows = input_layer(values, fc.embedding_column(fc.categorical_column_with_identity("k", 9), 4))
    harness.initialize(session)
    table, number, rows = session.run([table, number, rows])
    assert (table.shape, rows.shape) == ((2, 3), (2, 4))
    np.testing.assert_array_equal(number, [[1.5, 2.5], [3.5, 4.5]])


def test_a_shared_table_has_one_set_of_options(session):
    with feature_columns.group_embedding_column_scope("group"):
        options = Options(filter_option=sok.CounterFilter(filter_freq=2))
        keys = [
            feature_columns.categorical_column_with_embedding("a", tf.int64),
            feature_columns.categorical_column_with_embedding("c", tf.int64, ev_option=options),
        ]
        columns = fc.shared_embedding_columns(keys, 2)
    with pytest.raises(ValueError, match="Column 'c_shared_embedding' has other options than column 'a_"):
        input_layer(features(), columns)


def test_a_variable_that_is_no_table_is_refused(session):
    plain = fc.embedding_column(fc.categorical_column_with_identity("a", 9), 2)
    layer_of_a_fixed_scope([plain])
    tf.compat.v1.get_variable_scope().reuse_variables()
    with pytest.raises(ValueError, match="Trying to share variable input/a_embedding/embedding_weights"):
        layer_of_a_fixed_scope([integers("a", 2, "group")])
