"""Counterparts of TensorFlow modules, under TensorFlow's names.

`unique` and `unsorted_segment_sum` are TensorFlow's own functions. The original SOK has GPU kernels for them,
which this library does not need.
"""

import tensorflow

from sparse_operation_kit.tf import keras

unique = tensorflow.unique
unsorted_segment_sum = tensorflow.math.unsorted_segment_sum

__all__ = ["keras", "unique", "unsorted_segment_sum"]
