"""The programs in the README and docs/."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import foreign_checkpoints as foreign
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


def _write_models(code: str) -> None:
    """Writes the checkpoints of other systems that a program restores, into the working directory."""
    keys, values = np.array([1, -7, 2**40, 5]), np.arange(16, dtype=np.float32).reshape(4, 4)
    counts = np.array([3, 4, 5, 6])
    kernel = foreign.variable("kernel", np.ones([4, 1], np.float32))
    if "deeprec_model" in code:
        rows = foreign.Rows(keys, values, {"Adagrad": values + 0.1}, counts, 100 * counts)
        rows.filtered = np.array([8]), np.array([2]), np.array([900])
        kernel["kernel/Adagrad"] = kernel["kernel"]
        tensors = {**foreign.deeprec("user", rows, parts=2), **kernel, "global_step": np.int64(1000)}
        foreign.save(Path("deeprec_model/model.ckpt-1000"), tensors)
    if "sok2_dump" in code:
        foreign.sok2(
            Path("sok2_dump"), {"users": foreign.Rows(keys, values, {"m": values, "v": values})}, "Adam"
        )
    if "tfra_model" in code:
        rows = foreign.Rows(keys, values, {"Adam/m": values, "Adam/v": values})
        kernel.update({name: kernel["kernel"] for name in ("kernel/Adam", "kernel/Adam_1")})
        tensors = {**foreign.tfra("scope/users", rows, shards=2), **kernel, **foreign.adam_powers(2)}
        foreign.save(Path("tfra_model/model.ckpt-1000"), tensors)


def run(code: str, tmp_path: Path) -> None:
    """Runs a block of Python as a program, in the working directory. Fails if it does."""
    _write_models(code)
    if not compat.IS_TENSORFLOW_2:
        if "tf.saved_model.load(" in code:
            pytest.skip("TensorFlow 1.15 loads SavedModels in sessions only")
        if ".numpy()" in code:
            code = f"import tensorflow as tf\ntf.enable_v2_behavior()\n{code}"
    program = tmp_path / "program.py"
    program.write_text(code, encoding="utf-8")
    forked.succeeded(forked.run(program, timeout=120))


def run_by_deeprecs_launcher(code: str, tmp_path: Path) -> None:
    """Runs a program as `python -m sparse_operation_kit.deeprec` does. Fails if it does."""
    program = tmp_path / "train.py"
    program.write_text(code, encoding="utf-8")
    launcher = "import sys\nfrom sparse_operation_kit.deeprec import launcher\nlauncher.main(sys.argv[1:])\n"
    forked.succeeded(forked.run_code(launcher, str(program), timeout=120))
