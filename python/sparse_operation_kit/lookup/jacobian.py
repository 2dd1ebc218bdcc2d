"""Makes `tf.GradientTape.jacobian` refuse embedding variables, as TensorFlow makes Jacobians dense."""

from __future__ import annotations

import functools
from collections.abc import Callable

import tensorflow as tf

from sparse_operation_kit.changes import replacements
from sparse_operation_kit.tables.embedding_variable import is_embedding_variable


@replacements.implements("tf.GradientTape.jacobian")
def _refusing(original: Callable) -> Callable:
    @functools.wraps(original)
    def jacobian(self, target, sources, *args, **kwargs):
        for source in tf.nest.flatten(sources):
            if is_embedding_variable(source):
                raise TypeError(
                    f"There is no Jacobian with respect to embedding variable '{source.m_var_name}', as a "
                    "table has no dense form: take it with respect to the rows that a lookup returns"
                )
        return original(self, target, sources, *args, **kwargs)

    return jacobian
