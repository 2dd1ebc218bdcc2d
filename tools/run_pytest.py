"""Entry point of every Python test target: runs pytest as Bazel expects a test to behave."""

import os
import sys

import pytest


class SkippedModules:
    """Counts the test files that skip themselves as a whole."""

    def __init__(self) -> None:
        """Starts at none."""
        self.count = 0

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Called by pytest for each file that it has read."""
        self.count += report.skipped


def main(config: str, arguments: list[str]) -> int:
    """Runs pytest with the configuration file `config`; returns the exit status."""
    options = ["-c", config, "--rootdir", os.getcwd(), "-p", "no:cacheprovider"]
    report = os.environ.get("XML_OUTPUT_FILE")
    if report:
        options.append(f"--junitxml={report}")
    chosen = os.environ.get("TESTBRIDGE_TEST_ONLY")
    if chosen:
        options += ["-k", chosen]
    skipped = SkippedModules()
    status = pytest.main(options + arguments, plugins=[skipped])
    # A file without a test is a mistake; one that skips itself (for lack of an Estimator, say) is not.
    if status == pytest.ExitCode.NO_TESTS_COLLECTED and skipped.count:
        return 0
    return int(status)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
