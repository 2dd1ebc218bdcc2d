"""The names of a layer's variables, which tell whether every rank has a variable or only one."""

from __future__ import annotations

import re
from typing import Any

import tensorflow as tf

from sparse_operation_kit.dist_model_parallel.layout import Group

_OF_RANK = re.compile(r"tables_\d+_of_rank_\d+_of_\d+")


def cut_name(number: int, rank: int, ranks: int) -> str:
    """The name of a variable that only this rank has.

    The name contains the rank. Otherwise a checkpoint of another rank, or of another number of ranks, could
    be restored here, although its rows are different ones.
    """
    return f"tables_{number}_of_rank_{rank}_of_{ranks}"


def replica_name(group: Group) -> str:
    """The name of a replicated table's variable."""
    return f"table_{group.replicated}"


def is_cut(variable: Any) -> bool:
    """Whether only this rank has a variable: one of distributed or sliced tables, or a slot of one."""
    return isinstance(variable, tf.Variable) and _OF_RANK.search(variable.name) is not None
