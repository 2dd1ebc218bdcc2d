"""Entry point of Python test targets: runs pytest on the target's files, with Bazel's report and test filter.

If tools/fork_server.py runs, it forks this process, which then has TensorFlow imported. With SOK_TEST_DEVICE,
the process has the GPU of `tests/fake_gpu_device.py`.
"""

from __future__ import annotations

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


def main(config: str, arguments: list[str]) -> int:
    """Runs the tests; returns the exit status."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    import forked

    forked.write_no_graph_files()
    if os.environ.get("SOK_TEST_DEVICE"):
        import fake_gpu_device  # noqa: F401
    return run_pytest(config, arguments)


if __name__ == "__main__":
    # A process that the server forked has TensorFlow imported and runs the tests.
    status = fork_server.run_in_fork(sys.argv) if "tensorflow" not in sys.modules else None
    sys.exit(main(sys.argv[1], sys.argv[2:]) if status is None else status)
