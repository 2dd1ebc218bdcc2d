"""The measurements of a run, and how AUC and log-loss are computed."""

from __future__ import annotations

import dataclasses

import numpy as np


@dataclasses.dataclass(frozen=True)
class StepLoss:
    """Mean training loss of one step."""

    step: int
    seconds: float  # since training began, including evaluations
    loss: float


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """Held-out metrics after `step` steps."""

    epoch: int
    step: int
    seconds: float
    auc: float
    log_loss: float


@dataclasses.dataclass
class History:
    """Losses and evaluations, in order."""

    losses: list[StepLoss] = dataclasses.field(default_factory=list)
    evaluations: list[Evaluation] = dataclasses.field(default_factory=list)
    epoch: int = 0  # the running or last epoch, from 1
    samples: int = 0
    training_seconds: float = 0.0  # without evaluations, unless others train meanwhile
    seconds: float = 0.0  # of the whole run
    interrupted: bool = False
    best: tuple[float, float] | None = None  # AUC and log-loss of the true model, if that is known
    rows_by_server: list[int] = dataclasses.field(default_factory=list)  # of all tables; without servers none

    @property
    def samples_per_second(self) -> float:
        """Samples of all ranks per second of training."""
        return self.samples / self.training_seconds if self.training_seconds else 0.0


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
