"""Counts the test cases of a `bazel test` run: `N passed, N failed` on the last line.

Bazel counts targets. This program counts the cases in each target's report, which is JUnit XML from
GoogleTest or pytest. Bazel's build event file lists the targets and their reports. A target that failed
without a failed case (it crashed, timed out or did not build) counts as one failure. So does a C++ test that
is skipped for a reason that is not expected on this machine. tests/expected_skips.py checks the skips of
Python tests. The end of a failed case's message follows its name, indented. The targets that took longest
stand before the failed cases, with their seconds.

Usage: count_tests.py EVENT_FILE...
Exit status: 0 if something ran and nothing failed.
"""

from __future__ import annotations

import json
import os
import sys
import urllib.parse
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

# The reasons for which C++ tests skip themselves, and whether each is expected on this machine.
_HAS_CUDA_DEVICE = os.path.exists("/dev/nvidiactl")
_MOST_MAPS = "/proc/sys/vm/max_map_count"
_EXPECTED_SKIPS = {
    "no CUDA device": not _HAS_CUDA_DEVICE,
    "this machine has a CUDA device": _HAS_CUDA_DEVICE,
    "the file system keeps all pages": True,
    "no reads past the page cache": True,
    "no guarded copies on this processor": os.uname().machine != "x86_64",
    "the system allows too many maps": os.path.exists(_MOST_MAPS)
    and int(Path(_MOST_MAPS).read_text()) > 1 << 20,
}

# Which targets are printed as slow: up to so many that took at least so many seconds.
_SLOW_TARGETS = 12
_SLOW_SECONDS = 20

# How much of a failed case's message is shown: pytest and GoogleTest say at the end what was wrong.
_MESSAGE_LINES = 12


@dataclass
class Counts:
    """Test cases by outcome, with the names of the failed ones."""

    passed: int = 0
    failed: list[str] = field(default_factory=list)
    messages: dict[str, str] = field(default_factory=dict)  # by the failed case's name
    skipped: Counter[str] = field(default_factory=Counter)  # by target
    seconds: Counter[str] = field(default_factory=Counter)  # by target; 0 for a cached result

    def add_failure(self, name: str, message: str) -> None:
        """Adds a failed case."""
        self.failed.append(name)
        self.messages[name] = message


def count_report(label: str, path: str, counts: Counts) -> None:
    """Adds the cases of one report."""
    report = ElementTree.parse(path).getroot()
    is_pytest = any(suite.get("name") == "pytest" for suite in report.iter("testsuite"))
    for case in report.iter("testcase"):
        name = f"{label} {case.get('classname', '')}.{case.get('name', '')}"
        skipped = case.find("skipped")
        failures = case.findall("failure") + case.findall("error")
        if failures:
            counts.add_failure(name, "\n".join(map(_message, failures)))
        elif skipped is not None and not (is_pytest or _is_expected(skipped)):
            counts.add_failure(f"{name} (skipped)", _message(skipped))
        elif skipped is not None or case.get("status") == "notrun":
            counts.skipped[label] += 1
        else:
            counts.passed += 1


def _message(outcome: ElementTree.Element) -> str:
    return (outcome.text or outcome.get("message") or "").strip()


def _is_expected(skipped: ElementTree.Element) -> bool:
    """Whether a GoogleTest case may be skipped. The last line of its message is the reason."""
    lines = (skipped.get("message") or skipped.text or "").strip().splitlines()
    return bool(lines) and _EXPECTED_SKIPS.get(lines[-1], False)


def read_events(path: str) -> Iterator[dict]:
    """The events of one run, in order."""
    with open(path, encoding="utf-8") as lines:
        for line in lines:
            yield json.loads(line)


def count_run(path: str, counts: Counts) -> None:
    """Adds the cases of one run of Bazel."""
    shards: dict[tuple[str, int, int], dict] = {}  # (label, run, shard) -> result of the last attempt
    tests: set[str] = set()
    unbuilt: set[str] = set()
    for event in read_events(path):
        identity = event["id"]
        if "testResult" in event:
            key = identity["testResult"]
            shards[(key["label"], key.get("run", 1), key.get("shard", 1))] = event["testResult"]
        elif "targetConfigured" in identity and event.get("configured", {}).get("testSize"):
            tests.add(identity["targetConfigured"]["label"])
        elif "targetCompleted" in identity and not event.get("completed", {}).get("success"):
            unbuilt.add(identity["targetCompleted"]["label"])

    for (label, _, _), result in sorted(shards.items()):
        counts.seconds[label] += _seconds(result)
        failed_before = len(counts.failed)
        for output in result.get("testActionOutput", []):
            if output["name"] == "test.xml":
                count_report(label, urllib.parse.unquote(urllib.parse.urlparse(output["uri"]).path), counts)
        if result["status"] != "PASSED" and len(counts.failed) == failed_before:
            counts.failed.append(f"{label} ({result['status'].lower()})")
    ran = {label for label, _, _ in shards}
    counts.failed += [f"{label} (not built)" for label in sorted((tests & unbuilt) - ran)]


def _seconds(result: dict) -> float:
    """How long a test ran; 0 if Bazel had its result."""
    cached = result.get("cachedLocally") or result.get("executionInfo", {}).get("cachedRemotely")
    return 0 if cached else int(result.get("testAttemptDurationMillis", 0)) / 1000


def main(paths: list[str]) -> int:
    """Prints the outcome of the runs; returns the exit status."""
    counts = Counts()
    for path in paths:
        count_run(path, counts)
    for label, cases in sorted(counts.skipped.items()):
        print(f"skipped: {cases} of {label}")
    for label, seconds in counts.seconds.most_common(_SLOW_TARGETS):
        if seconds >= _SLOW_SECONDS:
            print(f"slow: {seconds:.0f} s {label}")
    for name in counts.failed:
        print("failed:", name)
        for line in counts.messages.get(name, "").splitlines()[-_MESSAGE_LINES:]:
            print("   ", line)
    if not counts.passed and not counts.failed:
        print("No test ran.")
    print(f"{counts.passed} passed, {len(counts.failed)} failed")
    return 0 if counts.passed and not counts.failed else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
