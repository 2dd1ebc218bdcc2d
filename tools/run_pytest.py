"""Entry point of every Python test target: runs pytest on its files as Bazel expects a test to behave.

Each file gets a process of its own, forked from this one, which has imported TensorFlow: importing it for
each of the hundred files would take longer than most of their tests do. A target with shards
(TEST_TOTAL_SHARDS) deals its files out to them.
"""

from __future__ import annotations

import gc
import os
import pathlib
import shutil
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree

import pytest

import forked

# After that a file counts as hanging.
_SECONDS_PER_FILE = 600
_FAILURES = ("failure", "error")


class SkippedModules:
    """Counts the test files that skip themselves as a whole."""

    def __init__(self) -> None:
        """Starts at none."""
        self.count = 0

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Called by pytest for each file that it has read."""
        self.count += report.skipped


def run_file(config: str, file: str, options: list[str], report: pathlib.Path) -> int:
    """Runs pytest on a file with the configuration file `config`; returns the exit status."""
    options = [
        *options,
        "-c",
        config,
        "--rootdir",
        os.getcwd(),
        "-p",
        "no:cacheprovider",
        f"--junitxml={report}",
    ]
    chosen = os.environ.get("TESTBRIDGE_TEST_ONLY")
    if chosen:
        options += ["-k", chosen]
    skipped = SkippedModules()
    status = pytest.main([*options, file], plugins=[skipped])
    # A file without a test is a mistake; one that skips itself (for lack of an Estimator, say) is not, nor
    # is one without a test of the chosen name.
    if status == pytest.ExitCode.NO_TESTS_COLLECTED and (skipped.count or chosen):
        return 0
    return int(status)


def wait(pid: int, file: str) -> int:
    """Waits for the process of a file; its exit status. One that hangs is killed."""
    deadline = time.monotonic() + _SECONDS_PER_FILE
    while True:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > deadline:
            print(f"{file} is killed, as it has run for {_SECONDS_PER_FILE} s", flush=True)
            os.kill(pid, 9)
            deadline = float("inf")
        time.sleep(0.02)


def cases_of(report: pathlib.Path, file: str, status: int) -> list[ElementTree.Element]:
    """The suites in a file's report, and a failed case where its process ended without telling why."""
    suites = list(ElementTree.parse(report).getroot().iter("testsuite")) if report.exists() else []
    told = any(
        case.find(kind) is not None for suite in suites for case in suite for kind in ("failure", "error")
    )
    if status and not told:
        suite = ElementTree.Element("testsuite", name=file, tests="1", errors="1")
        case = ElementTree.SubElement(suite, "testcase", classname=file, name="process")
        ElementTree.SubElement(case, "error", message=f"its process ended with status {status}")
        suites.append(suite)
    return suites


def shard_of(files: list[str]) -> list[str]:
    """This shard's files: all of them where the target has no shards."""
    status_file = os.environ.get("TEST_SHARD_STATUS_FILE")
    if status_file:
        pathlib.Path(status_file).touch()
    return files[int(os.environ.get("TEST_SHARD_INDEX", 0)) :: int(os.environ.get("TEST_TOTAL_SHARDS", 1))]


def run_files(config: str, files: list[str], options: list[str], folder: pathlib.Path) -> int:
    """Runs each file in a process of its own and writes Bazel's report; returns the exit status.

    Returns in the processes of the files too, and in those of programs that their tests run.
    """
    suites, failed = ElementTree.Element("testsuites"), []
    for index, file in enumerate(files):
        report = folder / f"{index}.xml"
        sys.stdout.flush()
        pid = os.fork()
        if not pid:
            program = forked.start_server()
            return program() if program else run_file(config, file, options, report)
        status = wait(pid, file)
        suites.extend(cases_of(report, file, status))
        if status:
            failed.append(file)
    if "XML_OUTPUT_FILE" in os.environ:
        ElementTree.ElementTree(suites).write(os.environ["XML_OUTPUT_FILE"])
    for file in failed:
        print("failed:", file)
    return 1 if failed else 0


def main(config: str, arguments: list[str]) -> int:
    """Runs this shard's part of the files among the arguments, with the options; returns the exit status."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    import tensorflow  # noqa: F401 - for the processes forked from this one

    # They need not collect what they share, neither now and then nor in the end: that takes a second each.
    gc.freeze()
    options = [argument for argument in arguments if argument.startswith("-")]
    files = shard_of([argument for argument in arguments if argument not in options])
    owner, folder = os.getpid(), pathlib.Path(tempfile.mkdtemp(prefix="reports-"))
    try:
        return run_files(config, files, options, folder)
    finally:
        if os.getpid() == owner:
            shutil.rmtree(folder)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
