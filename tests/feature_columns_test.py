"""Embedding columns over embedding variables: scopes, input_layer, names, reuse, errors."""

import contextlib
import copy

import numpy as np
import pytest
import tensorflow as tf

import harness
import sparse_operation_kit as sok
from feature_column_sets import OPTIMIZERS
from sparse_operation_kit import compat, feature_columns
from sparse_operation_kit.core.get_embedding_variable import EmbeddingVariableOption
from sparse_operation_kit.feature_columns import hooks

fc = tf.compat.v1.feature_column
input_layer = fc.input_layer


@pytest.fixture(autouse=True)
def originals_afterwards():
    yield
    hooks.uninstall()


def in_scope(name):
    if name is None:
        return contextlib.nullcontext()
    return feature_columns.group_embedding_column_scope(name)


def integers(key, dimension=4, scope=None, **options):
    with in_scope(scope):
        column = feature_columns.categorical_column_with_embedding(key, tf.int64)
        return fc.embedding_column(column, dimension, **options)


def strings(key, dimension=4, scope=None, **options):
    with in_scope(scope):
        return fc.embedding_column(
            feature_columns.categorical_column_with_embedding(key), dimension, **options
        )


def group_lookups():
    operations = tf.compat.v1.get_default_graph().get_operations()
    return [len(op.get_attr("layouts")) for op in operations if op.type == "SokGroupLookup"]


def features():
    return {
        "a": tf.constant([[1, -1, 7], [-1, -1, -1]], tf.int64),
        "b": tf.constant([["x", "", "y"], ["y", "y", ""]]),
        "c": tf.SparseTensor(
            [[0, 0], [0, 4], [1, 1]], tf.constant([-1, -(2**63), 2**63 - 1], tf.int64), [2, 5]
        ),
        "n": tf.constant([1.5, -2.0]),
    }


def test_a_group_is_one_op_and_gives_what_single_lookups_give():
    outputs = []
    for scope in (None, "group"):
        with harness.graph_and_session() as session:
            columns = [strings("b", 3, scope), integers("c", 5, scope), integers("a", 2, scope)]
            layer = input_layer(features(), [*columns, fc.numeric_column("n")])
            assert group_lookups() == ([3] if scope else [1, 1, 1])
            assert layer.shape.as_list() == [2, 11]
            harness.initialize(session)
            outputs.append(session.run(layer))
    np.testing.assert_array_equal(outputs[0], outputs[1])
    # Sorted by name: a (2), b (3), c (5), n; the second row of a is all padding.
    assert outputs[0][:, -1].tolist() == [1.5, -2.0] and np.all(outputs[0][1, :2] == 0)
    assert np.count_nonzero(outputs[0]) == 2 * 11 - 2


def test_neighbours_of_a_group_are_written_into_one_tensor():
    with harness.graph_and_session() as session:
        columns = [integers(key, 2, "group") for key in "abcd"]
        inputs = {key: tf.constant([[1], [2]], tf.int64) for key in "abcd"}
        layer = input_layer(inputs, columns)
        assert layer.op.type == "SokGroupLookup" and layer.shape.as_list() == [2, 8]
        # A numeric column, by name between b and c: two tensors and the column.
        between = input_layer(
            {**inputs, "b_price": tf.constant([1.0, 2.0])}, [*columns, fc.numeric_column("b_price")]
        )
        assert between.op.type == "ConcatV2"
        assert [tensor.shape[-1] for tensor in between.op.inputs[:-1]] == [4, 1, 4]
        assert len({tensor.op for tensor in between.op.inputs if tensor.op.type == "SokGroupLookup"}) == 1
        gradients = tf.gradients(tf.reduce_sum(layer * layer), tf.compat.v1.trainable_variables()[:4])
        assert all(gradient.op.type == "SokGroupLookupGrad" for gradient in gradients)
        (outer,) = {gradient.op for gradient in gradients}
        assert "Concat" not in "".join(tensor.op.type for tensor in outer.inputs)
        harness.initialize(session)
        assert session.run([layer, between, gradients])[1].shape == (2, 9)


def test_names_are_those_that_tensorflow_gives():
    names = []
    for ours in (False, True):
        with harness.graph_and_session(), tf.compat.v1.variable_scope("model"):
            if ours:
                columns = [integers("a", 2, "group"), integers("c", 3, "group")]
            else:
                columns = [
                    fc.embedding_column(fc.categorical_column_with_identity(key, 100), dim)
                    for key, dim in (("a", 2), ("c", 3))
                ]
            for _ in range(2):
                input_layer(features(), columns)
            names.append([variable.name for variable in tf.compat.v1.global_variables()])
    assert names[0] == names[1]
    assert names[0][-1] == "model/input_layer_1/c_embedding/embedding_weights:0"


def test_scopes_nest_repeat_and_mix():
    with harness.graph_and_session() as session:
        with feature_columns.group_embedding_column_scope("outer"):
            first = integers("a")
            with feature_columns.group_embedding_column_scope("inner"):
                second = integers("b")
            third = integers("c")
        fourth, alone = integers("d", scope="outer"), integers("e")
        with feature_columns.group_embedding_column_scope():
            fifth = integers("f")
        with feature_columns.group_embedding_column_scope():
            sixth = integers("g")
        columns = [first, second, third, fourth, alone, fifth, sixth]
        assert first.group == third.group == fourth.group and alone.group is None
        assert len({column.group for column in columns}) == 5
        layer = input_layer({key: tf.constant([[1], [2]], tf.int64) for key in "abcdefg"}, iter(columns))
        assert sorted(group_lookups()) == [1, 1, 1, 1, 3]
        harness.initialize(session)
        assert session.run(layer).shape == (2, 28)


def test_a_scope_that_raises_is_closed():
    with pytest.raises(KeyError), feature_columns.group_embedding_column_scope("failed"):
        raise KeyError
    assert integers("a").group is None


def test_copies_stay_in_their_group():
    with feature_columns.group_embedding_column_scope():
        column = strings("a")
    assert copy.deepcopy(column).group == copy.copy(column).group == column.group is not None


def test_variables_are_shared_where_the_variable_scope_says_so():
    with harness.graph_and_session() as session:
        columns = [integers("a", 2, "group"), integers("c", 3, "group")]
        outputs = []
        for _ in range(2):
            with tf.compat.v1.variable_scope("model", reuse=tf.compat.v1.AUTO_REUSE):
                with tf.compat.v1.variable_scope("layers", reuse=tf.compat.v1.AUTO_REUSE):
                    outputs.append(_layer_of_a_fixed_scope(columns))
        assert len(tf.compat.v1.global_variables()) == 2
        harness.initialize(session)
        first, second = session.run(outputs)
        np.testing.assert_array_equal(first, second)


def _layer_of_a_fixed_scope(columns, inputs=None):
    from tensorflow.python.feature_column import feature_column

    return feature_column._internal_input_layer(inputs or features(), columns, scope="input")


def test_input_layer_objects_share_their_variables_between_calls():
    from tensorflow.python.feature_column import feature_column

    with harness.graph_and_session() as session:
        layer = feature_column.InputLayer([integers("a", 2, "group"), integers("c", 3, "group")])
        first, second = layer(features()), layer(features())
        assert len(tf.compat.v1.global_variables()) == 2
        harness.initialize(session)
        np.testing.assert_array_equal(*session.run([first, second]))


def test_arguments_of_input_layer():
    with harness.graph_and_session() as session:
        columns = [integers("a", 2, "group"), fc.numeric_column("n"), integers("c", 3, "group")]
        variables, outputs = {}, {}
        layer = input_layer(
            features(),
            columns,
            weight_collections=["mine"],
            trainable=False,
            cols_to_vars=variables,
            cols_to_output_tensors=outputs,
        )
        tables = tf.compat.v1.global_variables()
        assert [variables[column] for column in columns] == [[tables[0]], [], [tables[1]]]
        assert tf.compat.v1.trainable_variables() == []
        for collection in ("mine", tf.compat.v1.GraphKeys.MODEL_VARIABLES):
            assert tf.compat.v1.get_collection(collection) == tables
        harness.initialize(session)
        parts = session.run([outputs[column] for column in (columns[0], columns[2], columns[1])])
        np.testing.assert_array_equal(np.concatenate(parts, axis=1), session.run(layer))


@pytest.mark.parametrize("scope", [None, "group"])
def test_partitioners_do_not_concern_tables(scope):
    partitioner = tf.compat.v1.fixed_size_partitioner(3)
    with harness.graph_and_session() as session:
        with tf.compat.v1.variable_scope("model", partitioner=partitioner):
            buckets = fc.categorical_column_with_hash_bucket("b", 30)
            with in_scope(scope):
                plain = fc.embedding_column(buckets, 2)
            layer = input_layer(features(), [plain, integers("a", 3, scope)])
            assert tf.compat.v1.get_variable_scope().partitioner is partitioner
        names = [variable.op.name for variable in tf.compat.v1.global_variables()]
        parts = [f"model/input_layer/b_embedding/embedding_weights/part_{part}" for part in range(3)]
        assert names == ["model/input_layer/a_embedding/embedding_weights", *parts]
        harness.initialize(session)
        assert session.run(layer).shape == (2, 5)


def test_strings_hash_to_the_fingerprint_of_their_bytes():
    # FarmHash's Fingerprint64 of the empty string is its constant k2; the hash of "a" is TensorFlow's own.
    with harness.graph_and_session() as session:
        keys = feature_columns.categorical_column.hash_strings(tf.constant(["", "a", "\x00", "ä" * 50]))
        buckets = tf.strings.to_hash_bucket_fast(tf.constant(["", "a", "\x00", "ä" * 50]), 2**62)
        keys, buckets = session.run([keys, buckets])
    assert keys.view(np.uint64)[0] == 0x9AE16A3B2F90404F
    assert (keys.view(np.uint64) % 2**62).tolist() == buckets.tolist()


def test_the_ends_of_the_keys_and_minus_one():
    with harness.graph_and_session() as session:
        column = integers("k", 3, "group", combiner="sum")
        hostile = tf.constant(harness.HOSTILE_KEYS)
        dense = input_layer({"k": hostile[:, tf.newaxis]}, [column])
        sparse = input_layer({"k": tf.sparse.from_dense(hostile[:, tf.newaxis])}, [column])
        harness.initialize(session)
        dense, sparse = session.run([dense, sparse])
    # from_dense leaves zeros out, a dense feature -1.
    zero, minus_one = list(harness.HOSTILE_KEYS).index(0), list(harness.HOSTILE_KEYS).index(-1)
    assert np.all(dense[minus_one] == 0) and np.all(np.delete(dense, minus_one, axis=0) != 0)
    assert np.all(sparse[zero] == 0) and np.all(np.delete(sparse, zero, axis=0) != 0)


def test_hooks_can_be_undone_and_leave_others_alone():
    from tensorflow.python.feature_column import feature_column, feature_column_v2

    hooks.uninstall()
    watched = [
        (feature_column, "_internal_input_layer"),
        (feature_column_v2.EmbeddingColumn, "__new__"),
        (feature_column_v2.SharedEmbeddingColumn, "__new__"),
        (feature_column_v2.IndicatorColumn, "__new__"),
        (feature_column._SharedEmbeddingColumn, "__new__"),
    ]
    before = [getattr(owner, name) for owner, name in watched]
    hooks.install()
    assert hooks.is_installed()
    hooks.install()
    plain = fc.embedding_column(fc.categorical_column_with_identity("a", 9), 2)
    assert type(plain) is feature_column_v2.EmbeddingColumn
    hooks.uninstall()
    assert not hooks.is_installed()
    assert [getattr(owner, name) for owner, name in watched] == before
    assert "__new__" not in vars(feature_column._SharedEmbeddingColumn)
    assert (
        type(fc.indicator_column(fc.categorical_column_with_identity("a", 9))).__name__ == "IndicatorColumn"
    )


class Options:
    def __init__(self, init_option=None, filter_option=None, evict_option=None):
        self.init_option = init_option
        self.filter_option = filter_option
        self.evict_option = evict_option


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
    # Uniform up to the root of 6 / (24 + 8).
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


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (
            lambda: input_layer({"a": tf.constant([1.0])}, [integers("a", scope="g")]),
            "'a': the feature is float32",
        ),
        (lambda: input_layer({"a": tf.constant([1])}, [strings("a", scope="g")]), "int32, but .* is string"),
        (
            lambda: input_layer({"a": tf.constant(["1"])}, [integers("a", scope="g")]),
            "string, but .* is int64",
        ),
        (lambda: input_layer({"b": tf.constant([1])}, [integers("a", scope="g")]), "Feature a is not in"),
        (
            lambda: input_layer({"a": tf.constant([1])}, [integers("a", combiner="max", scope="g")]),
            "unknown combiner 'max'",
        ),
        (
            lambda: input_layer(
                {"a": tf.constant([1])}, [integers("a", scope="g"), integers("a", scope="g")]
            ),
            "Duplicate feature column name",
        ),
        (
            lambda: input_layer(
                {"a": tf.constant([1]), "b": tf.constant([1, 2])},
                [integers("a", scope="g"), integers("b", scope="g")],
            ),
            "different batch sizes: 'a_embedding' has 1 rows, 'b_embedding' 2",
        ),
        (
            lambda: input_layer(
                {"a": tf.constant([1])},
                [integers("a", scope="g"), fc.categorical_column_with_identity("b", 3)],
            ),
            "input_layer takes dense columns",
        ),
    ],
)
def test_bad_calls_of_input_layer(make, text):
    with harness.graph_and_session(), pytest.raises(ValueError, match=text):
        make()


@pytest.mark.parametrize("version", ["v1", "v2"])
@pytest.mark.skipif(not compat.dense_features_layers(), reason="Keras 3 has no DenseFeatures")
def test_dense_features_looks_groups_up_together(version):
    outputs, names = [], []
    for scope in (None, "group"):
        with harness.graph_and_session() as session:
            with in_scope(scope):
                keys = [feature_columns.categorical_column_with_embedding(key, tf.int64) for key in "sc"]
                shared = tf.feature_column.shared_embeddings(keys, 2)
            columns = [*shared, strings("b", 3, scope), integers("a", 2, scope), fc.numeric_column("n")]
            module = tf.compat.v1.keras.layers if version == "v1" else tf.keras.layers
            layer, parts = module.DenseFeatures(columns, name="layer"), {}
            inputs = {**features(), "s": tf.constant([[7], [-(2**62)]], tf.int64)}
            output = layer(inputs, cols_to_output_tensors=parts)
            layer(inputs)
            assert group_lookups() == ([4, 4] if scope else [1] * 8)
            assert len(parts) == 5 and output.shape.as_list() == [2, 10]
            names.append([variable.name for variable in tf.compat.v1.global_variables()])
            tables = [variable.name for variable in layer.trainable_weights]
            assert tables == [f"layer/{key}_embedding/embedding_weights:0" for key in "ab"]
            harness.initialize(session)
            outputs.append(session.run(output))
    np.testing.assert_array_equal(outputs[0], outputs[1])
    assert names[0] == names[1] and "s_c_shared_embedding:0" not in names[0]
    assert len(names[0]) == 3


@pytest.mark.skipif(not compat.dense_features_layers(), reason="Keras 3 has no DenseFeatures")
def test_dense_features_that_do_not_train_insert_nothing():
    with harness.graph_and_session() as session:
        layer = tf.keras.layers.DenseFeatures([integers("a", 2, "group")])
        training = tf.compat.v1.placeholder(tf.bool, [])
        output = layer(features(), training=training)
        evaluation = layer(features(), training=False)
        harness.initialize(session)
        (table,) = layer.trainable_weights
        want = session.run(evaluation)
        np.testing.assert_array_equal(session.run(output, {training: False}), want)
        assert session.run(table.size()) == 0
        np.testing.assert_array_equal(session.run(output, {training: True}), want)
        assert session.run(table.size()) == 2


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
    # A parsed -1 is a key; what is missing reads as zeros.
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


def test_more_than_two_dimensions_combine_the_last():
    with harness.graph_and_session() as session:
        layers = []
        for scope, rank_known in ((None, True), ("group", True), ("group", False)):
            keys = tf.constant([[[1, 2]], [[-1, 3]]], tf.int64)
            if not rank_known:
                sparse = tf.sparse.from_dense(keys + 1)
                shape = tf.compat.v1.placeholder_with_default(sparse.dense_shape, None)
                keys = tf.SparseTensor(sparse.indices, sparse.values - 1, shape)
            with tf.compat.v1.variable_scope("same", reuse=tf.compat.v1.AUTO_REUSE):
                layers.append(_layer_of_a_fixed_scope([integers("a", 3, scope)], {"a": keys}))
        harness.initialize(session)
        first, second, third = session.run(layers)
        np.testing.assert_array_equal(first, second)
        np.testing.assert_array_equal(first, third)
        assert first.shape == (2, 3)


@pytest.mark.parametrize("layer", ["input_layer", "DenseFeatures"])
def test_ragged_features(layer):
    if layer == "DenseFeatures" and not compat.dense_features_layers():
        pytest.skip("Keras 3 has no DenseFeatures")
    with harness.graph_and_session() as session:
        columns = [integers("a", 3, "group", combiner="sum"), strings("b", 2, "group")]
        inputs = {
            "a": tf.ragged.constant([[1, -1, 7], [], [7]], dtype=tf.int64),
            "b": tf.ragged.constant([["x"], ["", "y"], []]),
        }
        with tf.compat.v1.variable_scope("same", reuse=tf.compat.v1.AUTO_REUSE):
            if layer == "input_layer":
                make = lambda features: _layer_of_a_fixed_scope(columns, features)  # noqa: E731
            else:
                make = tf.keras.layers.DenseFeatures(columns)
            outputs = [make(inputs), make({key: value.to_sparse() for key, value in inputs.items()})]
        harness.initialize(session)
        ragged, sparse = session.run(outputs)
        np.testing.assert_array_equal(ragged, sparse)
        assert ragged.shape == (3, 5) and np.count_nonzero(ragged) == 10


def test_a_shared_table_has_one_set_of_options():
    with harness.graph_and_session():
        with feature_columns.group_embedding_column_scope("group"):
            options = Options(filter_option=sok.CounterFilter(filter_freq=2))
            keys = [
                feature_columns.categorical_column_with_embedding("a", tf.int64),
                feature_columns.categorical_column_with_embedding("c", tf.int64, ev_option=options),
            ]
            columns = fc.shared_embedding_columns(keys, 2)
        with pytest.raises(ValueError, match="Column 'c_shared_embedding' has other options than column 'a_"):
            input_layer(features(), columns)


def test_a_variable_that_is_no_table_is_refused():
    with harness.graph_and_session():
        plain = fc.embedding_column(fc.categorical_column_with_identity("a", 9), 2)
        _layer_of_a_fixed_scope([plain])
        tf.compat.v1.get_variable_scope().reuse_variables()
        with pytest.raises(ValueError, match="Trying to share variable input/a_embedding/embedding_weights"):
            _layer_of_a_fixed_scope([integers("a", 2, "group")])


def test_columns_load_what_they_name_of_a_checkpoint(tmp_path):
    with harness.graph_and_session() as session:
        layer = input_layer(features(), [integers("a", 2, "group")])
        trained = tf.compat.v1.train.GradientDescentOptimizer(1.0).minimize(tf.reduce_sum(layer))
        harness.initialize(session)
        session.run(trained)
        want = session.run(layer)
        prefix = tf.compat.v1.train.Saver().save(session, str(tmp_path / "model"))
    with harness.graph_and_session() as session:
        column = integers(
            "a",
            2,
            "group",
            ckpt_to_load_from=prefix,
            tensor_name_in_ckpt="input_layer/a_embedding/embedding_weights",
        )
        with tf.compat.v1.variable_scope("other"):
            layer = input_layer(features(), [column])
        harness.initialize(session)
        np.testing.assert_array_equal(session.run(layer), want)


def test_checkpoints_are_those_of_the_same_columns_without_a_scope(tmp_path):
    outputs, prefix = [], None
    for scope in ("group", None):
        with harness.graph_and_session() as session:
            layer = input_layer(features(), [integers("a", 2, scope), strings("b", 3, scope)])
            step = tf.compat.v1.train.AdagradOptimizer(1.0).minimize(tf.reduce_sum(layer))
            saver = tf.compat.v1.train.Saver()
            if prefix is None:
                harness.initialize(session)
                session.run(step)
                prefix = saver.save(session, str(tmp_path / "model"))
            else:
                saver.restore(session, prefix)
            outputs.append([session.run(layer), session.run([step, layer])[1]])
    np.testing.assert_array_equal(outputs[0], outputs[1])


def _linear_columns(tables):
    if tables:
        keys = feature_columns.categorical_column_with_embedding("a", tf.int64)
        others = feature_columns.categorical_column_with_embedding("w", tf.int64)
    else:
        keys, others = (fc.categorical_column_with_identity(key, 9) for key in "aw")
    return [keys, fc.weighted_categorical_column(others, "weights"), fc.numeric_column("n")]


@pytest.mark.parametrize("combiner", ["sum", "mean"])
@pytest.mark.parametrize("units", [1, 3])
def test_linear_model_has_its_weights_in_tables(units, combiner):
    outputs, names = [], []
    with harness.graph_and_session() as session:
        inputs = {
            **features(),
            "w": tf.constant([[3, 4], [4, 5]], tf.int64),
            "weights": tf.constant([[0.5, -1], [2, 3]]),
        }
        for tables in (True, False):
            variables = {}
            with tf.compat.v1.variable_scope("tables" if tables else "plain"):
                columns = _linear_columns(tables)
                predictions = fc.linear_model(
                    inputs, columns, units=units, sparse_combiner=combiner, cols_to_vars=variables
                )
            if tables:
                assert group_lookups() == [2]
                assert isinstance(variables[columns[0]][0], sok.EmbeddingVariable)
            loss = tf.reduce_sum(tf.square(predictions - tf.range(1.0, units + 1)))
            outputs += [predictions, tf.compat.v1.train.AdagradOptimizer(0.2).minimize(loss)]
            names.append([variable.name.split("/", 1)[1] for variable in tf.compat.v1.trainable_variables()])
        harness.initialize(session)
        for _ in range(10):
            got, _, want, _ = session.run(outputs)
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
        assert got.shape == (2, units) and np.any(got != 0)
    assert names[1][len(names[0]) :] == names[0]


@pytest.mark.skipif(not compat.HAS_KERAS_2, reason="there is no Estimator")
def test_estimators_own_models(tmp_path):
    rng = np.random.default_rng(0)
    keys = rng.integers(-5, 20, [64, 2])
    labels = (keys.sum(axis=1) > 10).astype(np.int32)

    def samples():
        inputs = {"a": keys, "s": keys[:, 0].astype(str)}
        return tf.data.Dataset.from_tensor_slices((inputs, labels)).repeat(20).batch(16)

    estimators = tf.compat.v1.estimator
    columns = [integers("a", 4, "group"), strings("s", 4, "group")]
    deep = estimators.DNNClassifier(
        [8], columns, model_dir=str(tmp_path / "deep"), optimizer=OPTIMIZERS["adagrad"]()
    )
    sok.Init(global_batch_size=harness.GLOBAL_BATCH_SIZE, seed=harness.SEED)
    deep.train(samples, steps=40)
    before = deep.evaluate(samples, steps=4)
    deep.train(samples, steps=40)
    after = deep.evaluate(samples, steps=4)
    assert before["global_step"] == 40 and after["global_step"] == 80 and after["accuracy"] > 0.9

    wide = estimators.LinearClassifier([columns[0].categorical_column], model_dir=str(tmp_path / "wide"))
    with pytest.raises(ValueError, match="Column 'a': Estimator's own linear models summarize all weights"):
        wide.train(samples, steps=1)
