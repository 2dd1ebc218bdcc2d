"""Gives ordinary variables the values that they have on one rank."""

from __future__ import annotations

from collections.abc import Iterable

import tensorflow as tf

from sparse_operation_kit.core.communicator import communicator
from sparse_operation_kit.core.embedding_variable import is_embedding_variable


def broadcast_variables(variables: Iterable[tf.Variable], root_rank: int = 0) -> tf.Operation:
    """Makes an op that gives variables their values on rank `root_rank`, on all ranks.

    The variables are initialized on all ranks when it runs, and every rank runs it. Embedding variables
    among them are left alone: their rows are spread over the ranks, and are the same for any number of
    them. At one rank the op does nothing.

    Args:
      variables: variables of the default graph, the same on all ranks.
      root_rank: the rank whose values are taken.

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
            message = f"Variable '{name}' of {variable.dtype.name} cannot be sent to other ranks"
            raise TypeError(message) from error
        assigned.append(variable.assign(value, read_value=False))
    return tf.group(*assigned, name="broadcast_variables")


def broadcast_global_variables(root_rank: int = 0) -> tf.Operation:
    """`broadcast_variables` of all global variables that the graph has by now, optimizers' slots included."""
    return broadcast_variables(tf.compat.v1.global_variables(), root_rank)


class BroadcastGlobalVariablesHook(tf.compat.v1.train.SessionRunHook):
    """Runs `broadcast_global_variables` in a new session, after its variables were initialized or restored.

    For MonitoredTrainingSession and Estimator, with one on every rank::

        hooks = [sok.BroadcastGlobalVariablesHook(root_rank=0)]
        with tf.compat.v1.train.MonitoredTrainingSession(hooks=hooks) as session:

    Args:
      root_rank: the rank whose values are taken.
    """

    def __init__(self, root_rank: int = 0):
        self._root_rank = root_rank
        self._broadcast: tf.Operation | None = None

    def begin(self) -> None:
        """Makes the op, in the graph that the session is about to be made for."""
        self._broadcast = broadcast_global_variables(self._root_rank)

    def after_create_session(self, session: tf.compat.v1.Session, coord: tf.train.Coordinator) -> None:
        """Runs it."""
        del coord
        session.run(self._broadcast)
