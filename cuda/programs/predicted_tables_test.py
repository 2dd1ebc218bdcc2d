"""docs/performance-gpu.md has the tables of cuda/programs/predict, which takes kernels for what they are."""

import json
import os
import subprocess
from pathlib import Path

import kernel_resources
import plot_predictions

ROOT = Path(__file__).resolve().parents[2]
PREDICT = os.environ["SOK_PREDICT"]


def test_the_document_has_the_predictions():
    printed = subprocess.run([PREDICT], capture_output=True, text=True, check=True).stdout
    kernels, operations = printed.strip().split("\n\n")
    assert kernels.count("\n") > 10 and operations.count("\n") > 30
    document = (ROOT / "docs" / "performance-gpu.md").read_text()
    for table in (kernels, operations):
        assert f"\n\n{table}\n\n" in document, f"docs/performance-gpu.md needs what {PREDICT} prints"


def test_draws_the_predictions(tmp_path):
    printed = subprocess.run([PREDICT, "--json"], capture_output=True, text=True, check=True).stdout
    picture = tmp_path / "predictions.png"
    plot_predictions.draw(json.loads(printed)["predictions"], picture)
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_as_many_warps_are_resident_as_registers_allow():
    printed = subprocess.run([PREDICT, "--json"], capture_output=True, text=True, check=True).stdout
    kernels = json.loads(printed)["kernels"]
    expected = kernel_resources.read_expected(kernel_resources.EXPECTED_FILE.read_text())
    assert kernels
    for line, warps in kernels.items():
        file, name = line.split(": ", maxsplit=1)
        entry = expected[file, name]
        shares = [
            kernel_resources.occupancy(arch, most, 0, entry.threads)
            for arch, most in entry.most_registers.items()
        ]
        assert min(shares) * 64 == warps, line
