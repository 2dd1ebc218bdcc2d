"""The disk's speed, measured by `dd` without the page cache.

With the page cache, writing a file may be as fast as memory, or as slow as a virtual machine gets new pages.
"""

from __future__ import annotations

import os
import pathlib
import subprocess
import time

_BLOCK = 1 << 20


def write_seconds(path: pathlib.Path, count: int) -> float:
    """Writes `count` bytes, rounded up to MiB, and syncs them; returns the seconds."""
    blocks = -(-count // _BLOCK)
    command = ["dd", "if=/dev/zero", f"of={path}", f"bs={_BLOCK}", f"count={blocks}"]
    return _timed([*command, "oflag=direct", "conv=fsync"])


def read_seconds(path: pathlib.Path) -> float:
    """Reads a file; returns the seconds."""
    return _timed(["dd", f"if={path}", "of=/dev/null", f"bs={_BLOCK}", "iflag=direct"])


def drop_from_cache(folder: pathlib.Path) -> None:
    """Drops the files in `folder` from the page cache. They must be synced."""
    for path in folder.rglob("*"):
        if path.is_file():
            descriptor = os.open(path, os.O_RDONLY)
            try:
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(descriptor)


def bytes_in(folder: pathlib.Path) -> int:
    """Returns the bytes of all files in `folder`."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _timed(command: list[str]) -> float:
    begin = time.perf_counter()
    subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
    return time.perf_counter() - begin
