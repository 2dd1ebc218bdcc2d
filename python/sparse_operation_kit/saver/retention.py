"""Removes tables that no checkpoint refers to, and what killed saves have left.

TensorFlow removes its own files of old checkpoints, but not the tables beside them. A killed save leaves
tables that no checkpoint refers to, and files of TensorFlow. A running save has such files too, but it holds
the lock of its prefix (`checkpoint/prefix_lock.py`), and nothing is removed at a locked prefix.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from sparse_operation_kit.checkpoint import own_files, prefix_lock, table_files
from sparse_operation_kit.checkpoint.paths import path_problem
from sparse_operation_kit.checkpoint.printable import printable
from sparse_operation_kit.checkpoint.table_files import FOLDER_SUFFIX
from sparse_operation_kit.saver import saver_marks
from sparse_operation_kit.saver.needed_tables import NeededTables

_INDEX = ".index"

_log = logging.getLogger(__name__)


def collect(
    prefix: str, removed: Iterable[str] = (), kept: Iterable[str] = (), held: Iterable[str] = ()
) -> None:
    """Removes tables at and beside `prefix` and `removed` that no checkpoint needs.

    The family of a prefix is the same name with other step numbers. For `prefix` and each of `removed`, these
    tables are candidates: its own; those of its family whose checkpoint no longer exists; and those of its
    family whose save was killed. TensorFlow's part of a killed save goes too if a mark tells whose it is.

    Tables are kept if an `.index` file refers to them, directly or through the chain of an incremental
    checkpoint; if an unreadable checkpoint may need them; or if another process holds the lock of their
    prefix. Errors are only logged as warnings; nothing is removed if a question about a file fails.

    Args:
      prefix: The prefix of the checkpoint that was just saved, or whose save has failed.
      removed: Prefixes of checkpoints that TensorFlow has removed, in any directory.
      kept: Prefixes of existing checkpoints, whose chains may refer to tables in those directories.
      held: The paths of the locks that the caller holds.
    """
    # Before Python 3.8, os.path raises errors for paths that cannot exist.
    if path_problem(prefix):
        return
    removed, kept = ([path for path in paths if not path_problem(path)] for paths in (removed, kept))
    try:
        _collect(prefix, removed, kept, {os.path.abspath(path) for path in held})
    except OSError as error:
        _log.warning("%s", printable(f"Old tables beside {prefix} are not removed: {error}"))


def chains_of(directory: str) -> str:
    """Returns the path whose lock protects all chains of incremental checkpoints in a directory.

    Incremental saves and removals of tables hold it, so that no table is removed while a save adds to its
    chain.
    """
    return os.path.join(directory, ".incremental")


def _collect(prefix: str, removed: Sequence[str], kept: Sequence[str], held: set[str]) -> None:
    with contextlib.ExitStack() as locks:

        def lock(path: str) -> bool:
            if os.path.abspath(path) in held:
                return True
            try:
                got = prefix_lock.try_acquire(path)
            except OSError as error:
                _log.warning("%s", printable(f"Old tables at {path} are not removed: {error}"))
                return False
            if got is not None:
                locks.enter_context(got)
            return got is not None

        free = [one for one in _candidates(prefix, removed) if lock(one)]
        # The names are read only after the locks are held, when no other save can change them.
        tables = {one: table_files.places_of(Path(one)) for one in free}
        needed = NeededTables()
        if own_files.is_there(f"{prefix}{_INDEX}"):
            needed.add(prefix)
        if not any(_is_left(one, found, needed) for one, found in tables.items()):
            return
        directories = sorted({_directory(one) for one in [prefix, *removed, *kept]})
        directories = [directory for directory in directories if own_files.is_folder(directory)]
        if not all(lock(chains_of(directory)) for directory in directories):
            return
        for directory in directories:
            for entry in os.listdir(directory):
                base = entry[: -len(_INDEX)]
                if entry.endswith(_INDEX) and os.path.join(directory, base) != _normal(prefix):
                    needed.add(os.path.join(directory, base))
        for one, found in tables.items():
            _remove_all_but(needed, one, found)
            if _is_killed(one):
                _remove_tensorflows(one)


def _normal(prefix: str) -> str:
    return os.path.join(_directory(prefix), os.path.basename(prefix))


def _directory(prefix: str) -> str:
    return os.path.dirname(prefix) or "."


def _candidates(prefix: str, removed: Sequence[str]) -> list[str]:
    """Returns the prefixes whose tables may be removed."""
    found = []
    for directory in sorted({_directory(path) for path in [prefix, *removed]}):
        if not own_files.is_folder(directory):
            continue
        here = [os.path.basename(path) for path in [prefix, *removed] if _directory(path) == directory]
        families = [re.compile(re.escape(re.sub(r"-\d+$", "", name)) + r"(-\d+)?") for name in here]
        entries = set(os.listdir(directory))
        suffixed = [entry for entry in entries if entry.endswith(FOLDER_SUFFIX)]
        folders = {_base(one, FOLDER_SUFFIX) for one in suffixed if _is_own(os.path.join(directory, one))}
        killed = {_base(entry, prefix_lock.SUFFIX) for entry in entries}
        of_tables = table_files.bases_in(entries) | saver_marks.bases_in(entries)
        for base in sorted((of_tables | folders | killed) - {""}):
            if base not in here and not any(family.fullmatch(base) for family in families):
                continue
            saved = directory == _directory(prefix) and base == os.path.basename(prefix)
            if saved or base in killed or not _exists(base, entries):
                found.append(os.path.join(directory, base))
    return found


def _base(entry: str, suffix: str) -> str:
    """Returns the name without the suffix; "" if it does not have that suffix."""
    return entry[: -len(suffix)] if entry.endswith(suffix) else ""


def _is_own(path: str) -> bool:
    """Returns whether the path may be a checkpoint's folder, or a link in place of one."""
    return os.path.islink(path) or own_files.is_folder(path)


def _is_left(prefix: str, tables: Sequence[Path], needed: NeededTables) -> bool:
    """Returns whether something may be removed at a prefix, given the needed tables known so far."""
    if _is_killed(prefix):
        return True
    if not tables:
        return own_files.is_there(prefix + FOLDER_SUFFIX)
    return not all(needed.has(table) for table in tables)


def _remove_all_but(needed: NeededTables, prefix: str, tables: Sequence[Path]) -> None:
    """Removes the tables that no checkpoint needs, and then an old folder if it is empty or a link."""
    for table in tables:
        if not needed.has(table):
            table_files.remove(table)
    folder = prefix + FOLDER_SUFFIX
    if os.path.islink(folder):
        # If the checkpoint exists, the link is the user's. Reading the checkpoint reports the problem.
        if not _exists(os.path.basename(prefix), set(os.listdir(_directory(prefix)))):
            own_files.remove_tree(folder)
        return
    # The folder may hold other files, or may not exist.
    with contextlib.suppress(OSError):
        os.rmdir(folder)


def _is_killed(prefix: str) -> bool:
    """Returns whether a save or removal of a marked checkpoint was killed. The caller holds its lock.

    Raises OSError if the file system does not say.
    """
    if saver_marks.kind_of(prefix) is None:
        return False
    return not own_files.is_there(f"{prefix}{_INDEX}")


def _remove_tensorflows(prefix: str) -> None:
    """Removes TensorFlow's part of a checkpoint that is not complete, and then its mark."""
    directory, base = os.path.split(prefix)
    file = re.compile(re.escape(base) + r"(\.meta|\.data-\d{5}-of-\d{5}|_temp(_[0-9a-f]{32})?)")
    for entry in os.listdir(directory or "."):
        if file.fullmatch(entry):
            own_files.remove_tree(os.path.join(directory, entry))
    saver_marks.end(prefix, None)


def _exists(base: str, entries: set[str]) -> bool:
    """Returns whether a directory with these `entries` has a TensorFlow checkpoint called `base`."""
    if f"{base}.index" in entries or base in entries:
        return True
    return any(entry.startswith(f"{base}-00000-of-") for entry in entries)
