"""Broadcasts the values of ordinary variables from one rank to all ranks."""

from __future__ import annotations

from collections.abc import Iterable

import tensorflow as tf

from sparse_operation_kit.ranks.communicator import communicator
from sparse_operation_kit.tables.embedding_variable import is_embedding_variable


def broadcast_variables(variables: Iterable[tf.Variable], root_rank: int = 0) -> tf.Operation:
    """Returns an op that sets variables, on all ranks, to their values on rank `root_rank`.

    Every rank runs the op, after it has initialized the variables. Embedding variables are skipped: their
    rows are sharded over the ranks and do not depend on the number of ranks. With one rank the op does
    nothing.

    Args:
      variables: variables of the default graph, the same on all ranks.
      root_rank: the rank whose values are used.

    Raises:
      ValueError: if `root_rank` is not a rank.
      TypeError: if a variable is of a dtype that cannot be sent, such as tf.string.
    """
    ranks = communicator()
    ranks.check_rank(root_rank)
    if ranks.size == 1:
        return tf.no_op(name="broadcast_variables")
    assigned = []
    for variable in variables:
        if is_embedding_variable(variable):
            continue
        name = variable.name.partition(":")[0]
        try:
            value = ranks.broadcast(variable.read_value(), root_rank, name)
        except TypeError as error:
            message = f"Variable '{name}' of {variable.dtype.base_dtype.name} cannot be sent to other ranks"
            raise TypeError(message) from error
        assigned.append(variable.assign(value, read_value=False))
    return tf.group(*assigned, name="broadcast_variables")


def broadcast_global_variables(root_rank: int = 0) -> tf.Operation:
    """Calls `broadcast_variables` for all global variables that exist so far, including optimizer slots."""
    return broadcast_variables(tf.compat.v1.global_variables(), root_rank)


class BroadcastGlobalVariablesHook(tf.compat.v1.train.SessionRunHook):
    """Runs `broadcast_global_variables` in a new session, after the variables were initialized or restored.

    For MonitoredTrainingSession and Estimator. Every rank needs the hook::

        hooks = [sok.BroadcastGlobalVariablesHook(root_rank=0)]
        with tf.compat.v1.train.MonitoredTrainingSession(hooks=hooks) as session:

    Args:
      root_rank: the rank whose values are used.
    """

    def __init__(self, root_rank: int = 0):
        self._root_rank = root_rank
        self._broadcast: tf.Operation | None = None

    def begin(self) -> None:
        """Adds the op to the graph before the session is created."""
        self._broadcast = broadcast_global_variables(self._root_rank)

    def after_create_session(self, session: tf.compat.v1.Session, coord: tf.train.Coordinator) -> None:
        """Runs the op."""
        del coord
        session.run(self._broadcast)
