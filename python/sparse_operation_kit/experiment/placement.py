"""The `mode` of variables: which rank their rows are on."""

from __future__ import annotations

from sparse_operation_kit.core.communicator import communicator

# The target of rows that lie on all ranks.
ALL_RANKS = -1


def target_of(mode: str | None) -> int:
    """Returns the rank of `mode` "localized:<rank>", or ALL_RANKS for None and "distributed".

    Raises:
      ValueError: Another mode, or a rank that is not there.
    """
    if mode is None or mode == "distributed":
        return ALL_RANKS
    kind, _, rank = str(mode).partition(":")
    if kind != "localized" or not rank.isdigit():
        raise ValueError(f"mode must be 'distributed' or 'localized:<rank>', not {mode!r}")
    return checked_rank(int(rank))


def placement_of(target: int) -> str:
    """Returns the placement, as the engine writes it, of rows with such a target."""
    return "by_key" if target == ALL_RANKS else f"one_rank:{target}"


def checked_rank(rank: int) -> int:
    """Returns `rank`, or raises ValueError where there is none of that number."""
    size = communicator().size
    if not 0 <= rank < size:
        raise ValueError(f"A variable cannot be put on rank {rank}: there are {size} ranks, from 0 on")
    return rank
