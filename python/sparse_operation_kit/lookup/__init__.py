"""Lookups of groups of features."""

# Importing it registers the lookup function of embedding variables and the replacement of TensorFlow
# functions.
from sparse_operation_kit.lookup import group  # noqa: F401
