"""Functions of TensorFlow that take variables and cannot take a table: their errors name it."""

from __future__ import annotations

import tensorflow as tf

from sparse_operation_kit.changes import replacements
from sparse_operation_kit.tables import table_parts
from sparse_operation_kit.tables.embedding_variable import is_embedding_variable


@replacements.wraps("tensorflow.python.ops.embedding_ops._embedding_lookup_and_transform")
def _without_lists_of_tables(original, params, *args, **kwargs):
    params = table_parts.joined(params)
    parts = tf.nest.flatten(params) if isinstance(params, (list, tuple)) else [params]
    tables = [part.m_var_name for part in parts if is_embedding_variable(part)]
    if tables and len(parts) > 1:
        names = ", ".join(f"'{name}'" for name in tables)
        raise TypeError(
            f"Embedding variable {names} cannot be looked up in a list of {len(parts)} variables, which "
            "are the parts of a partitioned variable: one EmbeddingVariable holds the rows of all keys, "
            "and divides them among ranks. Look it up alone, or several features, each in its own table, "
            "with sok.group_embedding_lookup"
        )
    return original(params, *args, **kwargs)


@replacements.wraps("tf.compat.v1.count_up_to")
def _without_tables(original, ref, limit, name=None):
    return ref.count_up_to(limit) if is_embedding_variable(ref) else original(ref, limit, name)


@replacements.wraps("tf.train.ExponentialMovingAverage.average_name")
def _own_name_of_tables(original, self, var):
    return var.m_var_name if is_embedding_variable(var) else original(self, var)
