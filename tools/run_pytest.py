"""Entry point of every Python test target: runs pytest as Bazel expects a test to behave."""

import os
import sys

import pytest


def main(config: str, arguments: list[str]) -> int:
    """Runs pytest with the configuration file `config`; returns its exit status."""
    options = ["-c", config, "--rootdir", os.getcwd(), "-p", "no:cacheprovider"]
    report = os.environ.get("XML_OUTPUT_FILE")
    if report:
        options.append(f"--junitxml={report}")
    chosen = os.environ.get("TESTBRIDGE_TEST_ONLY")
    if chosen:
        options += ["-k", chosen]
    return int(pytest.main(options + arguments))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
