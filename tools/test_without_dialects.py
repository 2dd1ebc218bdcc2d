"""Tests the package without the names of other systems: removes their folders, and runs the other tests.

A copy of the checkout loses the folders of all dialects. What is left must import, and pass each test file
of `tests/` that neither names a dialect nor imports a helper that does. Documents and the programs of
`examples/` and `benchmarks/` show the whole library, so their tests are left out, and so is that of the
programs for GPUs, which need no Python.

Usage: tools/python.sh tools/test_without_dialects.py [TEST_FILE...]
after tools/test.sh, which builds the libraries that the tests load.
The last line is `N passed, N failed`. Exit status: 0 if nothing failed.
"""

from __future__ import annotations

import collections
import functools
import os
import re
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from concurrent import futures
from pathlib import Path
from typing import NamedTuple

_DIALECTS = ("deeprec", "dist_model_parallel", "experiment")
_NAMES_A_DIALECT = re.compile(rf"\b({'|'.join(_DIALECTS)}|distributed_embeddings)\b")
_OF_WHOLE_LIBRARY = re.compile(r"(documentation|example_.*|benchmark_.*|cuda_programs|v1_programs)_test")


def main(arguments: list[str]) -> int:
    """Runs the program; returns the exit status."""
    if not Path(os.environ["SOK_BAZEL_BIN"], "cc/engine/contract/sketch_engine.so").exists():
        sys.exit("The libraries of tests are not built: run tools/test.sh first.")
    passed = failed = 0
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder, "sok")
        _copy_checkout(copy)
        files = arguments or sorted(_tests_without_dialects(copy / "tests"))
        # It ends with its input, which this context closes.
        server = [sys.executable, str(copy / "tools/fork_server.py"), "cat"]
        with (
            subprocess.Popen(server, stdin=subprocess.PIPE),
            futures.ThreadPoolExecutor(os.cpu_count()) as pool,
        ):
            reports = [Path(folder, f"{number}.xml") for number in range(len(files))]
            runs = pool.map(functools.partial(_run, copy), files, reports)
            for number, (file, run) in enumerate(zip(files, runs), start=1):
                print(f"[{number}/{len(files)}] {file}\n{run.output}", end="", flush=True)
                passed, failed = passed + run.passed, failed + run.failed
    print(f"{passed} passed, {failed} failed")
    return int(failed > 0)


def _copy_checkout(copy: Path) -> None:
    """Copies the checkout without the dialects, and links the op libraries that are built."""
    listed = subprocess.run(["git", "ls-files", "-z"], check=True, stdout=subprocess.PIPE).stdout
    for name in filter(None, listed.decode().split("\0")):
        if os.path.exists(name):
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(name, copy / name)
    package = copy / "python/sparse_operation_kit"
    for dialect in _DIALECTS:
        shutil.rmtree(package / dialect)
    shutil.rmtree(copy / "python/distributed_embeddings")
    for library in Path(os.environ["SOK_BAZEL_BIN"], "tools/site/sparse_operation_kit").glob("*.so"):
        (package / library.name).symlink_to(library.resolve())


def _tests_without_dialects(tests: Path) -> Iterator[str]:
    """Yields the test files that neither name a dialect nor import, at any depth, a helper that does."""
    texts: dict[str, str] = collections.defaultdict(str)
    for path in tests.rglob("*.py"):
        # A helper is a file or a folder.
        texts[path.relative_to(tests).parts[0].partition(".")[0]] += path.read_text()
    named = {name for name, text in texts.items() if _NAMES_A_DIALECT.search(text)}
    while True:
        importing = re.compile(rf"^\s*(import|from) ({'|'.join(named)})\b", re.MULTILINE)
        more = {name for name, text in texts.items() if importing.search(text)} - named
        if not more:
            break
        named |= more
    for name in texts:
        if name.endswith("_test") and name not in named and not _OF_WHOLE_LIBRARY.fullmatch(name):
            yield f"tests/{name}.py"


class _Run(NamedTuple):
    """What a test file came to: numbers of cases, and what it printed if one failed."""

    passed: int
    failed: int
    output: str


def _run(copy: Path, file: str, report: Path) -> _Run:
    """Runs a test file in the copy."""
    paths = (copy / "python", copy / "tests", copy / "tools", copy)
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(map(str, paths)),
        "XML_OUTPUT_FILE": str(report),
    }
    command = [sys.executable, "tools/run_pytest.py", "pyproject.toml", file]
    ended = subprocess.run(
        command, cwd=copy, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    output = ended.stdout.decode(errors="replace")
    if not report.exists():
        return _Run(0, int(ended.returncode != 0), output)
    cases = list(ElementTree.parse(report).iter("testcase"))
    broken = sum(case.find("failure") is not None or case.find("error") is not None for case in cases)
    skipped = sum(case.find("skipped") is not None for case in cases)
    failed = max(broken, int(ended.returncode != 0))
    return _Run(len(cases) - broken - skipped, failed, output if failed else "")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
