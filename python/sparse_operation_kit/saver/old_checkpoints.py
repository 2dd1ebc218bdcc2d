"""Keeps `max_to_keep` over restarts, and from removing what another process saved under the same name.

A Saver takes over the checkpoints that Savers of its kind left in earlier sessions: an incremental one those
of the name that it saves to, any other one if it was told of earlier checkpoints, as sessions with a
`checkpoint_dir` do with `Saver.recover_last_checkpoints`. Each checkpoint with tables says which kind of
Saver counts it; the state file has only the list of the Saver that saved last. One that says nothing is
nobody's: one that a Saver without `max_to_keep` saved, or that `keep_checkpoint_every_n_hours` keeps.

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
from collections.abc import Callable, Sequence

import tensorflow as tf

from sparse_operation_kit.checkpoint import own_files, prefix_lock, reader
from sparse_operation_kit.checkpoint.errors import CheckpointError
from sparse_operation_kit.checkpoint.printable import printable
from sparse_operation_kit.saver import retention

# The kinds of Savers.
FULL, INCREMENTAL = "full", "incremental"

_log = logging.getLogger(__name__)


class _Known:
    """What is known of a Saver that saves tables.

    Attributes:
      graph: A weak reference to its graph.
      identities: The identity of the `.index` file that it wrote or took over, by prefix.
      stems: The prefixes without a step whose checkpoints it has taken over.
      held: The paths of the locks that its current save holds.
    """

    def __init__(self, graph: tf.Graph) -> None:
        self.graph = weakref.ref(graph)
        self.identities: dict[str, tuple[int, int] | None] = {}
        self.stems: set[str] = set()
        self.held: list[str] = []


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
      kind: The Saver's kind, `FULL` or `INCREMENTAL`.
    """
    known = _savers.setdefault(saver, _Known(graph))
    told = any(path not in known.identities for path in saver.last_checkpoints)
    stem = _stem_of(saver, prefix, numbered)
    first = kind == INCREMENTAL and stem is not None and stem not in known.stems
    if not told and not first:
        return
    left = _left_by_others(saver, stem, kind)
    if stem is not None:
        known.stems.add(stem)
    counted = []
    for path, time in [*map(tuple, saver._last_checkpoints), *((path, 0.0) for path in left)]:
        if path in known.identities:
            counted.append((path, time))
        else:
            identity = _identity(path)
            if identity is not None and _is_counted_by(path, (None, kind)):
                known.identities[path] = identity
                counted.append((path, identity[1] / 1e9))
    counted.sort(key=lambda one: (one[0] == prefix, one[1]))
    # At each save, TensorFlow removes one checkpoint at most.
    excess = max(0, len(counted) - saver.saver_def.max_to_keep)
    saver._checkpoints_to_be_deleted.extend(counted[:excess])
    saver.set_last_checkpoints_with_time(counted[excess:])


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
    directory, base = os.path.split(stem)
    index = re.compile(re.escape(base) + r"-\d+" + re.escape(retention.INDEX))
    try:
        names = sorted(os.listdir(directory or "."))
    except OSError as error:
        _log.warning("%s", printable(f"Old checkpoints beside {stem} are not removed: {error}"))
        return []
    prefixes = [
        os.path.join(directory, name[: -len(retention.INDEX)]) for name in names if index.fullmatch(name)
    ]
    return [path for path in prefixes if _absolute(path) not in counted and _is_counted_by(path, (kind,))]


def _absolute(prefix: str) -> str:
    return os.path.join(os.path.realpath(os.path.dirname(prefix)), os.path.basename(prefix))


def _is_counted_by(prefix: str, kinds: Sequence[str | None]) -> bool:
    """Returns whether the checkpoint can be read, and one of these kinds of Savers counts it."""
    try:
        checkpoint = reader.open_saved(prefix)
    except CheckpointError as error:
        _log.warning("%s", printable(f"{prefix} is not removed: {error}"))
        return False
    if checkpoint is None:
        return False
    return (checkpoint.facts.counted_by if checkpoint.facts else None) in kinds


def note(saver: tf.compat.v1.train.Saver, graph: tf.Graph, prefix: str) -> None:
    """Records that the Saver wrote the checkpoint at `prefix`. The caller holds the prefix's lock."""
    known = _savers.setdefault(saver, _Known(graph)).identities
    known[prefix] = _identity(prefix)
    pending = {path for path, _ in saver._checkpoints_to_be_deleted}
    for path in set(known) - set(saver.last_checkpoints) - pending - {prefix}:
        del known[path]


def note_locks(saver: tf.compat.v1.train.Saver, graph: tf.Graph, held: list[str]) -> None:
    """Records the paths of the locks that the Saver's current save holds."""
    _savers.setdefault(saver, _Known(graph)).held = held


def remove(original: Callable, saver: tf.compat.v1.train.Saver, meta_graph_suffix: str = "meta") -> None:
    """Replaces `Saver._MaybeDeleteOldCheckpoints`, which is `original`, and which removes one checkpoint."""
    pending = saver._checkpoints_to_be_deleted
    for one in list(pending):
        if not _has_tables(one[0]):
            # It removes the first one.
            pending.remove(one)
            pending.insert(0, one)
            original(saver, meta_graph_suffix)
        elif _remove(saver, *one):
            pending.remove(one)
            if _identity(one[0]) is None:
                # A graph with another suffix than the one of most programs.
                with contextlib.suppress(OSError):
                    own_files.remove_tree(f"{one[0]}.{meta_graph_suffix}")


def _remove(saver: tf.compat.v1.train.Saver, prefix: str, time: float) -> bool:
    """Removes an old checkpoint with tables, or decides to keep it; returns False to try again later."""
    try:
        lock = prefix_lock.try_acquire(prefix)
    except OSError as error:
        # A save must not fail because of an old checkpoint.
        _log.warning("%s", printable(f"{prefix} is not removed: {error}"))
        return False
    if lock is None:
        return False  # Another process is saving there.
    known = _savers.get(saver)
    with lock:
        if known is not None and known.identities.get(prefix, _identity(prefix)) != _identity(prefix):
            return True  # Another process has saved there.
        if time > saver._next_checkpoint_time:
            saver._next_checkpoint_time += saver.saver_def.keep_checkpoint_every_n_hours * 3600
            return _keep(prefix)
        return retention.remove(prefix, saver.last_checkpoints, [prefix, *(known.held if known else ())])


def _keep(prefix: str) -> bool:
    try:
        reader.keep_checkpoint(prefix)
    except CheckpointError as error:
        _log.warning("%s", printable(f"{prefix} may be removed after a restart: {error}"))
    return True


def _has_tables(prefix: str) -> bool:
    """Returns whether the checkpoint has tables, or may have some."""
    try:
        checkpoint = reader.open_saved(prefix)
    except CheckpointError:
        return True
    return checkpoint is not None and checkpoint.facts is not None


def _identity(prefix: str) -> tuple[int, int] | None:
    try:
        facts = os.stat(f"{prefix}.index")
    except OSError:
        return None
    return facts.st_ino, facts.st_mtime_ns
