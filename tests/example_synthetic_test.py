"""Generated data: its shape, its distribution, and the best possible AUC."""

import numpy as np
import pytest
import tensorflow as tf

from ctr.datasets.synthetic import Synthetic
from ctr.metrics import auc
from example_support import joined, read_part


@pytest.fixture(scope="module")
def samples():
    with tf.Graph().as_default():
        return joined(read_part(Synthetic(2, 100, 30000), "held_out", 1000))


def test_batches_have_the_size_asked_for_and_the_last_holds_the_rest():
    with tf.Graph().as_default():
        batches = read_part(Synthetic(2, 9000, 1), "training", 2000)
    assert [len(batch["label"]) for batch in batches] == [2000, 2000, 2000, 2000, 1000]


def test_shapes_are_criteos(samples):
    assert samples["dense"].shape == (30000, 13)
    assert samples["one_hot"].shape == (30000, 26)
    assert set(np.unique(samples["label"])) == {0.0, 1.0}


def test_categories_follow_zipfs_law(samples):
    # In the largest vocabulary, the most frequent value is very frequent, and very many values occur only
    # once.
    _, counts = np.unique(samples["one_hot"][:, -1], return_counts=True)
    assert counts.max() > 0.05 * 30000
    assert np.count_nonzero(counts == 1) > 1000
    assert len(np.unique(samples["one_hot"][:, 0])) <= 4


def test_no_two_columns_share_an_id(samples):
    columns = [set(column.tolist()) for column in samples["one_hot"].T]
    assert len(set.union(*columns)) == sum(len(column) for column in columns)


def test_labels_are_drawn_with_the_true_probabilities():
    labels, logits = Synthetic(2, 1, 60000).best_logits()
    probabilities = 1 / (1 + np.exp(-logits))
    for low in np.arange(0.0, 0.8, 0.1):
        chosen = (probabilities >= low) & (probabilities < low + 0.1)
        error = 4 * np.sqrt(0.25 / chosen.sum())
        assert labels[chosen].mean() == pytest.approx(probabilities[chosen].mean(), abs=error)


def test_the_true_logits_belong_to_the_held_out_samples(samples):
    labels, logits = Synthetic(2, 100, 30000).best_logits()
    assert (labels == samples["label"]).all()
    assert 0.7 < auc(labels, logits) < 0.95


def test_another_seed_is_another_model():
    labels, logits = Synthetic(2, 1, 5000).best_logits()
    other_labels, other_logits = Synthetic(3, 1, 5000).best_logits()
    assert (labels != other_labels).any() and (logits != other_logits).any()
