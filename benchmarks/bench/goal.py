"""A measured ratio and its goal."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Goal:
    """One measured ratio.

    Attributes:
      question: What was measured.
      beside: What it was compared with.
      ratio: Usually our speed divided by the other's; larger is better.
      least: The ratio must be at least this.
      aim: A higher value that the ratio should reach, if any.
    """

    question: str
    beside: str
    ratio: float
    least: float
    aim: float | None = None

    def verdict(self) -> str:
        """Whether the ratio is at least `least`: "reached" or "missed"."""
        return "reached" if self.ratio >= self.least else "missed"
