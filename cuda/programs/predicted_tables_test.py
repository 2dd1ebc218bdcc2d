"""The tables in docs/performance-gpu.md are those that cuda/programs/predict prints.

Its table of registers agrees with cuda/resources/kernels.txt.
"""

import json
import os
import re
import subprocess
from pathlib import Path

import kernel_resources
import plot_predictions

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT = ROOT / "docs" / "performance-gpu.md"
PREDICT = os.environ["SOK_PREDICT"]


def test_the_document_has_the_predictions():
    printed = subprocess.run([PREDICT], capture_output=True, text=True, check=True).stdout
    kernels, operations = printed.strip().split("\n\n")
    assert kernels.count("\n") > 10 and operations.count("\n") > 30
    document = DOCUMENT.read_text()
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
        folder = file.split("/")[0]
        # A report covers several files that were compiled as one.
        (entry,) = [
            entry
            for (unit, kernel), entry in expected.items()
            if (unit.split("/")[0], kernel) == (folder, name)
        ]
        shares = [
            kernel_resources.occupancy(arch, most, 0, entry.threads)
            for arch, most in entry.most_registers.items()
        ]
        assert min(shares) * 64 == warps, line


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
    assert len(cells) > 20 and {arch for _, arch, _, _ in cells} == set(kernel_resources.MULTIPROCESSORS)
    for kernel, arch, registers, percent in cells:
        (entry,) = [entry for (_, name), entry in expected.items() if name == kernel]
        most = entry.most_registers[arch]
        for number in (registers, most):
            share = kernel_resources.occupancy(arch, number, 0, entry.threads)
            assert f"{share:.0%}" == f"{percent}%", (kernel, arch, number)
        assert registers <= most, (kernel, arch)
