"""Derived from a placement: the variables of each rank, and which of their rows an id reads.

Tables that are entirely in one variable of one rank form a unit. They are looked up together: their distinct
ids are sent together, and their rows come back as one matrix. A table that is sliced or replicated is a unit
of its own.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import re
from typing import Any

import tensorflow as tf

from sparse_operation_kit.dist_model_parallel.placement import Piece, Placement


@dataclasses.dataclass(frozen=True)
class Group:
    """A variable of a rank.

    Attributes:
      rows, columns: its shape.
      pieces: the parts of tables in it, by their first row.
      replicated: the number of the table that it is a replica of; None if its tables are sliced or
        distributed.
    """

    rows: int
    columns: int
    pieces: tuple[Piece, ...]
    replicated: int | None = None


@dataclasses.dataclass(frozen=True)
class Part:
    """The part of a unit that a rank has.

    Attributes:
      rank, group: the variable; `group` counts the rank's variables that are not replicas.
      rows, columns: [begin, end) of the unit's keys and columns.
      shift: a key plus this is a row of the variable.
    """

    rank: int
    group: int
    rows: tuple[int, int]
    columns: tuple[int, int]
    shift: int


@dataclasses.dataclass(frozen=True)
class Unit:
    """Tables that are looked up together. An id of table `tables[i]` has the key `id + bases[i]`.

    Attributes:
      tables, bases: the tables, and for each table the key of its id 0.
      columns: the columns of each table.
      combiner: the combiner of each table.
      cut: "whole", "columns", "rows" or "replicated".
      parts: where the rows are, in the order of keys and columns; none if every rank has a replica.
    """

    tables: tuple[int, ...]
    bases: tuple[int, ...]
    columns: int
    combiner: str | None
    cut: str
    parts: tuple[Part, ...]


@dataclasses.dataclass(frozen=True)
class Layout:
    """The variables and units of all ranks.

    Attributes:
      placement: where the tables are.
      replicas: the variables that every rank has, one for each replicated table.
      groups: for each rank, its other variables. A rank without a piece has a variable without rows, so that
        the gradient of a loss runs its exchange on every rank.
      units: first those of `replicas`, in that order.
    """

    placement: Placement
    replicas: tuple[Group, ...]
    groups: tuple[tuple[Group, ...], ...]
    units: tuple[Unit, ...]

    def parts_of(self, rank: int) -> list[list[tuple[int, int]]]:
        """For each of a rank's groups, its parts as (number of the unit, number of the part)."""
        parts: list[list[tuple[int, int]]] = [[] for _ in self.groups[rank]]
        for number, unit in enumerate(self.units):
            for position, part in enumerate(unit.parts):
                if part.rank == rank:
                    parts[part.group].append((number, position))
        return parts

    def fingerprint(self) -> int:
        """A number that differs between placements, to find ranks with other tables or options."""
        digest = hashlib.sha256(repr(self.placement).encode()).digest()
        return int.from_bytes(digest[:8], "little", signed=True)


def lay_out(placement: Placement) -> Layout:
    """Returns the layout of a placement."""
    tables = placement.tables
    replicas: list[Group] = []
    groups: list[tuple[Group, ...]] = []
    group_of: dict[tuple[int, int], int] = {}  # (rank, the placement's group) to the position in `groups`
    for rank in range(placement.ranks):
        own: list[Group] = []
        for number, members in itertools.groupby(placement.on_rank(rank), key=lambda piece: piece.group):
            group = _group(placement, tuple(members))
            if group.replicated is None:
                group_of[rank, number] = len(own)
                own.append(group)
            elif rank == 0:
                replicas.append(group)
        groups.append(tuple(own) or (Group(0, 1, ()),))
    units = [
        Unit((table,), (0,), tables[table].columns, tables[table].combiner, "replicated", ())
        for table in (group.replicated for group in replicas)
        if table is not None
    ]
    units += _units(placement, group_of)
    return Layout(placement, tuple(replicas), tuple(groups), tuple(units))


def _group(placement: Placement, pieces: tuple[Piece, ...]) -> Group:
    begin, end = pieces[0].columns
    rows = sum(piece.rows[1] - piece.rows[0] for piece in pieces)
    table = pieces[0].table
    return Group(rows, end - begin, pieces, table if table in placement.replicated else None)


def _units(placement: Placement, group_of: dict[tuple[int, int], int]) -> list[Unit]:
    of_tables: dict[int, list[Piece]] = {}
    for piece in placement.pieces:
        if piece.table not in placement.replicated:
            of_tables.setdefault(piece.table, []).append(piece)
    whole: dict[tuple[int, int], list[Piece]] = {}
    cut = []
    for number, pieces in sorted(of_tables.items()):
        table, first = placement.tables[number], pieces[0]
        if len(pieces) == 1 and number not in placement.row_sliced:
            whole.setdefault((first.rank, group_of[first.rank, first.group]), []).append(first)
            continue
        parts = tuple(
            Part(
                piece.rank,
                group_of[piece.rank, piece.group],
                piece.rows,
                piece.columns,
                piece.offset - piece.rows[0],
            )
            for piece in pieces
        )
        kind = "rows" if number in placement.row_sliced else "columns"
        cut.append(Unit((number,), (0,), table.columns, table.combiner, kind, parts))
    units = []
    for (rank, group), pieces in sorted(whole.items()):
        table = placement.tables[pieces[0].table]
        keys = (0, max(piece.offset + piece.rows[1] for piece in pieces))
        units.append(
            Unit(
                tuple(piece.table for piece in pieces),
                tuple(piece.offset for piece in pieces),
                table.columns,
                table.combiner,
                "whole",
                (Part(rank, group, keys, (0, table.columns), 0),),
            )
        )
    return units + cut


_OF_RANK = re.compile(r"tables_\d+_of_rank_\d+_of_\d+")


def cut_name(number: int, rank: int, ranks: int) -> str:
    """The name of a variable that only this rank has.

    The name contains the rank. Otherwise a checkpoint of another rank, or of another number of ranks, could
    be restored here, although its rows are different ones.
    """
    return f"tables_{number}_of_rank_{rank}_of_{ranks}"


def replica_name(group: Group) -> str:
    """The name of a replicated table's variable."""
    return f"table_{group.replicated}"


def is_cut(variable: Any) -> bool:
    """Whether only this rank has a variable: one of distributed or sliced tables, or a slot of one."""
    return isinstance(variable, tf.Variable) and _OF_RANK.search(variable.name) is not None
