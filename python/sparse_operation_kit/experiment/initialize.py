"""init and filter_variables."""

from __future__ import annotations

from collections.abc import Iterable

import tensorflow as tf

from sparse_operation_kit.optimizers.variable_split import split_embedding_variable_from_others
from sparse_operation_kit.ranks.communicator import communicator


def init(comm_tool: str = "horovod", use_legacy_optimizer: bool = True) -> None:
    """Determines the ranks: Horovod's if it is in use, else one. Calling it again is harmless.

    The call is optional: variables and lookups do the same by themselves.

    Args:
      comm_tool: Must be "horovod".
      use_legacy_optimizer: Not used. Use the optimizers of `tf.compat.v1.train` or Keras' legacy ones.

    Raises:
      ValueError: `comm_tool` is not "horovod".
      RuntimeError: A launcher started several processes, and they cannot find each other.
    """
    del use_legacy_optimizer
    if comm_tool != "horovod":
        raise ValueError(f"sok.experiment.init: comm_tool must be 'horovod', not {comm_tool!r}")
    communicator()


def filter_variables(vars: Iterable[tf.Variable]) -> tuple[list, list]:
    """Returns two lists, `(embedding variables, others)`, each in the order of `vars`."""
    return split_embedding_variable_from_others(list(vars))
