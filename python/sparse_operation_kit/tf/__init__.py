"""Counterparts of TensorFlow modules, under TensorFlow's names."""

from sparse_operation_kit.tf import keras

__all__ = ["keras"]
