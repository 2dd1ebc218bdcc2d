"""The device of tables and network: a GPU or the CPU."""

from __future__ import annotations

import os

import tensorflow as tf


class NoDevice(Exception):
    """The device that was asked for is not there."""


def use_device(device: str | None, number: int) -> tf.compat.v1.ConfigProto:
    """Chooses the device of SOK's tables that are made from now on, and of a session with the result.

    Args:
      device: "cpu", "gpu", or None: a GPU if TensorFlow has one.
      number: Of this rank among the ranks of its machine, which share the machine's GPUs in turn.

    Raises:
      NoDevice: `device` is "gpu", but TensorFlow has none.
    """
    config = tf.compat.v1.ConfigProto()
    # Otherwise TensorFlow takes the memory that tables, and other ranks on the same GPU, need.
    config.gpu_options.allow_growth = True
    gpus = len(tf.config.experimental.list_physical_devices("GPU"))
    if device == "gpu" and gpus == 0:
        raise NoDevice("--device gpu: TensorFlow finds no GPU, or has no plugin for it")
    if device == "cpu":
        config.device_count["GPU"] = 0
    elif gpus > 1:
        config.gpu_options.visible_device_list = str(number % gpus)
    if device is None:
        os.environ.pop("SOK_DEVICE", None)
    else:
        os.environ["SOK_DEVICE"] = device
    return config
