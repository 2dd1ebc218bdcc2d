"""The machine: its memory bandwidth, free memory, processor and load."""

from __future__ import annotations

import concurrent.futures
import mmap
import os
import pathlib
import platform
import subprocess
import sys
from collections.abc import Callable, Sequence

import numpy as np

from bench.timing import Sample, sample

COPY_BYTES = 256 << 20
# The programs of `touch` and `read_files`.
_TOUCH = "from bench import machine; machine.touch_here({size}, {threads}, {held})"
_READ = "from bench import machine; machine.read_here({paths}, {threads})"
_BLOCK = 1 << 20


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
    """Drops a file, or all files of a folder, which are synced, from the page cache."""
    for file in [path] if path.is_file() else filter(pathlib.Path.is_file, path.rglob("*")):
        descriptor = os.open(file, os.O_RDONLY)
        try:
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


def resident_bytes(field: str) -> int:
    """This process's resident bytes: the present size (VmRSS), its own part (RssAnon), the peak (VmHWM)."""
    return int(_line("/proc/self/status", field).split()[0]) << 10


def reset_peak() -> None:
    """Resets the peak of this process's resident set (VmHWM) to its present size."""
    pathlib.Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


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
        self._map = _pages(size)
        np.frombuffer(self._map, np.uint8)[: size : mmap.PAGESIZE] = 1

    def give_back(self, size: int) -> None:
        """Gives back this number of bytes, or all that are left."""
        begin = max(self.size - size, 0) // mmap.PAGESIZE * mmap.PAGESIZE
        if begin < self.size:
            self._map.madvise(mmap.MADV_DONTNEED, begin, self.size - begin)
        self.size = begin


class NewMemory:
    """Memory that nobody has touched: what a table takes from the kernel, without the table."""

    def __init__(self, size: int, threads: int) -> None:
        self._pool = concurrent.futures.ThreadPoolExecutor(threads)
        self._threads = threads
        self._bytes = np.frombuffer(_pages(size), np.uint8)
        self._at = 0

    def touch(self, size: int) -> None:
        """Writes to each page of the next `size` bytes."""
        end = min(self._at + size, len(self._bytes))
        pages = self._bytes[self._at : end : mmap.PAGESIZE]
        self._at = end
        # Threads touch pages side by side: the kernel zeroes a huge page, or a table of them, for each.
        list(self._pool.map(_write, np.array_split(pages, self._threads)))


def touch(size: int, threads: int = 1, held: bool = False) -> Sample:
    """The time in which a process gets `size` bytes of new memory, and writes to them.

    With `held`, the process has touched as many bytes before, and given them back.
    """
    return _run(_TOUCH.format(size=size, threads=threads, held=held))


def touch_here(size: int, threads: int, held: bool) -> None:
    """What the process of `touch` does."""
    memory = HeldMemory(size if held else 0)
    fresh = NewMemory(size, threads)
    memory.give_back(size)
    _print_sample(lambda: fresh.touch(size))


def read_files(paths: Sequence[pathlib.Path], threads: int) -> Sample:
    """The time in which a process reads files in blocks of 1 MiB, and keeps nothing of them."""
    return _run(_READ.format(paths=[str(path) for path in paths], threads=threads))


def read_here(paths: Sequence[str], threads: int) -> None:
    """What the process of `read_files` does."""
    blocks = [(path, at) for path in paths for at in range(0, os.path.getsize(path), _BLOCK)]
    pool = concurrent.futures.ThreadPoolExecutor(threads)
    files = {path: os.open(path, os.O_RDONLY) for path in paths}
    buffers = [bytearray(_BLOCK) for _ in range(threads)]

    def read(thread: int) -> None:
        for path, at in blocks[thread::threads]:
            os.preadv(files[path], [buffers[thread]], at)
            os.posix_fadvise(files[path], at, _BLOCK, os.POSIX_FADV_DONTNEED)

    _print_sample(lambda: list(pool.map(read, range(threads))))


def _pages(size: int) -> mmap.mmap:
    # Huge pages, as the engine's.
    pages = mmap.mmap(-1, max(size, 1), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    pages.madvise(mmap.MADV_HUGEPAGE)
    return pages


def _write(pages: np.ndarray) -> None:
    pages[:] = 1


def _print_sample(call: Callable[[], object]) -> None:
    print(*sample(call, 1))


def _run(program: str) -> Sample:
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.check_output([sys.executable, "-c", program], text=True, env=variables)
    return Sample(*map(float, done.split()))
