"""Random sets of columns have the same outputs and train equally with and without scopes."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

import feature_column_sets as sets
import harness
import sparse_operation_kit as sok
from same_length import zip_equal
from sparse_operation_kit import compat

pytestmark = pytest.mark.cases_on_gpu(1)

BATCH = 12
STEPS = 20


def batches(recipes, seed, count):
    rng = np.random.default_rng(seed)
    sizes = [BATCH] * (count - 2) + [1, 5]
    return [sets.batch(recipes, rng, size) for size in sizes]


@pytest.mark.parametrize("seed", range(10))
def test_scopes_change_no_bit_of_the_output(seed):
    recipes = sets.random_recipes(seed)
    steps = batches(recipes, seed, 4)
    optimizer = list(sets.OPTIMIZERS)[seed % len(sets.OPTIMIZERS)]
    alone, grouped = (sets.train(recipes, scoped, steps, optimizer, BATCH) for scoped in (False, True))
    if not any(recipe.partner for recipe in recipes):
        grouped.assert_equal(alone)
    grouped.assert_close(alone)
    np.testing.assert_array_equal(grouped.outputs[0], alone.outputs[0])


@pytest.mark.parametrize("optimizer", sets.OPTIMIZERS)
def test_scopes_change_nothing_in_many_steps(optimizer):
    recipes = sets.random_recipes(100 + list(sets.OPTIMIZERS).index(optimizer))
    # In a group, the gradients of a table that two columns share are summed in another order.
    recipes = [recipe for recipe in recipes if recipe.partner is None]
    steps = batches(recipes, 1, STEPS)
    alone, grouped = (sets.train(recipes, scoped, steps, optimizer, BATCH) for scoped in (False, True))
    grouped.assert_equal(alone)
    assert np.any(grouped.outputs[0] != grouped.outputs[1])


@pytest.mark.parametrize("seed", range(3))
def test_tables_train_as_variables_of_tensorflow_with_the_same_rows(seed):
    ours = [
        recipe for recipe in sets.random_recipes(200 + seed, kinds=("integers",)) if recipe.partner is None
    ]
    theirs = [dataclasses.replace(recipe, kind="identity") for recipe in ours]
    # Without momentum and FTRL: for an empty bag, TensorFlow looks up row 0 and discards it. Its gradient of
    # zero makes these optimizers move that row.
    optimizer = ["sgd", "adagrad", "adam"][seed % 3]
    steps = batches(theirs, seed, STEPS)
    with harness.graph_and_session() as session:
        features = sets.placeholders(theirs)
        layers = []
        for scope, recipes, scoped in (("ours", ours, True), ("theirs", theirs, False)):
            with tf.compat.v1.variable_scope(scope):
                layers.append(sets.fc.input_layer(features, sets.make_columns(recipes, scoped)))
        losses = [sets.loss_of(layer, BATCH) for layer in layers]
        train = [sets.OPTIMIZERS[optimizer]().minimize(loss) for loss in losses]
        tables = [v for v in tf.compat.v1.trainable_variables() if isinstance(v, sok.EmbeddingVariable)]
        plain = [v for v in tf.compat.v1.trainable_variables() if not isinstance(v, sok.EmbeddingVariable)]
        rows = [tf.nn.embedding_lookup(table, np.arange(sets.VOCABULARY)) for table in tables]
        harness.initialize(session)
        for variable, value in zip_equal(plain, session.run(rows)):
            variable.load(value, session)
        for step, values in enumerate(steps):
            got, want, *_ = session.run([*layers, *train], sets.feed(features, values))
            if step == 0:
                # 1.15 multiplies means by an inverse.
                np.testing.assert_array_max_ulp(got, want, 0 if compat.IS_TENSORFLOW_2 else 2)
            np.testing.assert_allclose(got, want, rtol=2e-4, atol=2e-5)
        for variable, value in zip_equal(plain, session.run(rows)):
            np.testing.assert_allclose(value, session.run(variable), rtol=2e-4, atol=2e-5)
