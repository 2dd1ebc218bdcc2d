"""Where tables are placed that a program asks for on a device for which the op library has no engine."""

from __future__ import annotations

import contextlib

import tensorflow as tf
from tensorflow.python.framework import kernels


def table_device() -> contextlib.AbstractContextManager[None]:
    """Returns the scope in which a program's tables are made that may stand under a `tf.device` of its own.

    DeepRec's programs place their models, and with them the tables, on a GPU. Where the op library makes
    tables on other devices than the CPU, they go where the program says; else into the host's memory, of the
    same job and task.
    """
    registered = kernels.get_registered_kernels_for_op("SokTable").kernel
    if {kernel.device_type for kernel in registered} == {"CPU"}:
        return tf.device("/device:CPU:0")
    return contextlib.nullcontext()
