"""The device of a table if the program places its model on a device."""

from __future__ import annotations

import contextlib

import tensorflow as tf
from tensorflow.python.framework import kernels

from sparse_operation_kit.core import graph_ops


def table_device() -> contextlib.AbstractContextManager[None]:
    """Returns the scope in which to create a table that may be inside the program's own `tf.device`.

    DeepRec programs place their models, and with them their tables, on a GPU. If the op library has table
    kernels for the CPU only, the scope places the table on the CPU of the same job and task; otherwise it
    leaves the program's device.
    """
    registered = kernels.get_registered_kernels_for_op(graph_ops.TABLE).kernel
    if {kernel.device_type for kernel in registered} == {"CPU"}:
        return tf.device("/device:CPU:0")
    return contextlib.nullcontext()
