"""The tables of bytes and of registers in docs/performance-gpu.md are those of the kernels."""

import os
import re
import subprocess
from pathlib import Path

import kernel_resources

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT = ROOT / "docs" / "performance-gpu.md"


def test_the_documents_bytes_are_those_of_the_formulas():
    program = os.environ["SOK_PRINT_TRAFFIC"]
    table = subprocess.run([program], capture_output=True, text=True, check=True).stdout.strip()
    assert table.count("\n") > 10
    assert f"\n\n{table}\n\n" in DOCUMENT.read_text(), f"docs/performance-gpu.md needs what {program} prints"


def _registers_in_the_document():
    """(kernel, architecture, registers, percent of the warps) of each cell."""
    lines = DOCUMENT.read_text().split("## Registers")[1].splitlines()
    header, _, *rows = [line.strip("| ").split(" | ") for line in lines if line.startswith("|")]
    archs = [re.fullmatch(r"(sm_\d+): registers, warps", cell)[1] for cell in header[1:]]
    for kernel, *cells in rows:
        for arch, cell in zip(archs, cells, strict=True):
            registers, percent = re.fullmatch(r"(\d+), (\d+)%", cell).groups()
            yield kernel.strip("`"), arch, int(registers), int(percent)


def test_the_documents_registers_are_no_more_than_kernels_may_take():
    expected = kernel_resources.read_expected(kernel_resources.EXPECTED_FILE.read_text())
    cells = list(_registers_in_the_document())
    assert len(cells) > 15 and {arch for _, arch, _, _ in cells} == {"sm_90"}
    for kernel, arch, registers, percent in cells:
        (entry,) = [entry for (_, name), entry in expected.items() if name == kernel]
        most = entry.most_registers[arch]
        for number in (registers, most):
            share = kernel_resources.occupancy(arch, number, 0, entry.threads)
            assert f"{share:.0%}" == f"{percent}%", (kernel, arch, number)
        assert registers <= most, (kernel, arch)
