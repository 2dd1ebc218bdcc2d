"""init and filter_variables."""

from __future__ import annotations

from collections.abc import Iterable

import tensorflow as tf

from sparse_operation_kit.core.communicator import communicator
from sparse_operation_kit.optimizers.variable_split import split_embedding_variable_from_others


def init(comm_tool: str = "horovod", use_legacy_optimizer: bool = True) -> None:
    """Finds the ranks: those of Horovod where it runs, else one. Calling it again is harmless.

    It decides nothing that variables and lookups would not decide by themselves, and sessions need nothing of
    it.

    Args:
      comm_tool: "horovod", the only one.
      use_legacy_optimizer: Not used: optimizers are those of `tf.compat.v1.train` and Keras' legacy ones.

    Raises:
      ValueError: Another `comm_tool`.
      RuntimeError: The process is one of several that a launcher has started, and they cannot find each
        other.
    """
    del use_legacy_optimizer
    if comm_tool != "horovod":
        raise ValueError(f"sok.experiment.init: comm_tool must be 'horovod', not {comm_tool!r}")
    communicator()


def filter_variables(vars: Iterable[tf.Variable]) -> tuple[list, list]:
    """Returns `(embedding variables, others)`, two lists, each in the order given."""
    return split_embedding_variable_from_others(list(vars))
