"""Lookups of groups of features."""

# Importing them registers the lookup function of embedding variables and the replacement of a TensorFlow
# function.
from sparse_operation_kit.lookup import group, jacobian  # noqa: F401
