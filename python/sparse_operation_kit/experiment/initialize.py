"""init and filter_variables; the `mode` of variables: which rank holds their rows."""

from __future__ import annotations

from collections.abc import Iterable

import tensorflow as tf

from sparse_operation_kit.optimizers.utils import split_embedding_variable_from_others
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


# The target of a variable that is sharded over all ranks.
ALL_RANKS = -1


def target_of(mode: str | None) -> int:
    """Returns the rank for the mode "localized:<rank>", ALL_RANKS for None and "distributed".

    Raises:
      ValueError: The mode is unknown, or the rank does not exist.
    """
    if mode is None or mode == "distributed":
        return ALL_RANKS
    kind, _, rank = str(mode).partition(":")
    if kind != "localized" or not rank.isdigit():
        raise ValueError(f"mode must be 'distributed' or 'localized:<rank>', not {mode!r}")
    return checked_rank(int(rank))


def placement_of(target: int, keys: int | None = None) -> str:
    """Returns the engine's placement string for a target; `keys` is the number of keys, if it is fixed."""
    if target != ALL_RANKS:
        return f"one_rank:{target}"
    return "by_key" if keys is None else f"by_key:{keys}"


def checked_rank(rank: int) -> int:
    """Returns `rank`, or raises ValueError if there is no such rank."""
    size = communicator().size
    if not 0 <= rank < size:
        raise ValueError(f"A variable cannot be put on rank {rank}: the ranks are [0, {size})")
    return rank
