"""Decides which libraries' tables fit into memory at the same time."""

from __future__ import annotations

from collections.abc import Sequence

from bench import machine
from bench.axes import BYTES_PER_FLOAT, Tables

# Memory of a library per byte of rows and slots: it includes indexes, free slots, and buffers from which
# tables were filled. With 640 MB of rows, tfra took 2.1, TensorFlow and ours took 1.6.
_OVER_RECORDS = 1.6
_PROCESS_BYTES = 0.4e9  # an interpreter with its libraries
_OWN_BYTES = 1.2e9  # of this process: the arrays of the memory copy, and ids


def library_bytes(tables: Tables, batch: int) -> float:
    """The expected memory of one library's process, with `batch` bags per feature in a step."""
    records = tables.features * tables.rows_per_table * tables.record_floats * BYTES_PER_FLOAT
    outputs = tables.features * batch * tables.dim * BYTES_PER_FLOAT
    # Outputs and their gradients, and copies of both in libraries that join or split those of all features.
    return _OVER_RECORDS * records + 4 * outputs + _PROCESS_BYTES


def free_bytes(tables: Tables) -> float:
    """The memory that is left for the libraries' processes."""
    return machine.available_bytes() - _OWN_BYTES - tables.bytes  # the bare gather's rows


def groups_that_fit(
    peers: Sequence[str], bytes_of_one: float, available: float
) -> tuple[list[list[str]], list[str]]:
    """Splits the peers into groups that fit into memory together with our tables.

    Args:
      peers: The names of the peers.
      bytes_of_one: Memory of one library, the same for ours.
      available: Free memory in bytes.

    Returns:
      The groups, at least one, which may be empty; and the peers that do not fit.
    """
    beside_ours = int(min(available / bytes_of_one, len(peers) + 1)) - 1
    if not peers or beside_ours < 1:
        return [[]], list(peers)
    groups = [list(peers[begin : begin + beside_ours]) for begin in range(0, len(peers), beside_ours)]
    return groups, []
