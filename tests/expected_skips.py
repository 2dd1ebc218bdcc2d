"""The expected skips of tests: a skip for another reason, or in another environment, is a failure.

Tests skip themselves if something is missing (`skipif`, `pytest.skip`). Without this list, an environment
that lost a package would pass without running the tests that need it. So the list has each reason with the
environments where it is expected. If possible, these are recognized by another check than the test's own.
`tools/run_pytest.py` installs the plugin; plain pytest skips as usual.
"""

from __future__ import annotations

import os
import re
import shutil
import sysconfig
from collections.abc import Callable, Generator
from pathlib import Path

import pytest


def _has_keras_3() -> bool:
    """Whether TensorFlow has Keras 3: since 2.16, which has neither Estimator nor Keras 2."""
    import tensorflow as tf

    return tuple(int(part) for part in tf.__version__.split(".")[:2]) >= (2, 16)


def _is_tensorflow_1() -> bool:
    import tensorflow as tf

    return tf.__version__.startswith("1.")


def _tables_are_on_a_gpu() -> bool:
    return bool(os.environ.get("SOK_TEST_DEVICE"))


def _is_the_callers_python() -> bool:
    """Whether the environment is one of `tools/setup.sh --python`."""
    return os.path.exists(os.path.join(sysconfig.get_path("purelib"), "on_top.pth"))


def _is_beside_shared_data() -> bool:
    """Whether a folder above the checkout has data that is not part of it."""
    return any((parent / "shared" / "data").is_dir() for parent in Path(__file__).resolve().parents)


# A regular expression for the whole reason, and a function that tells whether it is expected here.
_EXPECTED: dict[str, Callable[[], bool]] = {
    r"(this )?TensorFlow.* has no Estimator": _has_keras_3,
    r"there is no Estimator": _has_keras_3,
    r"the layers are no Keras layers beside Keras 3": _has_keras_3,
    r"Keras 3 has no graphs with sessions": _has_keras_3,
    r"the tables name optimizers as TensorFlow 2 with Keras 2 does": (
        lambda: _has_keras_3() or _is_tensorflow_1()
    ),
    # docs/tensorflow-1.15.md has what it lacks.
    r"TensorFlow 1\.15 refuses this gradient itself, or has none": _is_tensorflow_1,
    r"TensorFlow 1\.15 loads SavedModels in sessions only": _is_tensorflow_1,
    r"TensorFlow 1\.15 cannot load a SavedModel with ragged inputs": _is_tensorflow_1,
    r"TensorFlow 1\.15 warm-starts one of them only": _is_tensorflow_1,
    r"TensorFlow 1\.15 is tested without Horovod": _is_tensorflow_1,
    r"root reads everything": lambda: os.geteuid() == 0,
    r"TensorFlow keeps on one device what a branch in a function takes": _tables_are_on_a_gpu,
    r"TensorFlow clears the memory of a plugin's device from the host": _tables_are_on_a_gpu,
    r"a GPU does not count its work": lambda: os.environ.get("SOK_TEST_DEVICE") == "gpu",
    r"threads are the CPU engine's": _tables_are_on_a_gpu,
    r"tables on disks are on CPUs": _tables_are_on_a_gpu,
    # tools/setup.sh installs Open MPI if it can, and never valgrind.
    r"mpirun is not installed": lambda: os.geteuid() != 0,
    # Nothing is installed there that would replace TensorFlow.
    r"tensorflow-serving-api is not installed": _is_the_callers_python,
    r"needs valgrind": lambda: shutil.which("valgrind") is None,
    r"there is no folder shared/data/foreign": lambda: not _is_beside_shared_data(),
}


def is_expected(reason: str) -> bool:
    """Whether tests may skip themselves in this environment for this reason."""
    return any(re.fullmatch(text, reason) and holds() for text, holds in _EXPECTED.items())


class Plugin:
    """A pytest plugin that turns unexpected skips into failures.

    Attributes:
      modules: The number of files that were skipped completely, as expected.
    """

    def __init__(self) -> None:
        """Starts with none."""
        self.modules = 0

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Called by pytest for each phase of each test."""
        report = yield
        # Expected failures (xfail) are reported as skips too.
        if report.skipped and not hasattr(report, "wasxfail"):
            _judge(report)
        return report

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(self) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
        """Called by pytest for each file that it reads."""
        report = yield
        if report.skipped:
            _judge(report)
            self.modules += report.skipped
        return report


def _judge(report: pytest.TestReport | pytest.CollectReport) -> None:
    reason = re.sub("^Skipped: ", "", report.longrepr[2])
    if not is_expected(reason):
        report.outcome = "failed"
        report.longrepr = f"{report.nodeid} skipped itself, which is not expected here: {reason}"
