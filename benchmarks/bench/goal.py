"""A ratio that was measured, and what it should be."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Goal:
    """One question.

    Attributes:
      question: What was measured.
      beside: What it is compared with.
      ratio: The larger, the better; usually our speed over the other's.
      least: What it should be at least.
      aim: What it should rather be.
    """

    question: str
    beside: str
    ratio: float
    least: float
    aim: float | None = None

    def verdict(self) -> str:
        """Whether that is reached."""
        return "reached" if self.ratio >= self.least else "missed"
