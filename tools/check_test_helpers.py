"""Checks that tests/BUILD says which test imports which helper.

Where it does not, a changed helper does not rerun its tests.
BUILD may name more for tests with a prefix that says what they need (ranks_, benchmark_, example_).

Usage: python tools/check_test_helpers.py [FOLDER_OF_THE_TESTS]
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PREFIXES = ("ranks_", "benchmark_", "example_")


def find_differences(folder: Path) -> Iterator[str]:
    """What the BUILD file of a folder of tests says wrongly about imports, one message for each."""
    build = _read_build(folder)
    helpers, users = build["_HELPERS"], build["_USED_BY"]
    for path in sorted(folder.glob("*.py")):
        name = path.stem
        if name not in helpers and not name.endswith("_test"):
            continue
        imported = _modules_named_in(path) & set(helpers)
        used = {helper for helper, tests in users.items() if name in tests}
        listed = set(helpers[name]) if name in helpers else used
        where = f"_HELPERS['{name}']" if name in helpers else "_USED_BY"
        known = listed | {further for helper in listed for further in helpers[helper]}
        for helper in sorted(imported - known):
            yield f"{name}.py imports {helper}, which {where} in tests/BUILD does not say"
        for helper in sorted(listed - imported):
            if not name.startswith(PREFIXES):
                yield f"{name}.py does not import {helper}, as {where} in tests/BUILD says"


def _read_build(folder: Path) -> dict[str, Any]:
    """The values of a BUILD file's names that say who imports what. Its calls of rules are skipped."""
    tree = ast.parse((folder / "BUILD").read_text())
    wanted = ("_TESTS", "_HELPERS", "_USED_BY")
    tree.body = [
        statement
        for statement in tree.body
        if isinstance(statement, ast.Assign) and getattr(statement.targets[0], "id", None) in wanted
    ]
    names: dict[str, Any] = {"glob": lambda patterns: [path.name for path in folder.glob(*patterns)]}
    exec(compile(tree, str(folder / "BUILD"), "exec"), names)
    return names


def _modules_named_in(path: Path) -> set[str]:
    """The modules that a file imports, also in functions, and those in its `pytest_plugins`."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
        elif isinstance(node, ast.Assign) and getattr(node.targets[0], "id", None) == "pytest_plugins":
            found.update(ast.literal_eval(node.value))
    return found


if __name__ == "__main__":
    tests = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parent.parent / "tests"
    differences = list(find_differences(tests))
    print("\n".join(differences))
    sys.exit(bool(differences))
