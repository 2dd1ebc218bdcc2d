"""What one data set gives a model: the names and shapes of its features.

A batch is a dictionary of dense tensors, so that `tf.data` can cut and join batches without looking inside:

    label              float32 [batch]              1 for a click (or its like), 0 otherwise
    dense              float32 [batch, len(dense)]  numbers, scaled to the order of 1
    one_hot            int64   [batch, len(one_hot)]            exactly one id per slot
    multi_hot          int64   [batch, len(multi_hot), max_nnz] ids, padded
    multi_hot_present  bool    [batch, len(multi_hot), max_nnz] which of those ids are real

The last two are absent where there are no multi-hot slots.

Ids are 64-bit hashes of "field=value" (see `ctr.parsing.field_ids`), so that all the slots of a data set can
share one table and one exchange.
"""

from __future__ import annotations

import dataclasses
from typing import Any

Batch = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Schema:
    """Features of a data set, in the order in which they stand in the tensors of a batch."""

    dense: tuple[str, ...]
    one_hot: tuple[str, ...]
    multi_hot: tuple[str, ...] = ()
    max_nnz: int = 0
    # Pairs of one-hot features whose combination the wide part of wide-and-deep gives a weight of its own.
    crosses: tuple[tuple[str, str], ...] = ()

    @property
    def num_slots(self) -> int:
        """Slots that an embedding table serves, one-hot first."""
        return len(self.one_hot) + len(self.multi_hot)
