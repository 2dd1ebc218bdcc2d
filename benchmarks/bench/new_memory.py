"""How fast a process gets new memory, which limits every program that fills a table."""

from __future__ import annotations

import subprocess
import sys

_PROGRAM = """
import mmap, sys, time
count, block = int(sys.argv[1]), b"x" * (1 << 20)
begin = time.perf_counter()
memory = mmap.mmap(-1, count)
memory.madvise(mmap.MADV_HUGEPAGE)
for at in range(0, count, len(block)):
    memory[at : at + len(block)] = block
print(time.perf_counter() - begin)
"""


def touch_seconds(count: int) -> float:
    """Starts a process that writes `count` bytes of new memory, rounded up to MiB; returns the seconds."""
    rounded = -(-count // (1 << 20)) << 20
    command = [sys.executable, "-c", _PROGRAM, str(rounded)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
