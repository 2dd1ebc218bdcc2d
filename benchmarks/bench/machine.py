"""The machine: its memory bandwidth, free memory, processor and load."""

from __future__ import annotations

import concurrent.futures
import os
import platform

import numpy as np

from bench.timing import CallContender

COPY_BYTES = 256 << 20


class MemoryCopy(CallContender):
    """Copies a large array with `threads` threads. This bounds the speed of everything that moves memory."""

    def __init__(self, name: str, threads: int) -> None:
        super().__init__(name, self._copy)
        self._pool = concurrent.futures.ThreadPoolExecutor(threads)
        self._from = np.array_split(np.ones(COPY_BYTES, np.uint8), threads)
        self._to = np.array_split(np.zeros(COPY_BYTES, np.uint8), threads)

    def _copy(self) -> None:
        # NumPy releases the interpreter's lock while it copies.
        list(self._pool.map(np.copyto, self._to, self._from))

    @staticmethod
    def gigabytes_per_second(milliseconds: float) -> float:
        """GB read plus GB written, per second, if a copy took `milliseconds`."""
        return 2 * COPY_BYTES / milliseconds / 1e6


def describe() -> dict[str, object]:
    """The processor, the number of cores, and the load average of the last minute."""
    return {"processor": _processor(), "cores": os.cpu_count(), "load": round(os.getloadavg()[0], 2)}


def available_bytes() -> float:
    """Memory that is available without swapping; infinity if the system does not tell."""
    try:
        with open("/proc/meminfo", encoding="utf-8") as stream:
            for line in stream:
                if line.startswith("MemAvailable:"):
                    return 1024.0 * int(line.split()[1])
    except OSError:
        pass
    return float("inf")


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as stream:
            for line in stream:
                if line.startswith("model name"):
                    return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor()
