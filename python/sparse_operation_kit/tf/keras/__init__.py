"""Counterparts of tf.keras modules, under Keras' names."""

from sparse_operation_kit.tf.keras import mixed_precision, optimizers

__all__ = ["mixed_precision", "optimizers"]
