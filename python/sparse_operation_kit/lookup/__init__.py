"""Lookups of groups of features."""

# They register what variables need of them: how rows are looked up, and what is replaced of TensorFlow's.
from sparse_operation_kit.lookup import group, jacobian  # noqa: F401
