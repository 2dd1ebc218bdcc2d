"""Rows of embedding variables in files."""

from sparse_operation_kit.saver.saver import Saver

__all__ = ["Saver"]
