"""The distinct ids of inputs, and what is wrong with them: one op for all tables."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import tensorflow as tf

from sparse_operation_kit import native
from sparse_operation_kit.dist_model_parallel.inputs import FlatIds


@dataclasses.dataclass(frozen=True)
class MergedIds:
    """The ids of inputs by unit: tables whose ids are merged into one set of keys.

    Attributes:
      distinct: for each unit int64, its distinct keys.
      places: for each unit int32, for all ids of its inputs, one input after another, where their key is.
      finding: int64 [3]: zeros, or 1, the position of the first input with an id that is not in its table,
        and that id.
    """

    distinct: list[tf.Tensor]
    places: list[tf.Tensor]
    finding: tf.Tensor


def merge_ids(flat: Sequence[FlatIds], unit_of: Sequence[int], bases: Sequence[int], units: int) -> MergedIds:
    """Merges ids.

    Args:
      flat: the inputs, at least one.
      unit_of: the unit of each.
      bases: the key of the id 0 of each.
      units: how many there are.
    """
    with tf.device("/device:CPU:0"):
        merged = native.ops.sok_merge_ids(
            ids=[ids.values for ids in flat],
            units=units,
            unit_of=list(unit_of),
            bases=list(bases),
            features=[len(ids.sizes) for ids in flat],
            sizes=[size for ids in flat for size in ids.sizes],
        )
    return MergedIds(list(merged.distinct), list(merged.places), merged.finding)
