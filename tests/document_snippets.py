"""The programs in the README and docs/."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest

import forked
from sparse_operation_kit import compat

# In Bazel's runfiles and in a checkout, the documents are one level above this file.
ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
# Those whose programs v1_programs_test runs; documentation_test runs the others'.
OF_OTHER_LIBRARIES = ("README.md", "from-sok.md", "from-deeprec.md")


def blocks(language: str) -> list[tuple[str, str]]:
    """The code blocks of a language in all documents: (document:line, code)."""
    found = []
    for document in DOCUMENTS:
        text = document.read_text(encoding="utf-8")
        for match in re.finditer(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
            line = text[: match.start()].count("\n") + 1
            found.append((f"{document.name}:{line}", match.group(1)))
    return found


def run(code: str, tmp_path: Path) -> None:
    """Runs a block of Python as a program, in the working directory. Fails if it does."""
    if not compat.IS_TENSORFLOW_2:
        if "tf.saved_model.load(" in code:
            pytest.skip("TensorFlow 1.15 loads SavedModels in sessions only")
        if ".numpy()" in code:
            code = f"import tensorflow as tf\ntf.enable_v2_behavior()\n{code}"
    program = tmp_path / "program.py"
    program.write_text(code, encoding="utf-8")
    _check(forked.run(program, env=_environment(), timeout=120))


def run_by_deeprecs_launcher(code: str, tmp_path: Path) -> None:
    """Runs a program as `python -m sparse_operation_kit.deeprec` does. Fails if it does."""
    program = tmp_path / "train.py"
    program.write_text(code, encoding="utf-8")
    launcher = "import sys\nfrom sparse_operation_kit.deeprec import launcher\nlauncher.main(sys.argv[1:])\n"
    _check(forked.run_code(launcher, str(program), env=_environment(), timeout=120))


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}


def _check(result) -> None:
    assert result.returncode == 0, result.stderr[-3000:]
