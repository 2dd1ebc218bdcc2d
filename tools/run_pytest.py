"""Entry point of every Python test target: runs pytest on its files as Bazel expects a test to behave.

The process imports TensorFlow before it reads a test, so that processes which tests start are forked with it
imported (`tests/forked.py`). It is itself forked by tools/fork_server.py where that runs.
"""

from __future__ import annotations

import gc
import os
import sys

import fork_server


def run_pytest(config: str, arguments: list[str]) -> int:
    """Runs pytest with the configuration file `config`; returns the exit status."""
    import pytest

    import expected_skips

    options = ["-c", config, "--rootdir", os.getcwd(), "-p", "no:cacheprovider"]
    if "XML_OUTPUT_FILE" in os.environ:
        options.append(f"--junitxml={os.environ['XML_OUTPUT_FILE']}")
    chosen = os.environ.get("TESTBRIDGE_TEST_ONLY")
    if chosen:
        options += ["-k", chosen]
    skips = expected_skips.Plugin()
    status = pytest.main([*options, *arguments], plugins=[skips])
    # A file without a test is a mistake. One that skips itself (for lack of an Estimator, say) is not, nor
    # is one without a test of the chosen name.
    if status == pytest.ExitCode.NO_TESTS_COLLECTED and (skips.modules or chosen):
        return 0
    return int(status)


def main(config: str, arguments: list[str]) -> object:
    """Runs the tests; returns the exit status. Returns in the processes that tests start, too."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    import tensorflow  # noqa: F401 - for the processes forked from this one

    import forked

    # Forked processes need not collect what they share; doing so takes a second of each.
    gc.freeze()
    program = forked.start_server()
    return program() if program else run_pytest(config, arguments)


if __name__ == "__main__":
    # In a process that the server has forked, which has TensorFlow already, the tests run.
    status = fork_server.run_in_fork(sys.argv) if "tensorflow" not in sys.modules else None
    sys.exit(main(sys.argv[1], sys.argv[2:]) if status is None else status)
