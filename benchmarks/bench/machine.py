"""The machine: its memory bandwidth, free memory, processor and load."""

from __future__ import annotations

import concurrent.futures
import mmap
import os
import pathlib
import platform
import subprocess
import sys
from collections.abc import Callable

import numpy as np

from bench.timing import Sample

COPY_BYTES = 256 << 20
# NumPy asks for huge pages, as the engine does.
_TOUCH = """
import sys, time, numpy
wall, cpu = time.perf_counter(), time.process_time()
numpy.full(int(sys.argv[1]), 1, numpy.uint8)
print((time.perf_counter() - wall) * 1e3, (time.process_time() - cpu) * 1e3)
"""


def memory_copy(threads: int) -> Callable[[], object]:
    """A function that copies COPY_BYTES with `threads` threads, as fast as anything can move memory."""
    pool = concurrent.futures.ThreadPoolExecutor(threads)
    source = np.array_split(np.ones(COPY_BYTES, np.uint8), threads)
    to = np.array_split(np.zeros(COPY_BYTES, np.uint8), threads)
    # NumPy releases the interpreter's lock while it copies.
    return lambda: list(pool.map(np.copyto, to, source))


def describe() -> dict[str, object]:
    """The processor, the number of cores, and the load average of the last minute."""
    processor = _line("/proc/cpuinfo", "model name")
    load = round(os.getloadavg()[0], 2)
    return {"processor": processor or platform.processor(), "cores": os.cpu_count(), "load": load}


def available_bytes() -> float:
    """Memory that is available without swapping; infinity if the system does not tell."""
    available = _line("/proc/meminfo", "MemAvailable")
    return 1024.0 * int(available.split()[0]) if available else float("inf")


def drop_from_cache(path: pathlib.Path) -> None:
    """Drops a file, which is synced, from the page cache."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)


def resident_bytes(field: str) -> int:
    """This process's resident bytes: the present size (VmRSS), its own part (RssAnon), the peak (VmHWM)."""
    return int(_line("/proc/self/status", field).split()[0]) << 10


def _line(path: str, name: str) -> str:
    try:
        with open(path, encoding="utf-8") as stream:
            return next((line.split(":", 1)[1].strip() for line in stream if line.startswith(name)), "")
    except OSError:
        return ""


class HeldMemory:
    """Memory that this process has touched, so that a virtual machine has it."""

    def __init__(self, size: int) -> None:
        self.size = size  # what is left
        self._map = mmap.mmap(-1, max(size, 1), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self._map.madvise(mmap.MADV_HUGEPAGE)
        np.frombuffer(self._map, np.uint8)[: size : mmap.PAGESIZE] = 1

    def give_back(self, size: int) -> None:
        """Gives back this number of bytes, or all that are left."""
        begin = max(self.size - size, 0) // mmap.PAGESIZE * mmap.PAGESIZE
        if begin < self.size:
            self._map.madvise(mmap.MADV_DONTNEED, begin, self.size - begin)
        self.size = begin


def touch(size: int) -> Sample:
    """The time in which a process gets `size` bytes of new memory, and writes to them."""
    done = subprocess.check_output([sys.executable, "-c", _TOUCH, str(size)], text=True)
    return Sample(*map(float, done.split()))
