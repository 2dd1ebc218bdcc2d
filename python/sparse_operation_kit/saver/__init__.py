"""Saves and restores the rows of embedding variables."""

# Importing these modules registers their replacements of TensorFlow functions.
from sparse_operation_kit.saver import (  # noqa: F401
    agreed_timer,
    tensorflow_saver,
    tensorflow_warm_start,
)
from sparse_operation_kit.saver.incremental_hook import IncrementalCheckpointHook
from sparse_operation_kit.saver.Saver import Saver
from sparse_operation_kit.saver.warm_start import init_from_checkpoint

__all__ = ["IncrementalCheckpointHook", "Saver", "init_from_checkpoint"]
