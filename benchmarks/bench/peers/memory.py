"""Which tables fit into memory at the same time."""

from __future__ import annotations

from collections.abc import Sequence

# What a library takes beyond the rows and slots themselves: indexes, free places, the interpreter.
BYTES_OVER_ROWS = 1.25


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
