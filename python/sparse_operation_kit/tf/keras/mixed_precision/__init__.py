"""Training with float16 compute."""

from sparse_operation_kit.tf.keras.mixed_precision.loss_scale_optimizer import LossScaleOptimizer

__all__ = ["LossScaleOptimizer"]
