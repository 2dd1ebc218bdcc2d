"""Reads checkpoints of embedding tables without a session: looks into them, checks, compares, exports.

`python -m sparse_operation_kit.checkpoint --help` is the command line, docs/checkpoint-format.md the format.
Only what reads TensorFlow's part of a checkpoint or writes a SavedModel imports TensorFlow.
"""

from sparse_operation_kit.checkpoint.compaction import compact
from sparse_operation_kit.checkpoint.diff import TableDifference, compare
from sparse_operation_kit.checkpoint.errors import CheckpointError
from sparse_operation_kit.checkpoint.exporting import export
from sparse_operation_kit.checkpoint.format import Table
from sparse_operation_kit.checkpoint.locate import Checkpoint, TableEntry, open_checkpoint
from sparse_operation_kit.checkpoint.rows import RowBlock, find_row, row_blocks, waiting_ids
from sparse_operation_kit.checkpoint.verify import problems

__all__ = [
    "Checkpoint",
    "CheckpointError",
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
    "row_blocks",
    "waiting_ids",
]
