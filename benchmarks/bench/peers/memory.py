"""Which tables fit into memory at the same time."""

from __future__ import annotations

from collections.abc import Sequence

from bench import machine
from bench.axes import BYTES_PER_FLOAT, Tables

# What a library takes for each byte of rows and slots: indexes, free places, buffers that tables were filled
# from. tfra took 2.1, TensorFlow and ours 1.6 with 640 MB of rows.
_OVER_RECORDS = 1.6
_PROCESS_BYTES = 0.4e9  # an interpreter with its libraries
_OWN_BYTES = 1.2e9  # of the program that asks: arrays that are copied, ids in the making


def library_bytes(tables: Tables, batch: int) -> float:
    """What one library's process is expected to take, with `batch` bags of a feature in a step."""
    records = tables.features * tables.rows_per_table * tables.record_floats * BYTES_PER_FLOAT
    outputs = tables.features * batch * tables.dim * BYTES_PER_FLOAT
    # Outputs, their gradients, and both once more where a library joins or splits those of all features.
    return _OVER_RECORDS * records + 4 * outputs + _PROCESS_BYTES


def free_bytes(tables: Tables) -> float:
    """What is left of memory for the libraries' processes."""
    return machine.available_bytes() - _OWN_BYTES - tables.bytes  # the bare gather's rows


def groups_that_fit(
    peers: Sequence[str], bytes_of_one: float, available: float
) -> tuple[list[list[str]], list[str]]:
    """Splits the peers into groups, each of which fits beside our own tables.

    Args:
      peers: Names.
      bytes_of_one: What one library's tables take; ours take as much.
      available: Bytes that are free.

    Returns:
      The groups, at least one even where it is empty, and the peers that do not fit beside ours.
    """
    beside_ours = int(min(available / bytes_of_one, len(peers) + 1)) - 1
    if not peers or beside_ours < 1:
        return [[]], list(peers)
    groups = [list(peers[begin : begin + beside_ours]) for begin in range(0, len(peers), beside_ours)]
    return groups, []
