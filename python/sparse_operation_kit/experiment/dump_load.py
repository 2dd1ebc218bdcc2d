"""dump and load: write and read the rows of variables as files."""

from __future__ import annotations

import os
from typing import Any

import tensorflow as tf

from sparse_operation_kit.checkpoint import own_files
from sparse_operation_kit.optimizers.wrapper import OptimizerWrapper
from sparse_operation_kit.saver.checkpoint_restore import add_load_ops
from sparse_operation_kit.saver.Saver import Saver
from sparse_operation_kit.tables.embedding_variable import EmbeddingVariable


def dump(path: str, dump_vars: Any, optimizer: Any = None) -> tf.Tensor:
    """Returns a tensor that writes the variables' rows into the directory `path`; its value is `b'OK'`.

    The files have the format of `sok.Saver().dump_to_file`, not that of the original SOK's `dump`.

    Args:
      path: The directory, created if it is missing. All ranks must see the same directory.
      dump_vars: An embedding variable, or a list or tuple of them.
      optimizer: None or gradient descent, which has no state.

    Raises:
      TypeError: A variable is not an embedding variable.
      ValueError: The optimizer has state. `tf.compat.v1.train.Saver` saves tables with optimizer state.
    """
    _refuse_state("dump", optimizer)
    return _all([Saver().dump_to_file(variable, path) for variable in _variables("dump", dump_vars)])


def load(path: str, load_vars: Any, optimizer: Any = None) -> tf.Tensor:
    """Returns a tensor that loads the rows that `dump` wrote into the variables; its value is `b'OK'`.

    The number of ranks may differ from that of `dump`. If the files do not have exactly the keys of a
    `Variable`, running the tensor raises InvalidArgumentError, and the rows stay as they were.

    A directory with a file `meta_info`, or with files `NAME-key` and `NAME-weight`, was written by SOK 2.x.
    From there all variables are loaded, or none.

    Args:
      path: The directory.
      load_vars: An embedding variable, or a list or tuple of them, with the names that they had in `dump`.
      optimizer: None or gradient descent, which has no state. From a directory of SOK 2.x: the optimizer
        whose `apply_gradients` trains the variables in this graph, to load its slots too.

    Raises:
      TypeError, ValueError: As for `dump`; or an optimizer does not train a variable yet.
    """
    if isinstance(path, (str, os.PathLike)):
        description = own_files.sok2_description(path)
        if description is not None:
            return _load_sok2(description, _variables("load", load_vars), optimizer)
    _refuse_state("load", optimizer)
    return _all([Saver().restore_from_file(variable, path) for variable in _variables("load", load_vars)])


def _variables(function: str, variables: Any) -> list[EmbeddingVariable]:
    variables = list(variables) if isinstance(variables, (list, tuple)) else [variables]
    if not variables:
        raise ValueError(f"sok.experiment.{function} needs at least one variable")
    return variables


def _load_sok2(description: str, variables: list[EmbeddingVariable], optimizer: Any) -> tf.Tensor:
    """The same for a directory of SOK 2.x, which its description stands for."""
    optimizer = _with_state("load", optimizer)
    for variable in variables:
        if not isinstance(variable, EmbeddingVariable):
            raise TypeError(f"sok.experiment.load: not an embedding variable: {variable!r}")
        if optimizer is not None and not variable.trained_by:
            raise ValueError(
                f"sok.experiment.load: no optimizer trains embedding variable '{variable.m_var_name}' in "
                "this graph yet, and its slots are those of an optimizer: apply the gradients first"
            )
    tables = sorted(variables, key=lambda variable: variable.m_var_name)
    loaded = add_load_ops(
        tables,
        description,
        [table.m_var_name for table in tables],
        optimizers=optimizer is not None,
        counts=False,
        trained_by=[table.trained_by for table in tables],
    )
    return _all([loaded])


def _refuse_state(function: str, optimizer: Any) -> None:
    with_state = _with_state(function, optimizer)
    if with_state is not None:
        raise ValueError(
            f"sok.experiment.{function}: the files hold rows, not the state of {type(with_state).__name__}. "
            "tf.compat.v1.train.Saver saves and restores tables together with their optimizer's state"
        )


def _with_state(function: str, optimizer: Any) -> Any:
    """Returns the optimizer of an argument; None if it has no state."""
    if isinstance(optimizer, (list, tuple)):
        if len(optimizer) > 1:
            raise ValueError(f"sok.experiment.{function} takes one optimizer, not {len(optimizer)}")
        optimizer = optimizer[0] if optimizer else None
    if isinstance(optimizer, OptimizerWrapper):
        optimizer = optimizer.inner_optimizer
    return None if isinstance(optimizer, tf.compat.v1.train.GradientDescentOptimizer) else optimizer


def _all(statuses: list[tf.Tensor]) -> tf.Tensor:
    with tf.control_dependencies(statuses):
        return tf.constant(b"OK")
