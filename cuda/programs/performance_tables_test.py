"""The table of bytes in docs/performance-gpu.md is that of the kernels."""

import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT = ROOT / "docs" / "performance-gpu.md"


def test_the_documents_bytes_are_those_of_the_formulas():
    program = os.environ["SOK_PRINT_TRAFFIC"]
    table = subprocess.run([program], capture_output=True, text=True, check=True).stdout.strip()
    assert table.count("\n") > 10
    assert f"\n\n{table}\n\n" in DOCUMENT.read_text(), f"docs/performance-gpu.md needs what {program} prints"
