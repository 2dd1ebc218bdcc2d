"""Rows of embedding variables in files."""

from sparse_operation_kit.saver.incremental_hook import IncrementalCheckpointHook
from sparse_operation_kit.saver.Saver import Saver
from sparse_operation_kit.saver.warm_start import init_from_checkpoint

__all__ = ["IncrementalCheckpointHook", "Saver", "init_from_checkpoint"]
