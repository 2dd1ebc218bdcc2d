"""Lookups in several variables at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from sparse_operation_kit.lookup.embedding_lookup import (
    group_embedding_lookup,
    group_embedding_lookup_sparse,
)


# AutoGraph of TensorFlow 1.15 cannot convert the comprehensions of the functions that are called from here.
@tf.autograph.experimental.do_not_convert
def lookup_sparse(
    params: Any,
    sp_ids: Any,
    sp_weights: Any = None,
    combiners: str | Sequence[str] | None = None,
) -> tf.Tensor | list[tf.Tensor]:
    """Looks up bags of ids in variables, and combines the rows of each bag. All lookups share one exchange.

    It is `sok.group_embedding_lookup_sparse` with the original SOK's arguments.

    Args:
      params: A variable, or a list or tuple of them: variables of this module, embedding variables, or
        TensorFlow variables.
      sp_ids: For each variable a SparseTensor or a RaggedTensor of ids, `[batch, any]`.
      sp_weights: None, or for each variable a tensor of the same kind as its ids, with one weight per id.
      combiners: "sum", "mean" or "sqrtn" for each variable; None means "mean" for all.

    Returns:
      A tensor `[batch, columns]`, or a list of them if `sp_ids` is a list or a tuple.

    Raises:
      TypeError, ValueError: As for `sok.group_embedding_lookup_sparse`.
    """
    tables = _a_list(params)
    combiners = ["mean"] * len(tables) if combiners is None else _a_list(combiners)
    weights = None if sp_weights is None else _a_list(sp_weights)
    if weights is not None and any(isinstance(one, (str, int, float)) for one in weights):
        raise TypeError(
            f"lookup_sparse: sp_weights must be SparseTensors or RaggedTensors, not {weights}; pass "
            "combiners as combiners=[...]; no hotness is needed"
        )
    outputs = group_embedding_lookup_sparse(
        tables, _a_list(sp_ids), combiners, sp_weights=weights, name="lookup_sparse"
    )
    return outputs if isinstance(sp_ids, (list, tuple)) else outputs[0]


@tf.autograph.experimental.do_not_convert
def all2all_dense_embedding(param: tf.Variable, indices: Any) -> tf.Tensor:
    """Returns the row of each id; the output has the shape of `indices` and one more dimension.

    Args:
      param: A variable of this module, or an embedding variable.
      indices: Ids of any shape.

    Raises:
      TypeError: The ids are not integers, or `param` is not a variable.
    """
    return group_embedding_lookup([param], [indices], name="all2all_dense_embedding")[0]


def _a_list(value: Any) -> list:
    return list(value) if isinstance(value, (list, tuple)) else [value]
