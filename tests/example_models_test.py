# Not on GPUs: a program; the tests gpu_* have one
"""The example's models and tables: what they learn, interactions of features, pooling, and the AUC."""

import math

import numpy as np
import pytest
import tensorflow as tf
from sklearn import metrics

import forked
from ctr.bad_lines import BadLines
from ctr.datasets.criteo import Criteo
from ctr.history import History, auc, log_loss
from ctr.models import ModelSettings, pair_products
from ctr.parsing import combined_ids, field_ids
from ctr.report import Progress
from ctr.tables import TensorFlowTables
from ctr.training import Trainer, TrainingSettings
from example_support import write_criteo
from harness import without_optimizations


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default():
        yield


def make_criteo(folder):
    return Criteo(str(write_criteo(folder)), 1, 0.2, BadLines(0, print))


def train(dataset, model, seed=1, max_steps=None):
    settings = TrainingSettings(
        model=model,
        model_settings=ModelSettings(dim=4, hidden=(8,), dropout=0.1, cross_layers=2),
        batch_size=32,
        epochs=6,
        max_steps=max_steps,
        optimizer="lazy_adam",
        learning_rate=0.01,
        embedding_l2=1e-4,
        seed=seed,
    )
    history = History()
    trainer = Trainer(settings, dataset, TensorFlowTables(5000))
    config = without_optimizations(tf.compat.v1.ConfigProto())
    with tf.compat.v1.Session(config=config) as session, Progress(1000) as progress:
        trainer.run(session, history, BadLines(0, print), progress, lambda _: None)
    return history


def losses(history):
    return np.array([step.loss for step in history.losses])


def test_what_can_be_learnt_is_learnt(tmp_path):
    history = train(make_criteo(tmp_path), "dlrm")
    assert history.evaluations[-1].auc > 0.98


def test_a_seed_gives_the_same_first_losses_and_another_others(tmp_path):
    def first_losses(seed):
        with tf.Graph().as_default():
            return losses(train(make_criteo(tmp_path), "dcn_v2", seed=seed, max_steps=3))

    first, again, other = (first_losses(seed) for seed in (1, 1, 2))
    assert again == pytest.approx(first, rel=1e-5)
    assert np.abs(other - first).max() > 1e-4


def test_pair_products_are_the_dot_products_of_all_pairs():
    vectors = np.random.default_rng(1).normal(size=(5, 4, 3)).astype(np.float32)
    with tf.compat.v1.Session() as session:
        result = session.run(pair_products(tf.constant(vectors)))
    expected = [[row[i] @ row[j] for i in range(4) for j in range(i)] for row in vectors]
    assert result == pytest.approx(np.array(expected), abs=1e-5)


def test_combined_ids_tell_combinations_and_their_order_apart():
    pairs = np.array([[[1, 2], [2, 1]], [[1, 3], [1, 2]]], np.int64)
    with tf.compat.v1.Session() as session:
        ids = session.run(combined_ids(tf.constant(pairs)))
    assert ids.shape == (2, 2)
    assert ids[0, 0] == ids[1, 1]
    assert len(set(ids.ravel().tolist())) == 3


def test_a_batch_without_samples_has_no_ids():
    """Ranks whose data has ended, and blocks of malformed lines only, have such batches."""
    values, ids = tf.zeros([0, 2], tf.string), tf.zeros([0, 3, 2], tf.int64)
    with tf.compat.v1.Session() as session:
        hashed, combined = session.run([field_ids(["a", "b"], values), combined_ids(ids)])
    assert (hashed.shape, combined.shape) == ((0, 2), (0, 3))
    assert (hashed.dtype, combined.dtype) == (np.int64, np.int64)


# Runs in its own process, because SOK is initialized once per process, and other tests need other arguments.
_SOK_PROGRAM = """
import numpy as np
import tensorflow as tf
from ctr.tables import SokTables

tf.compat.v1.disable_eager_execution()
tables = SokTables(global_batch_size=2, seed=3)
ids = tf.constant([[5, -7], [5, 2**62]], tf.int64)
training = tf.compat.v1.placeholder(tf.bool, [])
one_hot = tables.one_hot("one", ids, 3, training)
bags = tf.constant([[[5, 6, 7]], [[5, 0, 0]], [[1, 2, 3]]], tf.int64)
present = tf.constant([[[True, True, False]], [[True, False, False]], [[False, False, False]]])
multi_hot = tables.multi_hot("many", bags, present, 3, training)
dense = tf.compat.v1.get_variable("dense", [2], use_resource=True)
loss = tf.reduce_sum(one_hot) * dense[0] + tf.reduce_sum(multi_hot) * dense[1]
step = tables.train(loss, "lazy_adam", 0.125)
initialize = tf.compat.v1.global_variables_initializer()
with tf.compat.v1.Session() as session:
    tables.prepare(session)
    session.run(initialize)
    rows, pooled = session.run([one_hot, multi_hot], {training: False})
assert rows.shape == (2, 2, 3), rows.shape
assert (rows[0, 0] == rows[1, 0]).all() and (rows[0, 1] != rows[1, 1]).any(), rows
assert np.abs(rows).max() <= 0.05 and np.abs(rows).min() > 0, rows
assert pooled.shape == (3, 1, 3), pooled.shape
assert (pooled[2] == 0).all() and (pooled[0] != pooled[1]).any(), pooled
assert np.abs(pooled[1]).min() > 0, pooled
with tf.compat.v1.Session() as session:
    tables.prepare(session)
    session.run(initialize)
    session.run(tables.broadcast())
    before = session.run(dense)
    session.run(step, {training: True})
    moved = session.run(dense) - before
    later = session.run(one_hot, {training: False})
# Adam's first step is the rate, wherever there is a gradient.
assert np.allclose(np.abs(moved), 0.125, rtol=1e-3), moved
assert np.allclose(np.abs(later - rows), 0.125, rtol=1e-3), later - rows
"""


def test_sok_tables_serve_any_id():
    forked.succeeded(forked.run_code(_SOK_PROGRAM))


@pytest.fixture
def session():
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        yield session


def test_tensorflow_tables_take_ids_modulo_their_rows(session):
    ids = tf.constant([[3, -1], [13, 2**62]], tf.int64)
    rows = TensorFlowTables(10).one_hot("one", ids, 2, tf.constant(True))
    session.run(tf.compat.v1.global_variables_initializer())
    table = session.run(tf.compat.v1.trainable_variables()[0])
    assert table.shape == (10, 2) and np.abs(table).max() <= 0.05
    assert (session.run(rows) == table[np.array([[3, 9], [3, 2**62 % 10]])]).all()


def test_tensorflow_tables_average_what_is_present(session):
    ids = tf.constant([[[1, 2, 3], [14, 5, 6]], [[7, 8, 9], [-1, 0, 0]]], tf.int64)
    present = tf.constant([[[1, 0, 1], [1, 1, 1]], [[0, 0, 0], [1, 0, 0]]]) > 0
    bags = TensorFlowTables(10).multi_hot("many", ids, present, 2, tf.constant(True))
    session.run(tf.compat.v1.global_variables_initializer())
    table = session.run(tf.compat.v1.trainable_variables()[0])
    expected = [[table[[1, 3]].mean(0), table[[4, 5, 6]].mean(0)], [np.zeros(2), table[9]]]
    assert session.run(bags) == pytest.approx(np.array(expected), abs=1e-6)


def test_tensorflow_tables_train_with_the_dense_weights(session):
    tables = TensorFlowTables(10)
    rows = tables.one_hot("one", tf.constant([[3, 3]], tf.int64), 2, tf.constant(True))
    dense = tf.compat.v1.get_variable("dense", [2], use_resource=True)
    step = tables.train(tf.reduce_sum(rows) + 5 * tf.reduce_sum(dense), "sgd", 0.5)
    session.run(tf.compat.v1.global_variables_initializer())
    before = session.run([rows, dense])
    session.run(tables.broadcast())
    session.run(step)
    after = session.run([rows, dense])
    # The row is looked up twice.
    assert after[0] - before[0] == pytest.approx(np.full([1, 2, 2], -1.0))
    assert after[1] - before[1] == pytest.approx(np.full([2], -2.5))


@pytest.mark.parametrize("size", [2, 3, 10, 1000, 20000])
@pytest.mark.parametrize("levels", [2, 5, 1000, None])
def test_auc_equals_sklearn_with_and_without_ties(size, levels):
    generator = np.random.default_rng(size)
    labels = generator.integers(0, 2, size)
    labels[:2] = (0, 1)
    scores = generator.normal(size=size) + labels
    if levels is not None:
        scores = np.round(scores * levels / 8)
    assert auc(labels, scores) == pytest.approx(metrics.roc_auc_score(labels, scores), abs=1e-12)


@pytest.mark.parametrize("labels", [[], [0, 0], [1, 1, 1]])
def test_auc_of_a_single_class_is_nan(labels):
    assert math.isnan(auc(np.array(labels), np.zeros(len(labels))))


def test_log_loss_equals_sklearn():
    generator = np.random.default_rng(3)
    logits = generator.normal(0, 3, 500)
    labels = generator.integers(0, 2, 500)
    expected = metrics.log_loss(labels, 1 / (1 + np.exp(-logits)))
    assert log_loss(labels, logits) == pytest.approx(expected, rel=1e-9)


def test_log_loss_stays_finite_for_huge_logits():
    assert log_loss(np.array([0, 1]), np.array([1e4, 1e4])) == pytest.approx(5e3)


def test_log_loss_of_nothing_is_nan():
    assert math.isnan(log_loss(np.zeros(0), np.zeros(0)))
