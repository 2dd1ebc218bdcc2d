"""Checks that engine_test, of cuda/programs/BUILD, links the tests of every cuda_test.

It is the only program that runs these tests on a device, so a test that it leaves out never runs there.

Usage: python tools/check_engine_tests.py [ROOT_OF_THE_REPOSITORY]
"""

from __future__ import annotations

import builtins
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

PROGRAM = "engine_test"

# Tests that need not run on a device: a label and the reason.
EXCEPTIONS: Mapping[str, str] = {}


def find_differences(root: Path, exceptions: Mapping[str, str] = EXCEPTIONS) -> Iterator[str]:
    """Yields a message for each test that engine_test leaves out, and for each invalid exception.

    Args:
      root: a folder with packages. Folders whose names begin with `bazel-` or a dot are skipped.
      exceptions: labels of tests that engine_test need not have, with the reason.
    """
    tests: set[str] = set()
    linked: set[str] = set()
    for path in sorted(root.rglob("BUILD")):
        folder = path.parent.relative_to(root)
        if any(part.startswith(("bazel-", ".")) for part in folder.parts):
            continue
        _Package(path.parent, folder.as_posix(), tests, linked).read()
    if not linked:
        yield f"No BUILD file has a cuda_program '{PROGRAM}' with tests"
    for test in sorted(tests - linked - set(exceptions)):
        yield f"{test} is not among the tests of {PROGRAM} in cuda/programs/BUILD"
    for test in sorted(set(exceptions) & linked):
        yield f"EXCEPTIONS lists a test that {PROGRAM} has: {test}"
    for test in sorted(set(exceptions) - tests):
        yield f"EXCEPTIONS lists a test that does not exist: {test}"


class _Package:
    """Reads one BUILD file by executing it as Python, which is close enough."""

    def __init__(self, folder: Path, package: str, tests: set[str], linked: set[str]) -> None:
        self._folder = folder
        self._package = "" if package == "." else package
        self._tests = tests
        self._linked = linked

    def read(self) -> None:
        text = (self._folder / "BUILD").read_text()
        if "cuda_test" not in text and "cuda_program" not in text:
            return
        names = _Names(glob=self._glob, cuda_test=self._cuda_test, cuda_program=self._cuda_program)
        exec(compile(text, str(self._folder / "BUILD"), "exec"), names)

    def _glob(self, include: list[str], exclude: tuple[str, ...] = (), **_: Any) -> list[str]:
        left_out = {path for pattern in exclude for path in self._folder.glob(pattern)}
        found = {path for pattern in include for path in self._folder.glob(pattern)} - left_out
        return sorted(path.relative_to(self._folder).as_posix() for path in found)

    def _cuda_test(self, *, name: str, **_: Any) -> None:
        self._tests.add(self._label(name))

    def _cuda_program(self, *, name: str, tests: tuple[str, ...] = (), **_: Any) -> None:
        if name == PROGRAM:
            self._linked.update(map(self._label, tests))

    def _label(self, name: str) -> str:
        """`name`, `:name` or a full label, as a full label."""
        if not name.startswith("//"):
            return f"//{self._package}:{name.lstrip(':')}"
        return name if ":" in name else f"{name}:{name.rpartition('/')[2]}"


class _Names(dict):
    """The names of a BUILD file. Names that it does not define itself are `_Nothing`."""

    def __missing__(self, name: str) -> Any:
        if hasattr(builtins, name):
            raise KeyError(name)
        return _Nothing()


class _Nothing:
    """A rule or a value from another file. Calls and sums of it are `_Nothing` too."""

    def __call__(self, *_: Any, **__: Any) -> _Nothing:
        return self

    __add__ = __radd__ = __call__

    def __iter__(self) -> Iterator[Any]:
        return iter(())


if __name__ == "__main__":
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parent.parent
    differences = list(find_differences(root))
    print("\n".join(differences))
    sys.exit(bool(differences))
