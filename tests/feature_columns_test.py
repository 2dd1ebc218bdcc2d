# Tags: versions
"""Embedding columns over embedding variables: groups in input_layer, names, checkpoints, configs."""

import copy
import json

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.feature_column import serialization

import feature_column_support as support
import harness
import sparse_operation_kit as sok
from feature_column_support import (
    Options,
    fc,
    features,
    group_lookups,
    in_scope,
    input_layer,
    integers,
    layer_of_a_fixed_scope,
    strings,
)
from sparse_operation_kit import feature_columns
from sparse_operation_kit.changes import replacements
from sparse_operation_kit.changes.replacement_table import Part
from sparse_operation_kit.tables.get_embedding_variable import EmbeddingVariableOption
from sparse_operation_kit.tables.storage_option import StorageOption, StorageType

session = harness.session

originals_afterwards = support.originals_afterwards


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
    # Sorted by name: a (2), b (3), c (5), n; the second row of a is only padding.
    assert outputs[0][:, -1].tolist() == [1.5, -2.0] and np.all(outputs[0][1, :2] == 0)
    assert np.count_nonzero(outputs[0]) == 2 * 11 - 2


def test_neighbours_of_a_group_are_written_into_one_tensor(session):
    columns = [integers(key, 2, "group") for key in "abcd"]
    inputs = {key: tf.constant([[1], [2]], tf.int64) for key in "abcd"}
    layer = input_layer(inputs, columns)
    assert layer.op.type == "SokGroupLookup" and layer.shape.as_list() == [2, 8]
    # The name of the numeric column is between b and c, so there are two tensors and the column.
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
                    fc.embedding_column(fc.categorical_column_with_identity(key, 100, default_value=0), dim)
                    for key, dim in (("a", 2), ("c", 3))
                ]
            for _ in range(2):
                input_layer(features(), columns)
            names.append([variable.name for variable in tf.compat.v1.global_variables()])
    assert names[0] == names[1]
    assert names[0][-1] == "model/input_layer_1/c_embedding/embedding_weights:0"


def test_scopes_nest_repeat_and_mix(session):
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


def test_variables_are_shared_where_the_variable_scope_says_so(session):
    columns = [integers("a", 2, "group"), integers("c", 3, "group")]
    outputs = []
    for _ in range(2):
        with tf.compat.v1.variable_scope("model", reuse=tf.compat.v1.AUTO_REUSE):
            with tf.compat.v1.variable_scope("layers", reuse=tf.compat.v1.AUTO_REUSE):
                outputs.append(layer_of_a_fixed_scope(columns))
    assert len(tf.compat.v1.global_variables()) == 2
    harness.initialize(session)
    first, second = session.run(outputs)
    np.testing.assert_array_equal(first, second)


def test_input_layer_objects_share_their_variables_between_calls(session):
    from tensorflow.python.feature_column import feature_column

    layer = feature_column.InputLayer([integers("a", 2, "group"), integers("c", 3, "group")])
    first, second = layer(features()), layer(features())
    assert len(tf.compat.v1.global_variables()) == 2
    harness.initialize(session)
    np.testing.assert_array_equal(*session.run([first, second]))


def test_arguments_of_input_layer(session):
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
def test_partitioners_do_not_concern_tables(session, scope):
    partitioner = tf.compat.v1.fixed_size_partitioner(3)
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


def _round_trip(columns, custom_objects=None):
    """Serializes the columns to text and makes them again."""
    text = json.dumps(serialization.serialize_feature_columns(columns))
    replacements.uninstall(Part.FEATURE_COLUMNS)
    return serialization.deserialize_feature_columns(json.loads(text), custom_objects)


def test_columns_are_made_again_from_their_configs():
    options = EmbeddingVariableOption(
        ht_partition_num=7,
        init_option=sok.InitializerOption("ones", default_value_no_permission=0.25),
        filter_option=sok.CBFFilter(2, 100, 0.01, tf.uint16),
        evict_option=sok.L2WeightEvict(0.5),
        storage_option=StorageOption(StorageType.DRAM, storage_size=(2, 3)),
    )
    key = feature_columns.categorical_column_with_embedding
    with in_scope("group"):
        with_options = fc.embedding_column(key("a", tf.int32, 3, options), 2, combiner="sqrtn")
        weighted = fc.embedding_column(fc.weighted_categorical_column(key("b"), "weights"), 3)
    with feature_columns.group_embedding_column_scope():
        unnamed = fc.embedding_column(key("c"), 4, trainable=False)
    columns = [with_options, weighted, unnamed, integers("d"), fc.numeric_column("n")]
    again = _round_trip(columns)
    # Initializers are compared by identity.
    assert [column._replace(initializer=None) for column in again[:4]] == [
        column._replace(initializer=None) for column in columns[:4]
    ]
    assert [type(column) for column in again] == [type(column) for column in columns]
    assert [column.group for column in again[:4]] == [column.group for column in columns[:4]]
    assert again[0].categorical_column.ev_option == options
    assert again[0].categorical_column.dtype == tf.int32


def test_columns_from_configs_look_up_as_the_first():
    outputs = []
    columns = [
        integers("a", 2, "group", initializer=tf.compat.v1.truncated_normal_initializer(1.0, 0.1)),
        strings("b", 3, "group"),
    ]
    for used in (columns, _round_trip(columns)):
        with harness.graph_and_session() as session:
            layer = input_layer(features(), used)
            assert group_lookups() == [2]
            harness.initialize(session)
            outputs.append(session.run(layer))
    np.testing.assert_array_equal(outputs[0], outputs[1])


class _OwnInitializer(tf.compat.v1.constant_initializer):
    """An initializer that TensorFlow cannot deserialize."""


@pytest.mark.parametrize(
    "initializer",
    [
        0.5,
        "zeros",
        (0.5, 1.5),
        tf.compat.v1.random_normal_initializer(0.0, 2.0),
        tf.keras.initializers.he_normal(seed=3),
        _OwnInitializer(3.0),
    ],
)
def test_initializers_of_options_in_configs(initializer):
    options = Options(init_option=sok.InitializerOption(initializer), evict_option=sok.GlobalStepEvict(3))
    column = feature_columns.categorical_column_with_embedding("a", ev_option=options)
    (again,) = _round_trip([column], {"_OwnInitializer": _OwnInitializer})
    assert again.ev_option.evict_option == options.evict_option and again.ev_option.filter_option is None
    made = again.ev_option.init_option.initializer
    if isinstance(initializer, (float, str, tuple)):
        assert made == initializer
    else:
        assert type(made).__name__ == type(initializer).__name__
        assert made.get_config() == initializer.get_config()


def test_configs_that_cannot_be_written_or_read_name_what_is_wrong():
    def draws(shape, dtype=None, partition_info=None):
        return tf.zeros(shape, dtype)

    options = Options(init_option=sok.InitializerOption(draws))
    column = feature_columns.categorical_column_with_embedding("a", ev_option=options)
    with pytest.raises(ValueError, match="Column 'a': .*draws.* in its ev_option has no config"):
        column.get_config()
    with pytest.raises(ValueError, match="Invalid config"):
        type(column).from_config({"key": "a"})
    options = Options(init_option=sok.InitializerOption(_OwnInitializer(1.0)))
    column = feature_columns.categorical_column_with_embedding("a", ev_option=options)
    with pytest.raises(ValueError, match="Unknown initializer: _OwnInitializer"):
        _round_trip([column])


@support.needs_dense_features
def test_dense_features_are_made_again_from_their_configs():
    layer = support.dense_features([integers("a", 2, "group"), strings("b", 3, "group")], name="layer")
    again = type(layer).from_config(json.loads(json.dumps(layer.get_config())))
    assert [column.group for column in again._feature_columns] == [integers("a", scope="group").group] * 2
    with harness.graph_and_session() as session:
        output = again(features())
        assert group_lookups() == [2] and output.shape.as_list() == [2, 5]
        harness.initialize(session)
        session.run(output)
