"""Lookups of several variables at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from sparse_operation_kit.lookup.embedding_lookup import (
    group_embedding_lookup,
    group_embedding_lookup_sparse,
)


def lookup_sparse(
    params: Any,
    sp_ids: Any,
    sp_weights: Any = None,
    combiners: str | Sequence[str] | None = None,
) -> tf.Tensor | list[tf.Tensor]:
    """Looks up bags of ids in variables, and combines the rows of each bag: one exchange for all of them.

    It is `sok.group_embedding_lookup_sparse` with the original's arguments.

    Args:
      params: A variable, or a list or tuple of them: of this module, embedding variables, or TensorFlow's.
      sp_ids: For each a SparseTensor or a RaggedTensor of ids, `[batch, any]`.
      sp_weights: None, or for each what has a weight for each of its ids, of its ids' kind.
      combiners: "sum", "mean" or "sqrtn" for each; None: "mean" for all.

    Returns:
      `[batch, columns]`, a list of them where `sp_ids` is a list or a tuple.

    Raises:
      TypeError, ValueError: As of `sok.group_embedding_lookup_sparse`.
    """
    tables = _a_list(params)
    combiners = ["mean"] * len(tables) if combiners is None else _a_list(combiners)
    weights = None if sp_weights is None else _a_list(sp_weights)
    if weights is not None and any(isinstance(one, (str, int, float)) for one in weights):
        raise TypeError(
            f"lookup_sparse: sp_weights must be SparseTensors or RaggedTensors, not {weights}; combiners are "
            "given as combiners=[...], and no hotness is needed"
        )
    outputs = group_embedding_lookup_sparse(
        tables, _a_list(sp_ids), combiners, sp_weights=weights, name="lookup_sparse"
    )
    return outputs if isinstance(sp_ids, (list, tuple)) else outputs[0]


def all2all_dense_embedding(param: tf.Variable, indices: Any) -> tf.Tensor:
    """Returns the row of each id: the shape of `indices` and one more dimension.

    Args:
      param: A variable of this module, or an embedding variable.
      indices: Ids of any shape.

    Raises:
      TypeError: They are no integers, or `param` is no variable.
    """
    return group_embedding_lookup([param], [indices], name="all2all_dense_embedding")[0]


def _a_list(value: Any) -> list:
    return list(value) if isinstance(value, (list, tuple)) else [value]
