"""Entry point of Python test targets: runs pytest on the target's files, with Bazel's report and test filter.

The process imports TensorFlow before the tests, so that the processes that tests fork have it imported
(`tests/forked.py`). If tools/fork_server.py runs, it forks this process. With SOK_TEST_DEVICE, the process
has the GPU of `tests/fake_gpu_device.py`.
"""

from __future__ import annotations

import gc
import os
import sys

import fork_server


def run_pytest(config: str, arguments: list[str]) -> int:
    """Runs pytest with the configuration file `config`; returns the exit status."""
    import pytest

    import device_of_tests
    import expected_skips

    options = ["-c", config, "--rootdir", os.getcwd(), "-p", "no:cacheprovider"]
    # It imports Hypothesis at the end of every file, which takes longer than many files' tests.
    options += ["-p", "no:hypothesispytest"]
    if "XML_OUTPUT_FILE" in os.environ:
        options.append(f"--junitxml={os.environ['XML_OUTPUT_FILE']}")
    chosen = os.environ.get("TESTBRIDGE_TEST_ONLY")
    if chosen:
        options += ["-k", chosen]
    skips = expected_skips.Plugin()
    status = pytest.main([*options, *arguments], plugins=[skips, device_of_tests])
    # A file without tests is an error, unless the file skips itself (for example, because this TensorFlow has
    # no Estimator) or a filter is set.
    if status == pytest.ExitCode.NO_TESTS_COLLECTED and (skips.modules or chosen):
        return 0
    return int(status)


def _write_no_graph_files() -> None:
    """Keeps MonitoredTrainingSession and Estimator from writing graph.pbtxt, here and in forked processes.

    Writing a graph as text takes longer than a few steps of it, and no test reads the file.
    """
    from tensorflow.python.training import training_util

    training_util.write_graph = lambda *arguments, **options: None


def main(config: str, arguments: list[str]) -> object:
    """Runs the tests; returns the exit status. Also returns in the processes that tests fork."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    import tensorflow  # noqa: F401 - for the processes forked from this one

    import forked

    _write_no_graph_files()
    # Forked processes need not garbage-collect the objects they share, which would take each of them a
    # second.
    gc.freeze()
    program = forked.start_server()
    if os.environ.get("SOK_TEST_DEVICE"):
        # In each process: CUDA has no device in a process forked from one that has asked for it.
        import fake_gpu_device  # noqa: F401

    return program() if program else run_pytest(config, arguments)


if __name__ == "__main__":
    # A process that the server forked has TensorFlow imported and runs the tests.
    status = fork_server.run_in_fork(sys.argv) if "tensorflow" not in sys.modules else None
    sys.exit(main(sys.argv[1], sys.argv[2:]) if status is None else status)
