"""Inspects, checks, compares and exports checkpoints of embedding tables without a session.

The command line is `python -m sparse_operation_kit.checkpoint --help`. docs/checkpoint-format.md describes
the format. TensorFlow is imported only to read TensorFlow's part of a checkpoint and to write a SavedModel.
"""

from sparse_operation_kit.checkpoint.compaction import compact
from sparse_operation_kit.checkpoint.diff import TableDifference, compare
from sparse_operation_kit.checkpoint.errors import CheckpointError
from sparse_operation_kit.checkpoint.exporting import export
from sparse_operation_kit.checkpoint.format import Table
from sparse_operation_kit.checkpoint.locate import Checkpoint, TableEntry, open_checkpoint
from sparse_operation_kit.checkpoint.rehashing import Rehashed, rehash
from sparse_operation_kit.checkpoint.rows import RowBlock, find_row, row_blocks, waiting_ids
from sparse_operation_kit.checkpoint.verify import problems

__all__ = [
    "Checkpoint",
    "CheckpointError",
    "Rehashed",
    "RowBlock",
    "Table",
    "TableDifference",
    "TableEntry",
    "compact",
    "compare",
    "export",
    "find_row",
    "open_checkpoint",
    "problems",
    "rehash",
    "row_blocks",
    "waiting_ids",
]
