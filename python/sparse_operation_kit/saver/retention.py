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
from collections.abc import Callable, Iterable, Sequence
from typing import Set, Tuple

from sparse_operation_kit.checkpoint import own_files, prefix_lock, reader
from sparse_operation_kit.checkpoint.errors import CheckpointError, UnansweredError, path_problem, printable

INDEX, RETIRED_INDEX = ".index", ".sok-index"
# See `own_files.place`.
_Places = Set[Tuple[int, int, str]]
_OF_SAVE = re.compile(r"(?P<base>.+)\.(sok(\.lock|-[0-9a-f]{16}\..+)|meta\.tmp[0-9a-f]{32})", re.DOTALL)

_log = logging.getLogger(__name__)
# Warnings about damaged checkpoints, each of which is logged once.
_logged: set[str] = set()


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
    try:
        with contextlib.ExitStack() as locks:
            directories = _lock_chains(locks, [prefix, *others], _places(held))
            if directories is None:
                return False
            needed = _Needed(directories, but=prefix).has(prefix, INDEX)
            reader.remove_checkpoint(prefix, needed=needed)
    except (OSError, CheckpointError) as error:
        _log.warning("%s", printable(f"{prefix} is not removed: {error}"))
        return False
    return True


def clean(prefix: str, others: Iterable[str], held: Iterable[str]) -> None:
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
    try:
        directory = os.path.dirname(prefix) or "."
        if not own_files.is_folder(directory):
            return
        locked = _places(held)
        names = own_files.names(directory)
        for one in [prefix, *_family(prefix, (_base_of_leftover(name) for name in names))]:
            _unless_locked(one, locked, reader.remove_leftovers)
        chains = chains_of(directory)
        # The lock of a removal, which runs or was killed.
        if os.path.basename(chains) + prefix_lock.SUFFIX in names:
            _unless_locked(chains, locked, reader.remove_leftovers)
        retired = _family(prefix, (_before(name, RETIRED_INDEX) for name in names), itself=True)
        if retired:
            _remove_retired(retired, [prefix, *others], locked)
    except OSError as error:
        _log.warning("%s", printable(f"Leftovers beside {prefix} are not removed: {error}"))


def _remove_retired(retired: Sequence[str], others: Sequence[str], held: _Places) -> None:
    """Removes those of the retired checkpoints on which no other builds any more."""
    with contextlib.ExitStack() as locks:
        directories = _lock_chains(locks, others, held)
        if directories is None:
            return
        needed = _Needed(directories)
        for one in retired:
            if not needed.has(one, RETIRED_INDEX):
                _unless_locked(one, held, reader.remove_retired)


def _unless_locked(prefix: str, held: _Places, work: Callable[[str], None]) -> None:
    """Calls work(prefix) under the lock of the prefix, unless another process holds it."""
    try:
        with contextlib.ExitStack() as locks:
            if _lock(locks, prefix, held):
                work(prefix)
    except (OSError, CheckpointError) as error:
        _log.warning("%s", printable(f"Leftovers at {prefix} are not removed: {error}"))


def _family(prefix: str, bases: Iterable[str | None], itself: bool = False) -> list[str]:
    """Returns the prefixes of those bases that belong to the family of `prefix`."""
    directory, base = os.path.split(prefix)
    family = re.compile(re.escape(re.sub(r"-\d+$", "", base)) + r"(-\d+)?")
    found = {one for one in bases if one is not None and family.fullmatch(one)}
    return [os.path.join(directory, one) for one in sorted(found) if itself or one != base]


def _base_of_leftover(name: str) -> str | None:
    match = _OF_SAVE.fullmatch(name)
    return match and match["base"]


def _before(name: str, suffix: str) -> str | None:
    return name[: -len(suffix)] if name.endswith(suffix) and name != suffix else None


class _Needed:
    """The checkpoints on which those in some directories build, as far as that is known.

    A damaged checkpoint may build on any that is older. If the file system does not answer, all are needed.
    """

    def __init__(self, directories: Iterable[str], but: str | None = None) -> None:
        """Reads all checkpoints in the directories, except for `but`. Raises OSError."""
        self._places: _Places = set()
        self._unclear_until = float("-inf")
        skipped = None if but is None else own_files.place(but)
        for directory in directories:
            for name in own_files.names(directory):
                base = _before(name, INDEX)
                if base is None or _base_of_leftover(name) is not None:
                    continue
                prefix = os.path.join(directory, base)
                if skipped is None or own_files.place(prefix) != skipped:
                    self._add(directory, prefix)

    def has(self, prefix: str, suffix: str) -> bool:
        """Returns whether one of them may build on the one with this index at `prefix`. Raises OSError."""
        if own_files.place(prefix) in self._places:
            return True
        if self._unclear_until == float("-inf"):
            return False
        index = own_files.facts(prefix + suffix)
        return index is not None and index.st_mtime <= self._unclear_until

    def _add(self, directory: str, prefix: str) -> None:
        try:
            checkpoint = reader.open_saved(prefix)
        except UnansweredError as error:
            self._unclear_until = float("inf")
            _log.warning("%s", printable(f"What {prefix} may need is not removed: {error}"))
            return
        except CheckpointError as error:
            self._add_damaged(prefix, str(error))
            return
        if checkpoint is None:
            self._add_damaged(prefix, "a link to nothing")
        elif checkpoint.facts is not None:
            self._places |= _places(os.path.join(directory, one) for one in checkpoint.facts.chains)

    def _add_damaged(self, prefix: str, reason: str) -> None:
        try:
            written = os.lstat(prefix + INDEX).st_mtime
        except FileNotFoundError:
            return  # Another process has removed it.
        self._unclear_until = max(self._unclear_until, written)
        if reason not in _logged:
            _logged.add(reason)
            _log.warning("%s", printable(f"What {prefix} may need is not removed: {reason}"))


def _lock_chains(locks: contextlib.ExitStack, prefixes: Iterable[str], held: _Places) -> list[str] | None:
    """Acquires the locks of all chains in the prefixes' directories; returns these, None if one is locked.

    Raises:
      OSError: The file system did not answer.
    """
    found: dict[tuple[int, int, str] | None, str] = {}
    for prefix in prefixes:
        directory = os.path.dirname(prefix) or "."
        if not path_problem(prefix) and own_files.is_folder(directory):
            found.setdefault(own_files.place(chains_of(directory)), directory)
    # In the same order everywhere.
    directories = sorted(found.values())
    return directories if all(_lock(locks, chains_of(one), held) for one in directories) else None


def _lock(locks: contextlib.ExitStack, path: str, held: _Places) -> bool:
    """Acquires a lock, unless it is among those that are held; returns whether it is held now."""
    if own_files.place(path) in held:
        return True
    lock = prefix_lock.try_acquire(path)
    if lock is not None:
        locks.enter_context(lock)
    return lock is not None


def _places(paths: Iterable[str]) -> _Places:
    found = (own_files.place(path) for path in paths)
    return {one for one in found if one is not None}
