"""Inspects, checks, compares and exports checkpoints of embedding tables without a session.

The command line is `python -m sparse_operation_kit.checkpoint --help`. docs/checkpoint-format.md describes
the format. Nothing here but exports and compaction builds a graph.
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
