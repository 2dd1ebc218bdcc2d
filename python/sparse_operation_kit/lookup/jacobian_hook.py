"""Has `tf.GradientTape.jacobian` refuse embedding variables, whose Jacobians TensorFlow wants dense."""

from __future__ import annotations

import functools
from collections.abc import Callable

import tensorflow as tf

from sparse_operation_kit.core.embedding_variable import EmbeddingVariable
from sparse_operation_kit.core.replacements import Replacements

_replaced = Replacements()


def install() -> None:
    """Wraps the method, in the whole process. Harmless when done already.

    Not thread-safe, as building graphs is not.
    """
    if not _replaced:
        _replaced.replace(tf.GradientTape, "jacobian", _refusing)


def uninstall() -> None:
    """Undoes `install`."""
    _replaced.undo()


def _refusing(original: Callable) -> Callable:
    @functools.wraps(original)
    def jacobian(self, target, sources, *args, **kwargs):
        for source in tf.nest.flatten(sources):
            if isinstance(source, EmbeddingVariable):
                raise TypeError(
                    f"There is no Jacobian with respect to embedding variable '{source.m_var_name}', as a "
                    "table has no dense form: take it with respect to the rows that a lookup gives"
                )
        return original(self, target, sources, *args, **kwargs)

    return jacobian
