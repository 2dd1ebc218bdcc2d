"""TensorFlow's /GPU:0 on a machine without one: the plugin of `fake_gpu`, and the op library for it.

Importing this gives the process the device, and makes `sparse_operation_kit`, which must be imported later,
load the op library with kernels for it. Tables are then on the GPU by default. Only this library's ops run
there: the plugin has hardly any kernels of TensorFlow's.

With SOK_TEST_DEVICE=gpu, the device is the machine's first GPU. A TensorFlow for CPUs has it through the same
plugin over the real CUDA runtime.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import pathlib
import types
from collections.abc import Iterator

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import pytest
import tensorflow as tf
from tensorflow.python.framework import load_library

_OPS = "sok_ops/sok_ops_on_host.so"
_REAL = os.environ.get("SOK_TEST_DEVICE") == "gpu"
_PLUGIN = "tests/fake_gpu/libsok_cuda_plugin.so" if _REAL else "tests/fake_gpu/libsok_fake_gpu.so"
# C++ functions, by the names that the linker knows them by.
_RUNTIME = {
    "allocate": "_Z10cudaMallocPPvm",
    "bytes_in_use": "_ZN3sok7on_host16DeviceBytesInUseEv",
    "create_stream": "_Z25cudaStreamCreateWithFlagsPP11CUstream_stj",
    "enqueued_work": "_ZN3sok7on_host12EnqueuedWorkEv",
    "limit_memory": "_ZN3sok7on_host20SetDeviceMemoryLimitEm",
    "fill": "_Z15cudaMemsetAsyncPvimP11CUstream_st",
    "wait_for_stream": "_Z21cudaStreamSynchronizeP11CUstream_st",
    "pending_work": "_ZN3sok7on_host11PendingWorkEv",
}


class _StreamWork(ctypes.Structure):
    """`StreamWork` of cuda/on_host/on_host.h."""

    _fields_ = tuple(
        (name, ctypes.c_int64)
        for name in (
            "kernels",
            "transfers",
            "bytes_to_host",
            "events",
            "allocations",
            "bytes_to_device",
            "run_ns",
        )
    )


def _built(path: str) -> str:
    return str((pathlib.Path(os.environ.get("SOK_BAZEL_BIN", ".")) / path).absolute())


if _REAL:
    # Otherwise TensorFlow takes the memory that tables, and other ranks on this GPU, need.
    os.environ.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")
else:
    os.environ["SOK_OPS_LIBRARY"] = _built(_OPS)
if not (_REAL and tf.test.is_built_with_cuda()):
    load_library.load_pluggable_device_library(_built(_PLUGIN))
if not tf.config.list_physical_devices("GPU"):
    raise SystemExit("There is no CUDA device, or no driver for it: nothing was tested.")


# For tests of what only the CUDA runtime on the host counts.
counts_work = pytest.mark.skipif(_REAL, reason="a GPU does not count its work")


def session(rewrites: bool = True, **options: bool) -> tf.compat.v1.Session:
    """Returns a session of the default graph, without soft placement.

    Args:
      rewrites: Whether TensorFlow may rewrite the graph.
      **options: Of the ConfigProto.
    """
    config = tf.compat.v1.ConfigProto(
        intra_op_parallelism_threads=2, inter_op_parallelism_threads=2, **options
    )
    config.graph_options.rewrite_options.disable_meta_optimizer = not rewrites
    return tf.compat.v1.Session(config=config)


def cuda_runtime() -> types.SimpleNamespace:
    """Functions of the device's CUDA runtime, which return 0 for success; arguments as in its headers."""
    # The plugin needs the runtime's library, so its functions are found by the plugin's handle.
    library = ctypes.CDLL(_built(_PLUGIN))
    runtime = types.SimpleNamespace(**{name: getattr(library, symbol) for name, symbol in _RUNTIME.items()})
    runtime.bytes_in_use.restype = ctypes.c_size_t
    runtime.allocate.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    runtime.create_stream.argtypes = [ctypes.c_void_p, ctypes.c_uint]
    runtime.limit_memory.argtypes = [ctypes.c_size_t]
    runtime.fill.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t, ctypes.c_void_p]
    runtime.wait_for_stream.argtypes = [ctypes.c_void_p]
    runtime.pending_work.restype = ctypes.c_int64
    runtime.enqueued_work.restype = _StreamWork
    return runtime


class Copies:
    """Bytes that were copied between host and device.

    Attributes:
      to_device, to_host: By TensorFlow.
      to_device_by_ops, to_host_by_ops: By this library's ops: all other copies.
    """

    def __init__(self) -> None:
        """Made by `copies`."""
        self.to_device = self.to_host = self.to_device_by_ops = self.to_host_by_ops = 0


@contextlib.contextmanager
def copies() -> Iterator[Copies]:
    """Counts the copies in this context; the result is complete when it ends."""
    plugin = ctypes.CDLL(_built(_PLUGIN))
    functions = plugin.SokFakeGpuBytesToDevice, plugin.SokFakeGpuBytesToHost
    for function in functions:
        function.restype = ctypes.c_int64
    runtime = cuda_runtime()

    def read() -> list[int]:
        work = runtime.enqueued_work()
        return [*(function() for function in functions), work.bytes_to_device, work.bytes_to_host]

    before = read()
    counted = Copies()
    yield counted
    to_device, to_host, all_to_device, all_to_host = (
        now - old
        for now, old in zip(read(), before)  # noqa: B905
    )
    counted.to_device, counted.to_host = to_device, to_host
    counted.to_device_by_ops, counted.to_host_by_ops = all_to_device - to_device, all_to_host - to_host
