"""The device of tables in tests: the CPU or, with SOK_TEST_DEVICE, the GPU of `fake_gpu_device`.

`harness` imports this before the library, so that processes that a test starts have the device too.

As a plugin of pytest, which `tools/run_pytest.py` installs, it runs fewer cases on a GPU, where they show the
same as on the CPU: of a test marked `cases_on_gpu(n)`, by itself or with its file, n cases, always the same
ones: drawn by the test's name, so that they differ in all parameters.
"""

from __future__ import annotations

import collections
import os
import random
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


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Called by pytest with the tests that it has found."""
    if not ON_GPU:
        return
    tests = collections.defaultdict(list)
    for item in items:
        tests[item.nodeid.partition("[")[0]].append(item)
    left_out = {item.nodeid for name, cases in tests.items() for item in _left_out(name, cases)}
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid in left_out])
    items[:] = [item for item in items if item.nodeid not in left_out]


def _left_out(name: str, cases: list[pytest.Item]) -> list[pytest.Item]:
    mark = cases[0].get_closest_marker("cases_on_gpu")
    count = len(cases) if mark is None else mark.args[0]
    return random.Random(name).sample(cases, max(len(cases) - count, 0))
