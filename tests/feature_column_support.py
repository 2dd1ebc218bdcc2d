"""Helpers for tests of feature columns: columns, features and counts of ops."""

import contextlib
import importlib

import pytest
import tensorflow as tf
from tensorflow.python.feature_column import feature_column

from sparse_operation_kit import compat, feature_columns
from sparse_operation_kit.changes import replacements
from sparse_operation_kit.changes.replacement_table import Part

fc = tf.compat.v1.feature_column
input_layer = fc.input_layer


@pytest.fixture(autouse=True)
def originals_afterwards():
    """A fixture that undoes all replacements in TensorFlow after each test."""
    yield
    replacements.uninstall(Part.FEATURE_COLUMNS)


def in_scope(name):
    """The group scope of that name, or no scope for None."""
    if name is None:
        return contextlib.nullcontext()
    return feature_columns.group_embedding_column_scope(name)


def integers(key, dimension=4, scope=None, **options):
    """An embedding column over integer keys."""
    with in_scope(scope):
        column = feature_columns.categorical_column_with_embedding(key, tf.int64)
        return fc.embedding_column(column, dimension, **options)


def strings(key, dimension=4, scope=None, **options):
    """An embedding column over strings."""
    with in_scope(scope):
        return fc.embedding_column(
            feature_columns.categorical_column_with_embedding(key), dimension, **options
        )


def group_lookups():
    """The number of lookups in each lookup op of the graph."""
    operations = tf.compat.v1.get_default_graph().get_operations()
    return [len(op.get_attr("layouts")) for op in operations if op.type == "SokGroupLookup"]


def features():
    """Two samples: dense keys, dense strings, sparse keys, numbers."""
    return {
        "a": tf.constant([[1, -1, 7], [-1, -1, -1]], tf.int64),
        "b": tf.constant([["x", "", "y"], ["y", "y", ""]]),
        "c": tf.SparseTensor(
            [[0, 0], [0, 4], [1, 1]], tf.constant([-1, -(2**63), 2**63 - 1], tf.int64), [2, 5]
        ),
        "n": tf.constant([1.5, -2.0]),
    }


def layer_of_a_fixed_scope(columns, inputs=None):
    """An `input_layer` whose variables have the same names in every call."""
    return feature_column._internal_input_layer(inputs or features(), columns, scope="input")


needs_dense_features = pytest.mark.skipif(
    not compat.dense_features_layers(), reason="Keras 3 has no DenseFeatures, and tf_keras is not installed"
)


def dense_features(*args, version="v2", **kwargs):
    """A DenseFeatures layer of TensorFlow's Keras 2, or of tf_keras."""
    if version == "v1":
        (layer,) = compat.dense_features_layers()
        return layer(*args, **kwargs)
    keras = tf.keras if compat.HAS_KERAS_2 else importlib.import_module("tf_keras")
    return keras.layers.DenseFeatures(*args, **kwargs)


class Options:
    """Options of a table. Any object with these attributes is accepted."""

    def __init__(self, init_option=None, filter_option=None, evict_option=None):
        self.init_option = init_option
        self.filter_option = filter_option
        self.evict_option = evict_option
