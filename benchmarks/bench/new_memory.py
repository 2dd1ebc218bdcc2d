"""How fast a process gets new memory, which limits every program that fills a table."""

from __future__ import annotations

import subprocess
import sys

# `mmap.madvise` is new in Python 3.8.
_PROGRAM = """
import ctypes, mmap, sys, time
MADV_HUGEPAGE = 14
count, block = int(sys.argv[1]), b"x" * (1 << 20)
libc = ctypes.CDLL(None, use_errno=True)
begin = time.perf_counter()
memory = mmap.mmap(-1, count)
address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
if libc.madvise(ctypes.c_void_p(address), ctypes.c_size_t(count), MADV_HUGEPAGE):
    raise OSError(ctypes.get_errno(), "madvise")
for at in range(0, count, len(block)):
    memory[at : at + len(block)] = block
print(time.perf_counter() - begin)
"""


def touch_seconds(count: int) -> float:
    """Starts a process that writes `count` bytes of new memory, rounded up to MiB; returns the seconds."""
    rounded = -(-count // (1 << 20)) << 20
    command = [sys.executable, "-c", _PROGRAM, str(rounded)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
