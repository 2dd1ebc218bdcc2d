"""cuda/resources/kernel_resources.py: reports of ptxas, occupancy, and what is not as expected."""

from pathlib import Path

import kernel_resources
import pytest
from kernel_resources import Kernel

_COPY = "_ZN3sok47_GLOBAL__N__e1cf4b8b_14_row_updates_cu_ff8834b14CopyIfLi4EEEvPKfPfl"
_PLAIN = "_ZN3sok5PlainEPfl"
_CUB = "_ZN3cub5EmptyIvEEvv"
_REPORT = f"""\
ptxas info    : 24 bytes gmem
ptxas info    : Compiling entry function '{_COPY}' for 'sm_80'
ptxas info    : Function properties for {_COPY}
    16 bytes stack frame, 8 bytes spill stores, 12 bytes spill loads
ptxas info    : Used 65 registers, used 1 barriers, 2048 bytes smem, 376 bytes cmem[0]
ptxas info    : Compile time = 17.915 ms
ptxas info    : Function properties for _ZN3sok7OutlineEf
    32 bytes stack frame, 4 bytes spill stores, 4 bytes spill loads
ptxas info    : Compiling entry function '{_PLAIN}' for 'sm_90'
ptxas info    : Function properties for {_PLAIN}
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 32 registers, used 0 barriers, 360 bytes cmem[0]
ptxas info    : Compiling entry function '{_CUB}' for 'sm_90'
ptxas info    : Function properties for {_CUB}
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 4 registers, used 0 barriers
"""


def test_reads_what_ptxas_prints():
    assert kernel_resources.read_report("a/b.cu", _REPORT) == [
        Kernel("a/b.cu", "Copy<float, 4>", "sm_80", 65, 2048, 16, 20),
        Kernel("a/b.cu", "Plain", "sm_90", 32),
        Kernel("a/b.cu", "Empty<void>", "sm_90", 4, is_ours=False),
    ]


def test_names_are_without_namespaces_and_parameters():
    name = (
        "void sok::(anonymous namespace)::Update<sok::Ftrl, sok::Step<true, (sok::Kind)1>, 4>"
        "(sok::Batch<sok::(anonymous namespace)::Part<sok::Ftrl> >)"
    )
    assert kernel_resources.short_name(name) == "Update<Ftrl, Step<true, (Kind)1>, 4>"
    assert kernel_resources.short_name("sok::flag::Tile(long, float*)") == "Tile"


def test_reports_tell_their_source():
    report = Path("bazel-bin/cuda/training/_cuda/training/row_updates.cu.ptxas.txt")
    assert kernel_resources.source_of(report) == "training/row_updates.cu"


@pytest.mark.parametrize(
    "arch, registers, shared, threads, blocks",
    [
        ("sm_80", 32, 0, 256, 8),  # all 64 warps
        ("sm_80", 33, 0, 256, 6),  # 40 registers each: 65536 / (40 * 256)
        ("sm_80", 64, 0, 256, 4),
        ("sm_90", 65, 0, 256, 3),
        ("sm_90", 128, 0, 256, 2),
        ("sm_90", 255, 0, 256, 1),
        ("sm_80", 16, 0, 32, 32),  # the maximum number of blocks
        ("sm_80", 16, 40 * 1024, 256, 4),  # 164 KiB, of which each block takes 41
        ("sm_90", 16, 40 * 1024, 256, 5),
        ("sm_90", 40, 0, 512, 3),
    ],
)
def test_blocks_that_fit(arch, registers, shared, threads, blocks):
    assert kernel_resources.blocks_that_fit(arch, registers, shared, threads) == blocks
    share = kernel_resources.occupancy(arch, registers, shared, threads)
    assert share == blocks * threads / 2048


def test_most_registers_keep_the_number_of_blocks():
    kernel = Kernel("a.cu", "K", "sm_90", 57)
    most = kernel_resources.registers_for_as_many(kernel, 256)
    assert most == 64
    assert kernel_resources.blocks_that_fit("sm_90", most, 0, 256) == 4
    assert kernel_resources.blocks_that_fit("sm_90", most + 1, 0, 256) == 3


def test_expectations_are_written_and_read(tmp_path):
    report = tmp_path / "cuda" / "a" / "_cuda" / "a" / "b.cu.ptxas.txt"
    report.parent.mkdir(parents=True)
    report.write_text(_REPORT.replace("8 bytes spill stores, 12", "0 bytes spill stores, 0"))
    expected = tmp_path / "kernels.txt"
    assert kernel_resources.main(["expect", str(expected), str(tmp_path)]) == 0
    assert "[a/b.cu]\nCopy<float, 4> | 256 | sm_80=80\nPlain | 256 | sm_90=32\n" in expected.read_text()
    assert kernel_resources.main(["check", str(expected), str(tmp_path)]) == 0

    # Keeps threads per block that were edited by hand.
    expected.write_text(expected.read_text().replace("Plain | 256", "Plain | 512"))
    assert kernel_resources.main(["expect", str(expected), str(tmp_path)]) == 0
    assert "Plain | 512 | sm_90=32" in expected.read_text()


def test_what_is_not_as_expected_is_named():
    expected = kernel_resources.read_expected("[a.cu]\nK | 256 | sm_80=64\nGone | 256 | sm_80=64\n")
    kernels = [
        Kernel("a.cu", "K", "sm_80", registers=65),
        Kernel("a.cu", "New", "sm_80", registers=8),
        Kernel("b.cu", "Sort", "sm_80", registers=200, spill_bytes=8, is_ours=False),
    ]
    assert kernel_resources.check(expected, kernels) == [
        "a.cu: K on sm_80 takes 65 registers, more than 64",
        "a.cu: New on sm_80 is not expected",
        "b.cu: Sort on sm_80 spills 8 bytes of registers",
        "a.cu: Gone is expected, but not there",
    ]


def test_a_line_that_is_none_is_refused():
    with pytest.raises(ValueError, match="line 2"):
        kernel_resources.read_expected("[a.cu]\nK 256 64\n")
