"""What a run has measured so far."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class StepLoss:
    """Mean training loss of one step."""

    step: int
    seconds: float  # since training began, evaluations included
    loss: float


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """Held-out metrics after so many steps."""

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
    epoch: int = 0  # the one that is running, or the last
    samples: int = 0
    training_seconds: float = 0.0  # evaluations excluded
    seconds: float = 0.0  # all of it
    interrupted: bool = False
    best: tuple[float, float] | None = None  # AUC and log-loss of the true model, where it is known

    @property
    def samples_per_second(self) -> float:
        """Of training alone, evaluations excluded."""
        return self.samples / self.training_seconds if self.training_seconds else 0.0
