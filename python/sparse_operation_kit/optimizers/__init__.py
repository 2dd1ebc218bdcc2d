"""Optimizers for embedding variables, and the code that lets TensorFlow's own optimizers train them."""

# Importing these modules registers their replacements of TensorFlow functions.
# `utils` is a path of the original SOK, which programs may use without importing it.
from sparse_operation_kit.optimizers import (  # noqa: F401
    apply_gradients,
    sharded_norms,
    utils,
)
from sparse_operation_kit.optimizers.adagrad_decay import AdagradDecayOptimizer
from sparse_operation_kit.optimizers.adam import Adam
from sparse_operation_kit.optimizers.adam_async import AdamAsyncOptimizer
from sparse_operation_kit.optimizers.adamw import AdamW, AdamWOptimizer
from sparse_operation_kit.optimizers.rowwise_adagrad import RowWiseAdagrad
from sparse_operation_kit.optimizers.step_ops import fused_updates
from sparse_operation_kit.optimizers.utils import split_embedding_variable_from_others

__all__ = [
    "AdagradDecayOptimizer",
    "Adam",
    "AdamAsyncOptimizer",
    "AdamW",
    "AdamWOptimizer",
    "RowWiseAdagrad",
    "fused_updates",
    "split_embedding_variable_from_others",
]
