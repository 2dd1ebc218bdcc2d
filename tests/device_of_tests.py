"""The device of tables in tests: the CPU or, with SOK_TEST_DEVICE, the GPU of `fake_gpu_device`.

`harness` imports this before the library, so that processes that a test starts have the device too.
"""

from __future__ import annotations

import os
from typing import TypeVar

import pytest

T = TypeVar("T")

ON_GPU = bool(os.environ.get("SOK_TEST_DEVICE"))
if ON_GPU:
    import fake_gpu_device  # noqa: F401 - gives this process the device


def sized(on_cpu: T, on_gpu: T) -> T:
    """A size, or a list of cases: on that GPU, which is slow, the smallest one that shows the same."""
    return on_gpu if ON_GPU else on_cpu


def cpu_only(reason: str) -> pytest.MarkDecorator:
    """Skips a test if tables are on a GPU. `expected_skips.py` lists the reasons."""
    return pytest.mark.skipif(ON_GPU, reason=reason)
