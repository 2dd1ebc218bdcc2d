"""Gradients of a step's outputs, generated because the benchmarks have no model."""

from __future__ import annotations

import numpy as np


def of_feature(seed: int, feature: int, batch: int, dim: int) -> np.ndarray:
    """The gradients of a feature's outputs, float32 [batch, dim].

    All are positive: if a sum nearly cancelled, rounding would decide the sign of Adam's first steps.
    """
    rng = np.random.default_rng([seed, 1 << 20, feature])
    return rng.random((batch, dim), dtype=np.float32) + np.float32(0.5)
