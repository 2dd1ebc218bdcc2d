"""The measurements of a run."""

from __future__ import annotations

import dataclasses


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
    training_seconds: float = 0.0  # without evaluations
    seconds: float = 0.0  # of the whole run
    interrupted: bool = False
    best: tuple[float, float] | None = None  # AUC and log-loss of the true model, if that is known

    @property
    def samples_per_second(self) -> float:
        """Samples per second of training, without evaluations."""
        return self.samples / self.training_seconds if self.training_seconds else 0.0
