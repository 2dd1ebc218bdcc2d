"""Keeps `max_to_keep` over restarts, and from removing what another process saved under the same name.

A Saver takes over the checkpoints that Savers of its kind left in earlier sessions: an incremental one those
of the name that it saves to, any other one if it was told of earlier checkpoints, as sessions with a
`checkpoint_dir` do with `Saver.recover_last_checkpoints`. `saver_marks.py` says which these are; the state
file has only the list of the Saver that saved last.

TensorFlow's Saver removes the files of its old checkpoints by name. If another process has saved under such a
name, that would remove the other's checkpoint, or half of it. For checkpoints with tables, files are
therefore removed only under the lock of their prefix, and not if they were written again after this Saver
wrote them or took them over.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tensorflow as tf

from sparse_operation_kit.checkpoint import own_files, prefix_lock, table_files
from sparse_operation_kit.checkpoint.errors import CheckpointError
from sparse_operation_kit.checkpoint.printable import printable
from sparse_operation_kit.checkpoint.references import read_references
from sparse_operation_kit.checkpoint.table_files import FOLDER_SUFFIX
from sparse_operation_kit.saver import retention, saver_marks

_log = logging.getLogger(__name__)


class _Known:
    """What is known of a Saver that saves tables.

    Attributes:
      graph: A weak reference to its graph.
      identities: The identity of the `.index` file that it wrote or took over, by prefix.
      stems: The prefixes without a step whose checkpoints it has taken over.
      unclear: Prefixes about which the file system did not answer. They stay, and the next save asks again.
    """

    def __init__(self, graph: tf.Graph) -> None:
        self.graph = weakref.ref(graph)
        self.identities: dict[str, tuple[int, int] | None] = {}
        self.stems: set[str] = set()
        self.unclear: set[str] = set()


_savers: weakref.WeakKeyDictionary[tf.compat.v1.train.Saver, _Known] = weakref.WeakKeyDictionary()


def take_over(
    saver: tf.compat.v1.train.Saver, graph: tf.Graph, prefix: str, numbered: bool, kind: str
) -> None:
    """Before a save: makes the Saver count what earlier sessions left. Removes nothing yet.

    Args:
      saver: The Saver, which has `max_to_keep`.
      graph: Its graph.
      prefix: The prefix to save to.
      numbered: Whether TensorFlow has added the step to the prefix.
      kind: The Saver's kind, `saver_marks.FULL` or `INCREMENTAL`.
    """
    known = _savers.setdefault(saver, _Known(graph))
    again = [one for one in saver._checkpoints_to_be_deleted if one[0] in known.unclear]
    for one in again:
        saver._checkpoints_to_be_deleted.remove(one)
    told = bool(again) or any(path not in known.identities for path in saver.last_checkpoints)
    stem = _stem_of(saver, prefix, numbered)
    first = kind == saver_marks.INCREMENTAL and stem is not None and stem not in known.stems
    if not told and not first:
        return
    left = _left_by_others(saver, stem, kind)
    if stem is not None:
        known.stems.add(stem)
    counted = []
    known.unclear.clear()
    for path, time in [*again, *map(tuple, saver._last_checkpoints), *((path, 0.0) for path in left)]:
        if path in known.identities:
            counted.append((path, time))
            continue
        try:
            identity = _identity(path) if saver_marks.kind_of(path) in (None, kind) else None
        except OSError as error:
            _note_unclear(known, path, error)
            counted.append((path, time))
            continue
        if identity is not None and _is_readable(path):
            known.identities[path] = identity
            counted.append((path, identity[1] / 1e9))
    counted.sort(key=lambda one: (one[0] == prefix, one[1]))
    # At each save, TensorFlow removes one checkpoint at most.
    excess = max(0, len(counted) - saver.saver_def.max_to_keep)
    saver._checkpoints_to_be_deleted.extend(counted[:excess])
    saver.set_last_checkpoints_with_time(counted[excess:])


def _note_unclear(known: _Known | None, prefix: str, error: OSError) -> None:
    if known is not None:
        known.unclear.add(prefix)
    _log.warning("%s", printable(f"Old checkpoint {prefix} stays until the next save: {error}"))


def _stem_of(saver: tf.compat.v1.train.Saver, prefix: str, numbered: bool) -> str | None:
    """Returns the prefix without its step; None if its number may be a part of the name.

    Without `global_step`, "job-1" and "job-2" may be names of two jobs. They are of one if a Saver has both.
    """
    stem = _without_number(prefix)
    others = [path for path in saver.last_checkpoints if path != prefix]
    if stem == prefix or not (numbered or stem in map(_without_number, others)):
        return None
    return stem


def _without_number(prefix: str) -> str:
    return re.sub(r"-\d+$", "", prefix)


def _left_by_others(saver: tf.compat.v1.train.Saver, stem: str | None, kind: str) -> list[str]:
    """Returns marked checkpoints that neither this Saver nor another one of its graph counts."""
    if stem is None:
        return []
    graph = _savers[saver].graph()
    counted = {_absolute(path) for path in saver.last_checkpoints}
    for known in _savers.values():
        if known.graph() is graph:
            counted |= {_absolute(path) for path in known.identities}
    try:
        return [path for path in saver_marks.marked(stem, kind) if _absolute(path) not in counted]
    except OSError as error:
        _log.warning("%s", printable(f"Old checkpoints beside {stem} are not removed: {error}"))
        return []


def _absolute(prefix: str) -> str:
    return os.path.join(os.path.realpath(os.path.dirname(prefix)), os.path.basename(prefix))


def _is_readable(prefix: str) -> bool:
    try:
        read_references(Path(prefix))
    except CheckpointError as error:
        _log.warning("%s", printable(f"{prefix} is not removed: {error}"))
        return False
    return True


def note(saver: tf.compat.v1.train.Saver, graph: tf.Graph, prefix: str) -> None:
    """Records that the Saver wrote the checkpoint at `prefix`. The caller holds the prefix's lock."""
    known = _savers.setdefault(saver, _Known(graph)).identities
    try:
        known[prefix] = _identity(prefix)
    except OSError:
        known.pop(prefix, None)  # The next save asks again.
    pending = {path for path, _ in saver._checkpoints_to_be_deleted}
    for path in set(known) - set(saver.last_checkpoints) - pending - {prefix}:
        del known[path]


def remove(original: Callable, saver: tf.compat.v1.train.Saver, *args: Any, **kwargs: Any) -> None:
    """Replaces `Saver._MaybeDeleteOldCheckpoints`, which is `original`, and which removes one checkpoint."""
    pending = saver._checkpoints_to_be_deleted
    with_tables = [path for path, _ in pending if _has_tables(path)]
    for _ in range(max(1, len(pending))):
        if pending and pending[0][0] in with_tables:
            _remove_first(original, saver, *args, **kwargs)
        else:
            original(saver, *args, **kwargs)
    if with_tables and saver not in _savers:
        # The graph has no tables any more. Otherwise the save removes them.
        retention.collect(saver.last_checkpoints[-1], with_tables)


def _remove_first(original: Callable, saver: tf.compat.v1.train.Saver, *args: Any, **kwargs: Any) -> None:
    pending = saver._checkpoints_to_be_deleted
    prefix = pending[0][0]
    known = _savers.get(saver)
    if known is not None and prefix in known.unclear:
        pending.append(pending.pop(0))
        return
    try:
        with prefix_lock.try_acquire(prefix) or contextlib.nullcontext() as lock:
            identity = _identity(prefix)
            # Without the lock, another process is saving there.
            if lock is None or (known is not None and known.identities.get(prefix, identity) != identity):
                pending.pop(0)
                return
            original(saver, *args, **kwargs)
            saver_marks.end(prefix, None)
    except OSError as error:
        # A save must not fail because of an old checkpoint.
        _note_unclear(known, prefix, error)
        if pending and pending[0][0] == prefix:
            pending.append(pending.pop(0))


def _has_tables(prefix: str) -> bool:
    try:
        if own_files.is_there(f"{prefix}{FOLDER_SUFFIX}") or saver_marks.kind_of(prefix) is not None:
            return True
        return bool(table_files.places_of(Path(prefix)))
    except OSError:
        return True


def _identity(prefix: str) -> tuple[int, int] | None:
    """Returns what tells an index from another one at its path; None if there is none. Raises OSError."""
    try:
        facts = os.stat(f"{prefix}.index")
    except (FileNotFoundError, NotADirectoryError):
        return None
    return facts.st_ino, facts.st_mtime_ns
