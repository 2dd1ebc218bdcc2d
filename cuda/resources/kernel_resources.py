"""The resources that the CUDA engine's kernels take, as ptxas prints them, and how many blocks fit.

Usage: kernel_resources.py table REPORTS...            a table of all kernels
       kernel_resources.py check EXPECTED REPORTS...   exit status 1 if kernels take more than EXPECTED says
       kernel_resources.py expect EXPECTED REPORTS...  rewrites EXPECTED

REPORTS are the files of Bazel's output group `ptxas` (tools/cuda_library.bzl), or folders that have them:

    bazel build --output_groups=ptxas //cuda/engine:registered_engine
    python cuda/resources/kernel_resources.py table bazel-bin/cuda

EXPECTED has a section for each unit that nvcc compiles and a line for each kernel: its name, the threads of a
block, and for each architecture that it was written for, the most registers per thread with which as many
blocks fit as then. On other architectures, kernels must only not spill. A unit is
a .cu file, or all files of a target that are compiled as one, and then has the target's name
(tools/cuda_kernels.bzl). Kernels of other libraries (CUB) are in the table only.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

DEFAULT_THREADS = 256  # kThreadsPerBlock of cuda/base/launch.h
NAMESPACE = "sok::"


@dataclass(frozen=True)
class Multiprocessor:
    """What a multiprocessor has, from the CUDA programming guide."""

    shared_bytes: int
    registers: int = 65536
    warps: int = 64
    blocks: int = 32


MULTIPROCESSORS = {
    "sm_70": Multiprocessor(96 * 1024),
    "sm_75": Multiprocessor(64 * 1024, warps=32, blocks=16),
    "sm_80": Multiprocessor(164 * 1024),
    "sm_86": Multiprocessor(100 * 1024, warps=48, blocks=16),
    "sm_89": Multiprocessor(100 * 1024, warps=48, blocks=24),
    "sm_90": Multiprocessor(228 * 1024),
}
# The shared memory of a block that the runtime reserves.
RESERVED_SHARED_BYTES = 1024
# Registers are allocated to a warp in units of this many.
REGISTER_UNIT = 256
MOST_REGISTERS = 255


@dataclass(frozen=True)
class Kernel:
    """One kernel on one architecture."""

    file: str  # the unit, from cuda/ on
    name: str  # without namespaces and parameters
    arch: str
    registers: int = 0
    shared_bytes: int = 0
    stack_bytes: int = 0
    spill_bytes: int = 0
    is_ours: bool = True


def blocks_that_fit(arch: str, registers: int, shared_bytes: int, threads: int) -> int:
    """How many blocks of `threads` threads are resident on a multiprocessor."""
    has = MULTIPROCESSORS[arch]
    warps = -(-threads // 32)
    registers_of_warp = -(-registers * 32 // REGISTER_UNIT) * REGISTER_UNIT
    by_registers = has.registers // registers_of_warp // warps if registers else has.blocks
    by_shared = has.shared_bytes // (shared_bytes + RESERVED_SHARED_BYTES)
    return min(has.blocks, has.warps // warps, by_registers, by_shared)


def occupancy(arch: str, registers: int, shared_bytes: int, threads: int) -> float:
    """The share of a multiprocessor's warps that are resident."""
    blocks = blocks_that_fit(arch, registers, shared_bytes, threads)
    return blocks * -(-threads // 32) / MULTIPROCESSORS[arch].warps


def registers_for_as_many(kernel: Kernel, threads: int) -> int:
    """The most registers with which as many blocks fit as with those of the kernel."""
    blocks = blocks_that_fit(kernel.arch, kernel.registers, kernel.shared_bytes, threads)
    most = kernel.registers
    while (
        most < MOST_REGISTERS
        and blocks_that_fit(kernel.arch, most + 1, kernel.shared_bytes, threads) == blocks
    ):
        most += 1
    return most


_ENTRY = re.compile(r"Compiling entry function '([^']+)' for '(\w+)'")
_STACK = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_USED = re.compile(r"Used (\d+) registers")
_SHARED = re.compile(r"(\d+) bytes smem")


def read_report(file: str, text: str) -> list[Kernel]:
    """The kernels in what ptxas printed for `file`. Names are demangled by c++filt."""
    found: list[dict] = []
    is_entry = False
    for line in text.splitlines():
        if entry := _ENTRY.search(line):
            found.append({"mangled": entry[1], "arch": entry[2]})
            is_entry = True
        elif "Function properties for" in line and found:
            # Functions that are not inlined have properties, too.
            is_entry = line.split()[-1] == found[-1]["mangled"]
        elif (stack := _STACK.search(line)) and is_entry:
            found[-1]["stack_bytes"] = int(stack[1])
            found[-1]["spill_bytes"] = int(stack[2]) + int(stack[3])
        elif (used := _USED.search(line)) and found and "registers" not in found[-1]:
            found[-1]["registers"] = int(used[1])
            shared = _SHARED.search(line)
            found[-1]["shared_bytes"] = int(shared[1]) if shared else 0
    names = demangle([kernel.pop("mangled") for kernel in found])
    return [
        Kernel(file, short_name(name), is_ours=_is_ours(name), **kernel)
        for name, kernel in zip(names, found, strict=True)
    ]


def demangle(names: Sequence[str]) -> list[str]:
    """C++ names from those of the linker."""
    if not names:
        return []
    ran = subprocess.run(["c++filt"], input="\n".join(names), capture_output=True, text=True, check=True)
    return ran.stdout.splitlines()


def _is_ours(name: str) -> bool:
    # The name of a template starts with the return type.
    return name.removeprefix("void ").startswith(NAMESPACE)


def short_name(name: str) -> str:
    """A kernel's name without namespaces, return type and parameters."""
    depth = 0
    for i, letter in enumerate(name):
        if name.startswith("(anonymous namespace)", i):
            continue
        depth += (letter == "<") - (letter == ">")
        # The parameters begin at the first bracket that is not part of a name or of template arguments.
        if letter == "(" and depth == 0:
            name = name[:i]
            break
    name = name.removeprefix("void ").replace("(anonymous namespace)::", "")
    return re.sub(r"\b[a-z_]\w*::", "", name)


def read_reports(paths: Iterable[str]) -> list[Kernel]:
    """The kernels of all reports, by file and name."""
    kernels = []
    for path in map(Path, paths):
        reports = sorted(path.rglob("*.ptxas.txt")) if path.is_dir() else [path]
        for report in reports:
            kernels += read_report(source_of(report), report.read_text())
    return sorted(set(kernels), key=lambda kernel: (kernel.file, kernel.name, kernel.arch))


def source_of(report: Path) -> str:
    """The unit of the report FOLDER/_cuda/LIBRARY/UNIT.cu.ptxas.txt: FOLDER/UNIT.cu, from cuda/ on."""
    parts = report.parts
    at = len(parts) - 1 - parts[::-1].index("_cuda") if "_cuda" in parts else len(parts) - 1
    folder = parts[:at]
    begin = len(folder) - folder[::-1].index("cuda") if "cuda" in folder else 0
    return "/".join((*folder[begin:], report.name.removesuffix(".ptxas.txt")))


@dataclass
class Expected:
    """What EXPECTED says of a kernel."""

    threads: int
    most_registers: dict[str, int]  # by architecture


def read_expected(text: str) -> dict[tuple[str, str], Expected]:
    """By file and name."""
    expected = {}
    file = ""
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        if line.startswith("["):
            file = line.strip("[] \n")
            continue
        fields = line.split("|")
        if len(fields) != 3 or not file:
            raise ValueError(f"line {number} is not 'kernel | threads | registers': {line}")
        registers = dict(item.split("=") for item in fields[2].split())
        expected[file, fields[0].strip()] = Expected(
            int(fields[1]), {arch: int(most) for arch, most in registers.items()}
        )
    return expected


def check(expected: dict[tuple[str, str], Expected], kernels: Sequence[Kernel]) -> list[str]:
    """Differences from what is expected, one message each. Other libraries' kernels must not spill either."""
    problems = []
    seen = set()
    for kernel in kernels:
        where = f"{kernel.file}: {kernel.name} on {kernel.arch}"
        if kernel.spill_bytes:
            problems.append(f"{where} spills {kernel.spill_bytes} bytes of registers")
        if not kernel.is_ours:
            continue
        seen.add((kernel.file, kernel.name))
        entry = expected.get((kernel.file, kernel.name))
        if entry is None:
            problems.append(f"{where} is not expected")
        elif kernel.registers > entry.most_registers.get(kernel.arch, MOST_REGISTERS):
            problems.append(
                f"{where} takes {kernel.registers} registers, more than {entry.most_registers[kernel.arch]}"
            )
    problems += [f"{file}: {name} is expected, but not there" for file, name in sorted(set(expected) - seen)]
    return problems


def expectation(kernels: Sequence[Kernel], before: dict[tuple[str, str], Expected]) -> str:
    """The text of EXPECTED for these kernels. Threads are those of `before`."""
    lines = [
        "# What kernels may take: kernel | threads of a block | most registers of a thread. None may spill.",
        "# Written by kernel_resources.py expect; threads other than the default are to be edited here.",
    ]
    by_name: dict[tuple[str, str], list[Kernel]] = {}
    for kernel in kernels:
        if kernel.is_ours:
            by_name.setdefault((kernel.file, kernel.name), []).append(kernel)
    file = ""
    for (kernel_file, name), variants in sorted(by_name.items()):
        if kernel_file != file:
            file = kernel_file
            lines += ["", f"[{file}]"]
        threads = before[kernel_file, name].threads if (kernel_file, name) in before else DEFAULT_THREADS
        most = " ".join(f"{kernel.arch}={registers_for_as_many(kernel, threads)}" for kernel in variants)
        lines.append(f"{name} | {threads} | {most}")
    return "\n".join(lines) + "\n"


def table(kernels: Sequence[Kernel], expected: dict[tuple[str, str], Expected]) -> str:
    """A Markdown table of the resources of kernels, and how many warps are resident."""
    lines = [
        "| file | kernel | arch | registers | spills | stack | shared bytes | threads | warps resident |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for kernel in kernels:
        entry = expected.get((kernel.file, kernel.name))
        threads = entry.threads if entry else DEFAULT_THREADS
        share = occupancy(kernel.arch, kernel.registers, kernel.shared_bytes, threads)
        lines.append(
            f"| {kernel.file} | `{kernel.name}` | {kernel.arch} | {kernel.registers} | {kernel.spill_bytes} "
            f"| {kernel.stack_bytes} | {kernel.shared_bytes} | {threads} | {share:.0%} |"
        )
    return "\n".join(lines) + "\n"


EXPECTED_FILE = Path(__file__).with_name("kernels.txt")


def main(arguments: Sequence[str]) -> int:
    """Runs a command line; returns the exit status."""
    if len(arguments) >= 2 and arguments[0] == "table":
        print(table(read_reports(arguments[1:]), read_expected(EXPECTED_FILE.read_text())), end="")
        return 0
    if len(arguments) < 3 or arguments[0] not in ("check", "expect"):
        print(__doc__, file=sys.stderr)
        return 2
    command, path, *reports = arguments
    kernels = read_reports(reports)
    before = read_expected(Path(path).read_text()) if Path(path).exists() else {}
    if command == "expect":
        Path(path).write_text(expectation(kernels, before))
        return 0
    problems = check(before, kernels)
    print(*problems, sep="\n", end="\n" if problems else "")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
