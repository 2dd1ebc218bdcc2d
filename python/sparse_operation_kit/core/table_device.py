"""Which device a table is placed on if the program places its model on another one."""

from __future__ import annotations

import contextlib

import tensorflow as tf
from tensorflow.python.framework import kernels

from sparse_operation_kit.core import graph_ops


def table_device() -> contextlib.AbstractContextManager[None]:
    """Returns the scope in which a table is made that may be inside a program's own `tf.device`.

    DeepRec's programs place their models, and the tables with them, on a GPU. If the op library has kernels
    of tables for the CPU only, the table goes to the CPU of the same job and task; otherwise the program
    decides.
    """
    registered = kernels.get_registered_kernels_for_op(graph_ops.TABLE).kernel
    if {kernel.device_type for kernel in registered} == {"CPU"}:
        return tf.device("/device:CPU:0")
    return contextlib.nullcontext()
