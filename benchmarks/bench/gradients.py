"""Gradients of a step's outputs, which no model computes in the benchmarks."""

from __future__ import annotations

import numpy as np


def of_feature(seed: int, feature: int, batch: int, dim: int) -> np.ndarray:
    """The gradients of a feature's outputs, float32 [batch, dim].

    All positive: sums that nearly cancel would give Adam's first steps a sign by chance of rounding.
    """
    rng = np.random.default_rng([seed, 1 << 20, feature])
    return rng.random((batch, dim), dtype=np.float32) + np.float32(0.5)
