"""AUC and log-loss of the example trainer, compared with scikit-learn's."""

import math

import numpy as np
import pytest
from sklearn import metrics

from ctr.metrics import auc, log_loss


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
