# Tags: versions
"""Models of feature columns train as those of TensorFlow, also random sets of columns."""

import contextlib
import dataclasses

import numpy as np
import pytest
import tensorflow as tf

import feature_column_support as support
import harness
import sparse_operation_kit as sok
from feature_column_support import (
    OPTIMIZERS,
    fc,
    features,
    group_lookups,
    in_scope,
    input_layer,
    integers,
    layer_of_a_fixed_scope,
    strings,
)
from same_length import zip_equal
from sparse_operation_kit import compat, feature_columns

pytestmark = pytest.mark.cases_on_gpu(1)
session = harness.session

originals_afterwards = support.originals_afterwards


@pytest.mark.parametrize("version", ["v1", "v2"])
@support.needs_dense_features
def test_dense_features_looks_groups_up_together(version):
    outputs, names = [], []
    for scope in (None, "group"):
        with harness.graph_and_session() as session:
            with in_scope(scope):
                keys = [feature_columns.categorical_column_with_embedding(key, tf.int64) for key in "sc"]
                shared = tf.compat.v2.feature_column.shared_embeddings(keys, 2)
            columns = [*shared, strings("b", 3, scope), integers("a", 2, scope), fc.numeric_column("n")]
            layer, parts = support.dense_features(columns, version=version, name="layer"), {}
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


def _linear_columns(tables):
    if tables:
        keys = feature_columns.categorical_column_with_embedding("a", tf.int64)
        others = feature_columns.categorical_column_with_embedding("w", tf.int64)
    else:
        keys, others = (fc.categorical_column_with_identity(key, 9) for key in "aw")
    return [keys, fc.weighted_categorical_column(others, "weights"), fc.numeric_column("n")]


@pytest.mark.parametrize(("units", "combiner"), [(1, "sum"), (3, "mean")])
def test_linear_model_has_its_weights_in_tables(session, units, combiner):
    outputs, names = [], []
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


def _layers(columns):
    """By name, the layers and functions that look up these columns."""
    categorical = columns[0].categorical_column
    layers = {
        "input_layer": lambda inputs: layer_of_a_fixed_scope(columns, inputs),
        "linear_model": lambda inputs: fc.linear_model(inputs, [categorical, fc.numeric_column("n")]),
    }
    if compat.dense_features_layers():
        layers["DenseFeatures"] = support.dense_features(columns)
    return layers


def _rows(session):
    return session.run([table.size() for table in _tables()])


def _tables():
    variables = tf.compat.v1.global_variables()
    return [variable for variable in variables if isinstance(variable, sok.EmbeddingVariable)]


@pytest.mark.parametrize("scope", [None, "group"])
def test_a_scope_says_whether_lookups_insert(scope):
    for name in _layers([integers("a")]):
        with harness.graph_and_session() as session:
            make = _layers([integers("a", 2, scope), fc.numeric_column("n")])[name]
            training = tf.compat.v1.placeholder(tf.bool, [])
            outputs = []
            with tf.compat.v1.variable_scope("model", reuse=tf.compat.v1.AUTO_REUSE):
                for value in (False, training):
                    with feature_columns.training_scope(True), feature_columns.training_scope(value):
                        outputs.append(make(features()))
            gradients = tf.gradients(outputs[0], _tables())
            (gradient,) = (gradient for gradient in gradients if gradient is not None)
            harness.initialize(session)
            want, moved = session.run([outputs[0], gradient.indices])
            assert len(moved) == 0
            np.testing.assert_array_equal(session.run(outputs[1], {training: False})[:, :2], want[:, :2])
            assert set(_rows(session)) == {0}, name
            session.run(outputs[1], {training: True})
            assert max(_rows(session)) == 2, name


def test_after_a_scope_lookups_insert_again(session):
    with pytest.raises(KeyError), feature_columns.training_scope(False):
        raise KeyError
    layer = input_layer(features(), [integers("a")])
    harness.initialize(session)
    session.run(layer)
    assert _rows(session) == [2]


@support.needs_dense_features
@pytest.mark.parametrize("scope", [None, "group"])
def test_the_argument_of_dense_features_goes_before_the_scope(session, scope):
    layer = support.dense_features([integers("a", 2, scope)])
    with feature_columns.training_scope(True):
        evaluation = layer(features(), training=False)
    with feature_columns.training_scope(False):
        step = layer(features(), training=True)
    harness.initialize(session)
    session.run(evaluation)
    assert _rows(session) == [0]
    session.run(step)
    assert _rows(session) == [2]


@pytest.mark.parametrize(
    ("training", "error", "text"),
    [
        (None, TypeError, "must be a bool or a scalar bool tensor, not None"),
        ("eval", TypeError, "must be a bool or a scalar bool tensor, not 'eval'"),
        (lambda: tf.constant(1), TypeError, "must be a bool or a scalar bool tensor, not .*int32"),
        (lambda: tf.constant([True]), ValueError, r"has shape \(1,\), not \[\]"),
    ],
)
def test_a_scope_takes_a_bool_or_a_bool_tensor(training, error, text):
    with tf.Graph().as_default(), pytest.raises(error, match=text):
        with feature_columns.training_scope(training() if callable(training) else training):
            pass


class _CountRows(tf.compat.v1.train.SessionRunHook):
    """Records the number of rows of the tables at the end of a session."""

    def begin(self):
        self.rows = None
        self._sizes = [table.size() for table in _tables()]

    def end(self, session):
        self.rows = session.run(self._sizes)


@pytest.mark.skipif(not compat.HAS_KERAS_2, reason="there is no Estimator")
def test_estimators_evaluate_without_inserting(tmp_path):
    def samples(first):
        inputs = {"a": np.arange(first, first + 8)[:, None]}
        labels = np.arange(8) % 2
        return lambda: tf.data.Dataset.from_tensor_slices((inputs, labels)).batch(8)

    def model_fn(features, labels, mode, params):
        training = mode == tf.estimator.ModeKeys.TRAIN if params["by_mode"] else True
        with feature_columns.training_scope(training):
            layer = input_layer(features, [integers("a", 2, "group")])
        loss = tf.reduce_mean(tf.square(tf.reduce_sum(layer, axis=1) - tf.cast(labels, tf.float32)))
        step = OPTIMIZERS["sgd"]().minimize(loss, tf.compat.v1.train.get_global_step())
        return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=step)

    make, folder = tf.compat.v1.estimator.Estimator, str(tmp_path / "own")
    deep = tf.compat.v1.estimator.DNNClassifier([4], [integers("a")], model_dir=str(tmp_path / "deep"))
    nothing = contextlib.nullcontext()
    estimators = [
        # Estimator's deep models pass `training` to DenseFeatures, but for those of 1.15.
        (deep, 8, feature_columns.training_scope(False) if compat.VERSION < (2, 0) else nothing),
        (make(model_fn, folder, params={"by_mode": True}), 8, nothing),
        (make(model_fn, folder, params={"by_mode": False}), 16, nothing),
    ]
    sok.Init(global_batch_size=harness.GLOBAL_BATCH_SIZE, seed=harness.SEED)
    hook = _CountRows()
    for estimator, rows, scope in estimators:
        if not estimator.latest_checkpoint():
            estimator.train(samples(0), steps=1)
        with scope:
            estimator.evaluate(samples(100), hooks=[hook])
        assert hook.rows == [rows]


@pytest.mark.skipif(not compat.HAS_KERAS_2, reason="there is no Estimator")
def test_a_scope_around_an_estimator_holds_for_what_it_builds(tmp_path):
    keys = [feature_columns.categorical_column_with_embedding(key, tf.int64) for key in "ab"]
    with tf.Graph().as_default():
        columns = fc.shared_embedding_columns(keys, 2)
    deep = tf.compat.v1.estimator.DNNClassifier([4], columns, model_dir=str(tmp_path))

    def samples(first):
        inputs = {"a": np.arange(first, first + 8)[:, None], "b": np.arange(8)[:, None]}
        return lambda: tf.data.Dataset.from_tensor_slices((inputs, np.arange(8) % 2)).batch(8)

    sok.Init(global_batch_size=harness.GLOBAL_BATCH_SIZE, seed=harness.SEED)
    deep.train(samples(0), steps=1)
    hook = _CountRows()
    for scope, rows in ((contextlib.nullcontext(), 16), (feature_columns.training_scope(False), 8)):
        with scope:
            deep.evaluate(samples(100), hooks=[hook])
        assert hook.rows == [rows]


BATCH = 12
STEPS = 20


def batches(recipes, seed, count):
    rng = np.random.default_rng(seed)
    sizes = [BATCH] * (count - 2) + [1, 5]
    return [support.batch(recipes, rng, size) for size in sizes]


@pytest.mark.parametrize("seed", range(10))
def test_scopes_change_no_bit_of_the_output(seed):
    recipes = support.random_recipes(seed)
    steps = batches(recipes, seed, 4)
    optimizer = list(support.OPTIMIZERS)[seed % len(support.OPTIMIZERS)]
    alone, grouped = (support.train(recipes, scoped, steps, optimizer, BATCH) for scoped in (False, True))
    if not any(recipe.partner for recipe in recipes):
        grouped.assert_equal(alone)
    grouped.assert_close(alone)
    np.testing.assert_array_equal(grouped.outputs[0], alone.outputs[0])


@pytest.mark.parametrize("optimizer", support.OPTIMIZERS)
def test_scopes_change_nothing_in_many_steps(optimizer):
    recipes = support.random_recipes(100 + list(support.OPTIMIZERS).index(optimizer))
    # In a group, the gradients of a table that two columns share are summed in another order.
    recipes = [recipe for recipe in recipes if recipe.partner is None]
    steps = batches(recipes, 1, STEPS)
    alone, grouped = (support.train(recipes, scoped, steps, optimizer, BATCH) for scoped in (False, True))
    grouped.assert_equal(alone)
    assert np.any(grouped.outputs[0] != grouped.outputs[1])


@pytest.mark.parametrize("seed", range(3))
def test_tables_train_as_variables_of_tensorflow_with_the_same_rows(session, seed):
    ours = [
        recipe for recipe in support.random_recipes(200 + seed, kinds=("integers",)) if recipe.partner is None
    ]
    theirs = [dataclasses.replace(recipe, kind="identity") for recipe in ours]
    # Without momentum and FTRL: for an empty bag, TensorFlow looks up row 0 and discards it. Its gradient of
    # zero makes these optimizers move that row.
    optimizer = ["sgd", "adagrad", "adam"][seed % 3]
    steps = batches(theirs, seed, STEPS)
    features = support.placeholders(theirs)
    layers = []
    for scope, recipes, scoped in (("ours", ours, True), ("theirs", theirs, False)):
        with tf.compat.v1.variable_scope(scope):
            layers.append(support.fc.input_layer(features, support.make_columns(recipes, scoped)))
    losses = [support.loss_of(layer, BATCH) for layer in layers]
    train = [support.OPTIMIZERS[optimizer]().minimize(loss) for loss in losses]
    tables = [v for v in tf.compat.v1.trainable_variables() if isinstance(v, sok.EmbeddingVariable)]
    plain = [v for v in tf.compat.v1.trainable_variables() if not isinstance(v, sok.EmbeddingVariable)]
    rows = [tf.nn.embedding_lookup(table, np.arange(support.VOCABULARY)) for table in tables]
    harness.initialize(session)
    for variable, value in zip_equal(plain, session.run(rows)):
        variable.load(value, session)
    for step, values in enumerate(steps):
        got, want, *_ = session.run([*layers, *train], support.feed(features, values))
        if step == 0:
            # 1.15 multiplies means by an inverse.
            np.testing.assert_array_max_ulp(got, want, 0 if compat.IS_TENSORFLOW_2 else 2)
        np.testing.assert_allclose(got, want, rtol=2e-4, atol=2e-5)
    for variable, value in zip_equal(plain, session.run(rows)):
        np.testing.assert_allclose(value, session.run(variable), rtol=2e-4, atol=2e-5)
