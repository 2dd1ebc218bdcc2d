"""AUC and log-loss, exact, from logits."""

from __future__ import annotations

import numpy as np


def auc(labels: np.ndarray, scores: np.ndarray) -> float:
    """Area under the ROC curve: the chance that a positive outranks a negative, a tie counting half.

    labels [n] of 0 and 1; scores [n], any increasing function of the probability (best the logits, which do
    not saturate). NaN where only one class is present. Computed from ranks: the Mann-Whitney U statistic.
    """
    labels, scores = np.asarray(labels, bool), np.asarray(scores)
    positives = int(np.count_nonzero(labels))
    negatives = labels.size - positives
    if positives == 0 or negatives == 0:
        return float("nan")
    _, inverse, counts = np.unique(scores, return_inverse=True, return_counts=True)
    # Entries with equal scores share the mean of the ranks (from 1) that they occupy.
    mean_ranks = np.cumsum(counts) - (counts - 1) / 2
    positive_ranks = mean_ranks[inverse.reshape(-1)[labels]].sum()
    return float((positive_ranks - positives * (positives + 1) / 2) / (positives * negatives))


def log_loss(labels: np.ndarray, logits: np.ndarray) -> float:
    """Mean of -log p(label), in nats, for labels [n] of 0 and 1 and logits [n]; NaN where there are none."""
    if len(labels) == 0:
        return float("nan")
    labels, logits = np.asarray(labels, np.float64), np.asarray(logits, np.float64)
    return float(np.mean(np.logaddexp(0, logits) - labels * logits))
