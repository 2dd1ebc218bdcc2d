"""Helpers for tests of feature columns: columns, features and counts of ops."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.feature_column import feature_column

import harness
import sparse_operation_kit as sok
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


VOCABULARY = 40
WORDS = [f"word {number}" for number in range(VOCABULARY)]
COMBINERS = ("sum", "mean", "sqrtn")
# The keys that replace small numbers: keys that are hard to represent.
SPREAD = np.concatenate(
    [harness.HOSTILE_KEYS, np.arange(10, 10 + VOCABULARY - len(harness.HOSTILE_KEYS)) * (2**40 + 1)]
)


@dataclasses.dataclass(frozen=True)
class Recipe:
    """A description of a column, from which it can be made in any graph, with or without scopes."""

    key: str
    kind: str
    dimension: int
    combiner: str
    weighted: bool
    dense: bool
    scope: str | None
    partner: str | None = None

    @property
    def is_string(self) -> bool:
        return self.kind in ("strings", "vocabulary", "hashed")


def random_recipes(seed: int, kinds: tuple[str, ...] | None = None) -> list[Recipe]:
    """Recipes of 1 to 9 columns; a column with a partner shares its table."""
    rng = np.random.default_rng(seed)
    kinds = kinds or ("integers", "integers", "strings", "identity", "vocabulary", "hashed", "numeric")
    recipes = []
    for number in range(rng.integers(1, 10)):
        kind = str(rng.choice(kinds))
        shared = kind in ("integers", "strings") and rng.random() < 0.2
        key = f"{rng.choice(['a', 'm', 'z'])}{number}"
        recipes.append(
            Recipe(
                key=key,
                kind=kind,
                dimension=int(rng.choice([1, 2, 3, 8, 17])),
                combiner=str(rng.choice(COMBINERS)),
                weighted=bool(kind != "numeric" and not shared and rng.random() < 0.3),
                dense=bool(rng.random() < 0.4),
                scope=[None, "first", "second", "first/nested"][rng.integers(4)],
                partner=f"{key}_partner" if shared else None,
            )
        )
    return recipes


def make_columns(recipes: list[Recipe], scoped: bool) -> list:
    """Makes the recipes' columns, in their scopes or without."""
    columns = []
    for recipe in recipes:
        with contextlib.ExitStack() as stack:
            for name in (recipe.scope or "").split("/") if scoped and recipe.scope else []:
                stack.enter_context(feature_columns.group_embedding_column_scope(name))
            columns += _columns_of(recipe)
    return columns


def _columns_of(recipe: Recipe) -> list:
    if recipe.kind == "numeric":
        return [fc.numeric_column(recipe.key, shape=[2])]
    initializer = tf.compat.v1.random_uniform_initializer(-1, 1, seed=7)
    options = {"combiner": recipe.combiner, "initializer": initializer}
    categorical = _categorical(recipe, recipe.key)
    if recipe.partner is not None:
        both = [categorical, _categorical(recipe, recipe.partner)]
        return list(fc.shared_embedding_columns(both, recipe.dimension, **options))
    if recipe.weighted:
        categorical = fc.weighted_categorical_column(categorical, f"{recipe.key}_weights")
    return [fc.embedding_column(categorical, recipe.dimension, **options)]


def _categorical(recipe: Recipe, key: str):
    return {
        "integers": lambda: feature_columns.categorical_column_with_embedding(key, tf.int64),
        "strings": lambda: feature_columns.categorical_column_with_embedding(key),
        "identity": lambda: fc.categorical_column_with_identity(key, VOCABULARY),
        "vocabulary": lambda: fc.categorical_column_with_vocabulary_list(key, WORDS[::2], num_oov_buckets=3),
        "hashed": lambda: fc.categorical_column_with_hash_bucket(key, 20),
    }[recipe.kind]()


def placeholders(recipes: list[Recipe]) -> dict:
    """The placeholders of all features, by key."""
    features = {}
    for recipe in recipes:
        if recipe.kind == "numeric":
            features[recipe.key] = tf.compat.v1.placeholder(tf.float32, [None, 2])
            continue
        dtype = tf.string if recipe.is_string else tf.int64
        for key in filter(None, (recipe.key, recipe.partner)):
            features[key] = _placeholder(dtype, recipe)
        if recipe.weighted:
            features[f"{recipe.key}_weights"] = _placeholder(tf.float32, recipe)
    return features


def _placeholder(dtype: tf.DType, recipe: Recipe):
    if recipe.dense and not recipe.weighted:
        return tf.compat.v1.placeholder(dtype, [None, 4])
    return tf.compat.v1.sparse_placeholder(dtype, [None, 4])


def batch(recipes: list[Recipe], rng: np.random.Generator, size: int) -> dict[str, np.ndarray]:
    """Features of `size` samples, by key: masked arrays [size, 4]; masked entries are missing."""
    values = {}
    for recipe in recipes:
        if recipe.kind == "numeric":
            values[recipe.key] = np.ma.array(rng.normal(size=[size, 2]).astype(np.float32))
            continue
        for key in filter(None, (recipe.key, recipe.partner)):
            numbers = np.minimum(rng.zipf(1.4, [size, 4]), VOCABULARY) - 1
            # One in five rows is empty.
            empty = (rng.random([size, 4]) < 0.4) | (rng.random([size, 1]) < 0.2)
            values[key] = np.ma.array(_ids(recipe, numbers), mask=empty)
        if recipe.weighted:
            drawn = rng.choice(np.array([-1.5, 0.0, 0.25, 1.0, 3.0], np.float32), [size, 4])
            values[f"{recipe.key}_weights"] = np.ma.array(drawn, mask=values[recipe.key].mask)
    return values


def _ids(recipe: Recipe, numbers: np.ndarray) -> np.ndarray:
    if recipe.is_string:
        return np.array(WORDS, dtype=object)[numbers]
    return SPREAD[numbers] if recipe.kind == "integers" else numbers.astype(np.int64)


def feed(features: dict, values: dict[str, np.ndarray]) -> dict:
    """The feed of the placeholders; missing entries are padding, or left out of sparse tensors."""
    result = {}
    for key, placeholder in features.items():
        value = values[key]
        if isinstance(placeholder, tf.SparseTensor):
            indices = np.argwhere(~np.ma.getmaskarray(value)).astype(np.int64)
            result[placeholder] = tf.compat.v1.SparseTensorValue(indices, value.compressed(), value.shape)
        elif placeholder.dtype == tf.float32:
            result[placeholder] = value.data
        else:
            result[placeholder] = value.filled("" if placeholder.dtype == tf.string else -1)
    return result


OPTIMIZERS = {
    "sgd": lambda: tf.compat.v1.train.GradientDescentOptimizer(0.3),
    "momentum": lambda: tf.compat.v1.train.MomentumOptimizer(0.1, 0.9),
    "adagrad": lambda: tf.compat.v1.train.AdagradOptimizer(0.3),
    "adam": lambda: tf.compat.v1.train.AdamOptimizer(0.05),
    "ftrl": lambda: tf.compat.v1.train.FtrlOptimizer(0.3),
}


def loss_of(layer: tf.Tensor, samples: int) -> tf.Tensor:
    """A loss that depends on every column: a sum over the batch, divided by `samples`."""
    width = layer.shape.as_list()[-1]
    factors = tf.reshape(tf.cos(tf.range(width, dtype=tf.float32)), [width, 1])
    predictions = tf.tanh(tf.matmul(layer, factors) / 4)
    return tf.reduce_sum(tf.square(predictions - 0.5)) / samples


@dataclasses.dataclass
class Run:
    """The result of a training: the layer's output in each step, and all variables at the end."""

    outputs: list[np.ndarray]
    variables: dict[str, np.ndarray]

    def assert_equal(self, other: Run) -> None:
        harness.assert_equal_arrays(self.outputs, other.outputs)
        harness.assert_equal_dicts(self.variables, other.variables)

    def assert_close(self, other: Run) -> None:
        harness.assert_close_arrays(self.outputs, other.outputs, rtol=2e-4, atol=2e-5)


def train(
    recipes: list[Recipe], scoped: bool, steps: list[dict[str, np.ndarray]], optimizer: str, samples: int
) -> Run:
    """Trains on the batches, in a fresh graph, and reads every table."""
    with harness.graph_and_session() as session:
        features = placeholders(recipes)
        layer = fc.input_layer(features, make_columns(recipes, scoped))
        trainer = sok.DistributedOptimizer(OPTIMIZERS[optimizer](), op="sum")
        step = trainer.minimize(loss_of(layer, samples)) if tf.compat.v1.trainable_variables() else tf.no_op()
        tables = tf.compat.v1.trainable_variables()
        reads = {table.name: table_reader(table) for table in tables}
        session.run([tf.compat.v1.global_variables_initializer(), tf.compat.v1.tables_initializer()])
        outputs = [session.run([layer, step], feed(features, values))[0] for values in steps]
        return Run(outputs, session.run(reads))


def table_reader(variable: tf.Variable) -> tf.Tensor:
    """Reads the rows of all keys that `batch` uses, or all rows of an ordinary variable."""
    if not isinstance(variable, sok.EmbeddingVariable):
        return variable.read_value()
    words = feature_columns.categorical_column.hash_strings(tf.constant(WORDS))
    return tf.nn.embedding_lookup(variable, tf.concat([words, SPREAD], 0))
