"""The features of a data set: their names and shapes.

A batch is a dictionary of dense tensors, so that `tf.data` can split and join batches:

    label              float32 [batch]              1 for a click or similar, else 0
    dense              float32 [batch, len(dense)]  numbers, scaled to about 1
    one_hot            int64   [batch, len(one_hot)]            exactly one id per slot
    multi_hot          int64   [batch, len(multi_hot), max_nnz] ids, padded
    multi_hot_present  bool    [batch, len(multi_hot), max_nnz] which of those ids are real

The last two are absent if there are no multi-hot slots.

Ids are 64-bit hashes of "field=value" (see `ctr.parsing.field_ids`), so that all slots of a data set can
share one table and one exchange.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Dict

Batch = Dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Schema:
    """The features of a data set, in their order in the tensors of a batch."""

    dense: tuple[str, ...]
    one_hot: tuple[str, ...]
    multi_hot: tuple[str, ...] = ()
    max_nnz: int = 0
    # Pairs of one-hot features whose combinations have weights in the wide part of wide-and-deep.
    crosses: tuple[tuple[str, str], ...] = ()

    @property
    def num_slots(self) -> int:
        """The number of one-hot and multi-hot slots."""
        return len(self.one_hot) + len(self.multi_hot)
