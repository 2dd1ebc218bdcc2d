# Not on GPUs: it always has the fake one
"""The device of `fake_gpu_device` alone: a GPU to TensorFlow, whose memory the host cannot touch."""

from __future__ import annotations

import ctypes
import os
import signal

import numpy as np
import pytest
import tensorflow as tf

import fake_gpu_device
import fork_server

v1 = tf.compat.v1
GPU = "/GPU:0"


def test_tensorflow_has_one_gpu():
    assert [device.name for device in tf.config.list_physical_devices("GPU")] == ["/physical_device:GPU:0"]


@pytest.mark.parametrize("count", [1, 1000, 3_000_000])
def test_copies_to_the_device_and_back(count):
    values = np.arange(count, dtype=np.float32)
    with tf.Graph().as_default(), fake_gpu_device.session(rewrites=False) as session:
        fed = v1.placeholder(tf.float32, [None])
        with tf.device(GPU):
            on_device = [tf.identity(fed), tf.identity(fed)]
        on_host = [tensor + 1 for tensor in on_device]
        with fake_gpu_device.copies() as copied:
            results = session.run(on_host, {fed: values})
    for result in results:
        np.testing.assert_array_equal(result, values + 1)
    assert copied.to_device >= values.nbytes and copied.to_host >= values.nbytes


def test_an_op_without_a_kernel_for_the_gpu():
    with tf.Graph().as_default():
        fed = v1.placeholder(tf.float32, [2])
        with tf.device(GPU):
            total = tf.exp(fed)
        with fake_gpu_device.session() as session:
            with pytest.raises(tf.errors.InvalidArgumentError, match="no supported kernel for GPU"):
                session.run(total, {fed: [3.0, 4.0]})
        with fake_gpu_device.session(allow_soft_placement=True) as session:
            np.testing.assert_allclose(session.run(total, {fed: [3.0, 4.0]}), np.exp(np.float32([3.0, 4.0])))


def _output_and_status_of(function):
    """What a forked process writes to its standard error while it runs `function`, and how it ends."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        signal.signal(signal.SIGABRT, signal.SIG_DFL)  # no report of Python's
        os.dup2(writing, 2)
        function()
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, errors="replace") as output:
        return output.read(), fork_server.exit_code(os.waitpid(child, 0)[1])


def test_a_host_that_touches_the_device_s_memory_dies():
    memory = ctypes.c_void_p()
    fake_gpu_device.cuda_runtime().allocate(ctypes.byref(memory), 4096)

    def touch():
        ctypes.string_at(memory.value + 8, 4)

    output, status = _output_and_status_of(touch)
    assert status == -signal.SIGABRT
    assert "the host touched" in output and "4096 bytes of device memory" in output


def test_what_is_put_into_a_stream_waits_there():
    runtime = fake_gpu_device.cuda_runtime()
    memory, stream = ctypes.c_void_p(), ctypes.c_void_p()
    runtime.allocate(ctypes.byref(memory), 64)
    runtime.create_stream(ctypes.byref(stream), 1)
    before = runtime.pending_work()
    runtime.fill(memory, 7, 64, stream)
    assert runtime.pending_work() == before + 1
    runtime.wait_for_stream(stream)
    assert runtime.pending_work() == before
