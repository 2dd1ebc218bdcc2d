"""Runs fewer cases of parametrized tests with tables on a GPU, where they show the same as on the CPU.

A test marked `cases_on_gpu(n)`, by itself or with its file, runs n of its cases there, always the same ones:
drawn by the test's name, so that they differ in all parameters. `tools/run_pytest.py` installs the plugin.
"""

from __future__ import annotations

import collections
import random

import pytest

from device_of_tests import ON_GPU


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
