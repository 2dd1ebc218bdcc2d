"""AUC and log-loss, exact, from logits."""

from __future__ import annotations

import numpy as np


def auc(labels: np.ndarray, scores: np.ndarray) -> float:
    """Area under the ROC curve: the probability that a positive outranks a negative; ties count half.

    labels [n] are 0 or 1; scores [n] are any increasing function of the probability (logits are best, as they
    do not saturate). NaN if only one class is present. Computed from ranks, as the Mann-Whitney U statistic.
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
    """Mean of -log p(label), in nats, for labels [n] of 0 and 1 and logits [n]; NaN if n is 0."""
    if len(labels) == 0:
        return float("nan")
    labels, logits = np.asarray(labels, np.float64), np.asarray(logits, np.float64)
    return float(np.mean(np.logaddexp(0, logits) - labels * logits))
