"""Removes old checkpoints, those on which no other builds any more, and what killed saves have left.

A checkpoint on which an incremental one builds stays after its Saver has removed it: its index gets another
name, and TensorFlow's part goes. A killed save or removal leaves files that no index names. A running save
has such files too, but it holds the lock of its prefix (`checkpoint/prefix_lock.py`), and nothing is removed
at a locked prefix. Nothing is removed either as long as a question cannot be answered.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
from collections.abc import Iterable

from sparse_operation_kit.checkpoint import own_files, prefix_lock, reader
from sparse_operation_kit.checkpoint.errors import CheckpointError
from sparse_operation_kit.checkpoint.paths import path_problem
from sparse_operation_kit.checkpoint.printable import printable

INDEX, RETIRED_INDEX = ".index", ".sok-index"
_OF_SAVE = re.compile(r"(?P<base>.+)\.sok(\.lock|-[0-9a-f]{16}\..+)", re.DOTALL)

_log = logging.getLogger(__name__)


def chains_of(directory: str) -> str:
    """Returns the path whose lock protects all chains of incremental checkpoints in a directory.

    Incremental saves and removals of checkpoints hold it, so that none is removed while a save adds to its
    chain.
    """
    return os.path.join(directory, ".incremental")


def remove(prefix: str, others: Iterable[str], held: Iterable[str]) -> bool:
    """Removes an old checkpoint, except for what others need. Errors are only logged as warnings.

    Args:
      prefix: Its prefix, whose lock the caller holds.
      others: Prefixes in other directories whose checkpoints may build on it.
      held: The paths of the locks that the caller holds.

    Returns:
      Whether it was removed.
    """
    directories = _directories([prefix, *others])
    try:
        with contextlib.ExitStack() as locks:
            if not all(_lock(locks, chains_of(directory), held) for directory in directories):
                return False
            needed = _needed(directories, but=prefix)
            reader.remove_checkpoint(prefix, needed=needed is None or _absolute(prefix) in needed)
    except (OSError, CheckpointError) as error:
        _log.warning("%s", printable(f"{prefix} is not removed: {error}"))
        return False
    return True


def clean(prefix: str, others: Iterable[str] = (), held: Iterable[str] = ()) -> None:
    """Removes leftovers at `prefix` and beside it. Errors are only logged as warnings.

    The family of a prefix is the same name with other step numbers. Of the whole family these go: what killed
    saves and removals have left, and checkpoints that were removed and on which no other builds any more.

    Args:
      prefix: The prefix of the checkpoint that was just saved, or whose save has failed.
      others: Prefixes in other directories whose checkpoints may build on those of the family.
      held: The paths of the locks that the caller holds.
    """
    # Before Python 3.8, os.path raises errors for paths that cannot exist.
    if path_problem(prefix):
        return
    others = [path for path in others if not path_problem(path)]
    held = {os.path.abspath(path) for path in held}
    try:
        names = os.listdir(os.path.dirname(prefix) or ".")
    except FileNotFoundError:
        return
    except OSError as error:
        _log.warning("%s", printable(f"Leftovers beside {prefix} are not removed: {error}"))
        return
    for one in _family(prefix, names):
        _at_one(one, one in _retired(prefix, names), _directories([prefix, *others]), held)


def _at_one(prefix: str, is_retired: bool, directories: list[str], held: set[str]) -> None:
    """Removes what is left at one prefix."""
    try:
        with contextlib.ExitStack() as locks:
            if not _lock(locks, prefix, held):
                return
            reader.remove_leftovers(prefix)
            if not is_retired or not all(_lock(locks, chains_of(one), held) for one in directories):
                return
            needed = _needed(directories, but=None)
            if needed is not None and _absolute(prefix) not in needed:
                reader.remove_retired(prefix)
    except (OSError, CheckpointError) as error:
        _log.warning("%s", printable(f"Leftovers at {prefix} are not removed: {error}"))


def _family(prefix: str, names: Iterable[str]) -> list[str]:
    """Returns `prefix`, and those of its family that have leftovers or were removed."""
    directory, base = os.path.split(prefix)
    family = re.compile(re.escape(re.sub(r"-\d+$", "", base)) + r"(-\d+)?")
    matches = (_OF_SAVE.fullmatch(name) for name in names)
    bases = {match["base"] for match in matches if match}
    bases |= {name[: -len(RETIRED_INDEX)] for name in names if name.endswith(RETIRED_INDEX)}
    return [
        prefix,
        *(os.path.join(directory, one) for one in sorted(bases - {base}) if family.fullmatch(one)),
    ]


def _retired(prefix: str, names: Iterable[str]) -> set[str]:
    """Returns the prefixes at which there was a checkpoint on which others may build."""
    directory = os.path.dirname(prefix)
    bases = {name[: -len(RETIRED_INDEX)] for name in names if name.endswith(RETIRED_INDEX)}
    return {os.path.join(directory, base) for base in bases}


def _needed(directories: Iterable[str], but: str | None) -> set[str] | None:
    """Returns the prefixes on which the checkpoints in some directories build; None if that is unknown."""
    needed: set[str] = set()
    for directory in directories:
        for name in os.listdir(directory):
            prefix = os.path.join(directory, name[: -len(INDEX)])
            if not name.endswith(INDEX) or (but is not None and _absolute(prefix) == _absolute(but)):
                continue
            try:
                checkpoint = reader.open_saved(prefix)
            except CheckpointError as error:
                _log.warning("%s", printable(f"What {prefix} may need is not removed: {error}"))
                return None
            if checkpoint is not None and checkpoint.facts is not None:
                needed |= {_absolute(os.path.join(directory, chain)) for chain in checkpoint.facts.chains}
    return needed


def _lock(locks: contextlib.ExitStack, path: str, held: Iterable[str]) -> bool:
    """Acquires a lock, unless it is held already; returns whether it is held now."""
    if os.path.abspath(path) in held:
        return True
    lock = prefix_lock.try_acquire(path)
    if lock is not None:
        locks.enter_context(lock)
    return lock is not None


def _directories(prefixes: Iterable[str]) -> list[str]:
    found = {os.path.dirname(prefix) or "." for prefix in prefixes}
    return sorted(directory for directory in found if own_files.is_folder(directory))


def _absolute(prefix: str) -> str:
    prefix = os.path.normpath(prefix)
    return os.path.join(os.path.realpath(os.path.dirname(prefix)), os.path.basename(prefix))
