"""The example's models: each learns, and the interactions of features are correct."""

import numpy as np
import pytest
import tensorflow as tf

from ctr.bad_lines import BadLines
from ctr.datasets.criteo import Criteo
from ctr.history import History
from ctr.models.dlrm import pair_products
from ctr.models.model import ModelSettings
from ctr.parsing import combined_ids, field_ids
from ctr.progress import Progress
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
