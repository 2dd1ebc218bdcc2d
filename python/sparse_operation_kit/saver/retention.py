"""Removes tables' folders that no checkpoint refers to any more.

TensorFlow removes its own files of old checkpoints and knows nothing of the folders beside them. A killed
save leaves folders that no checkpoint refers to. So does a save that is under way, but it holds the lock of
its prefix (`checkpoint/prefix_lock.py`), and nothing is removed at a prefix that is locked.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
from collections.abc import Iterable, Sequence

from sparse_operation_kit.checkpoint import own_files, prefix_lock
from sparse_operation_kit.checkpoint.format import UNFINISHED
from sparse_operation_kit.checkpoint.printable import printable
from sparse_operation_kit.saver.needed_tables import NeededTables

_SUFFIX = ".sok"
_INDEX = ".index"

_log = logging.getLogger(__name__)


def collect(
    prefix: str, removed: Iterable[str] = (), kept: Iterable[str] = (), held: Iterable[str] = ()
) -> None:
    """Removes what no checkpoint beside `prefix` and `removed` needs.

    It looks at the folder of `prefix` itself, at those of its family (the same name with other step numbers)
    whose checkpoint is gone, at those whose save was killed, and at `removed` and their families in the same
    way. Everything stays that an existing `.index` refers to, or the chain of an incremental checkpoint that
    one refers to; where one of these cannot be read, everything that it may need; and everything at a prefix
    whose lock another holds. Only a warning tells of errors.

    Args:
      prefix: Of the checkpoint that was just saved, or could not be.
      removed: Prefixes of checkpoints that TensorFlow has removed, in any directory.
      kept: Prefixes of checkpoints that are still there, whose chains may lead into those directories.
      held: What the caller holds of the prefixes' and directories' locks.
    """
    try:
        _collect(prefix, list(removed), list(kept), {os.path.abspath(path) for path in held})
    except OSError as error:
        _log.warning("%s", printable(f"Old tables beside {prefix} stay where they are: {error}"))


def chains_of(directory: str) -> str:
    """The prefix whose lock is that of all chains in a directory.

    An incremental save holds it, and so does who removes tables: what a chain is being added to stays.
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
                _log.warning("%s", printable(f"Old tables at {path} stay where they are: {error}"))
                return False
            if got is not None:
                locks.enter_context(got)
            return got is not None

        free = [one for one in _candidates(prefix, removed) if lock(one)]
        # What others saved until they gave up the locks is seen from here on.
        tables = {one: _tables(one) for one in free}
        needed = NeededTables()
        if os.path.exists(f"{prefix}{_INDEX}"):
            needed.add(prefix)
        if not any(_is_left(one, found, needed) for one, found in tables.items()):
            return
        directories = sorted({_directory(one) for one in [prefix, *removed, *kept]})
        directories = [directory for directory in directories if os.path.isdir(directory)]
        if not all(lock(chains_of(directory)) for directory in directories):
            return
        for directory in directories:
            for entry in os.listdir(directory):
                base = entry[: -len(_INDEX)]
                if entry.endswith(_INDEX) and os.path.join(directory, base) != _normal(prefix):
                    needed.add(os.path.join(directory, base))
        for one, found in tables.items():
            _remove_all_but(needed, one, found)


def _normal(prefix: str) -> str:
    return os.path.join(_directory(prefix), os.path.basename(prefix))


def _directory(prefix: str) -> str:
    return os.path.dirname(prefix) or "."


def _candidates(prefix: str, removed: Sequence[str]) -> list[str]:
    """The prefixes whose tables may be of no use any more."""
    found = []
    for directory in sorted({_directory(path) for path in [prefix, *removed]}):
        if not os.path.isdir(directory):
            continue
        here = [os.path.basename(path) for path in [prefix, *removed] if _directory(path) == directory]
        families = [re.compile(re.escape(re.sub(r"-\d+$", "", name)) + r"(-\d+)?") for name in here]
        entries = set(os.listdir(directory))
        folders = {_base(entry, _SUFFIX) for entry in entries if _is_own(os.path.join(directory, entry))}
        killed = {_base(entry, prefix_lock.SUFFIX) for entry in entries}
        for base in sorted((folders | killed) - {""}):
            if base not in here and not any(family.fullmatch(base) for family in families):
                continue
            saved = directory == _directory(prefix) and base == os.path.basename(prefix)
            if saved or base in killed or not _exists(base, entries):
                found.append(os.path.join(directory, base))
    return found


def _base(entry: str, suffix: str) -> str:
    """The name without the suffix; empty where it has another."""
    return entry[: -len(suffix)] if entry.endswith(suffix) else ""


def _is_own(path: str) -> bool:
    """Whether it is what may be a checkpoint's folder, or a link in the place of one."""
    return os.path.islink(path) or os.path.isdir(path)


def _tables(prefix: str) -> list[str]:
    """The tables' folders of a checkpoint, and whatever else is beside them. A link has none."""
    folder = prefix + _SUFFIX
    try:
        return [os.path.join(folder, name) for name in own_files.names(folder)]
    except FileNotFoundError:
        return []
    except OSError:
        if os.path.islink(folder):
            return []
        raise


def _is_left(prefix: str, tables: Sequence[str], needed: NeededTables) -> bool:
    """Whether something is there to be removed, as far as `needed` tells."""
    if not tables:
        return os.path.lexists(prefix + _SUFFIX)
    return not all(needed.has(table) for table in tables)


def _remove_all_but(needed: NeededTables, prefix: str, tables: Sequence[str]) -> None:
    """Removes those of the tables that nobody needs, and the folder that is left empty, or is a link."""
    folder = prefix + _SUFFIX
    if os.path.islink(folder):
        # Of a checkpoint that is there it is the user's; reading it says what is wrong with it.
        if not _exists(os.path.basename(prefix), set(os.listdir(_directory(prefix)))):
            own_files.remove_tree(folder)
        return
    for table in tables:
        if not needed.has(table):
            _remove_table(table)
    # Something else may have come into it, or nothing of it be there.
    with contextlib.suppress(OSError):
        os.rmdir(folder)


def _remove_table(table: str) -> None:
    # A process may be killed here, and half of a table must not have the name of a whole one.
    if not table.endswith(UNFINISHED):
        own_files.rename(table, os.path.basename(table) + UNFINISHED)
        table += UNFINISHED
    own_files.remove_tree(table)


def _exists(base: str, entries: set[str]) -> bool:
    """Whether the directory's `entries` hold a checkpoint of TensorFlow's called `base`."""
    if f"{base}.index" in entries or base in entries:
        return True
    return any(entry.startswith(f"{base}-00000-of-") for entry in entries)
