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

import logging
import os
import re
import weakref
from collections.abc import Callable, Sequence
from typing import Tuple

import tensorflow as tf

from sparse_operation_kit.checkpoint import own_files, prefix_lock, reader
from sparse_operation_kit.checkpoint.errors import CheckpointError, UnansweredError, path_problem, printable
from sparse_operation_kit.saver import retention

# The kinds of Savers.
FULL, INCREMENTAL = "full", "incremental"
# What tells the index at a path from another one that was there: its inode and the time of its last change.
_Identity = Tuple[int, int]

_log = logging.getLogger(__name__)


class _Known:
    """What is known of a Saver that saves tables.

    Attributes:
      graph: A weak reference to its graph.
      identities: The identity of the `.index` file that it wrote or took over, by prefix.
      stems: The prefixes without a step whose checkpoints it has taken over.
      unclear: Prefixes about which the file system did not answer, and those of failed saves, which may be
        complete, with their time and the kinds of Savers that may count them. They stay, and the next save
        asks.
      unlisted: Whether the file system did not list a directory. The next save asks again.
      held: The paths of the locks that its current save holds.
      others: A prefix in each other directory that the graph's Savers use.
    """

    def __init__(self, graph: tf.Graph) -> None:
        self.graph = weakref.ref(graph)
        self.identities: dict[str, _Identity] = {}
        self.stems: set[str] = set()
        self.unclear: dict[str, tuple[float, Sequence[str | None]]] = {}
        self.unlisted = False
        self.held: Sequence[str] = ()
        self.others: Sequence[str] = ()


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
    seen = known.identities.keys() | known.unclear.keys()
    told = known.unlisted or any(path not in seen for path in saver.last_checkpoints)
    stem = _stem_of(saver, prefix, numbered)
    first = kind == INCREMENTAL and stem is not None and stem not in known.stems
    if not told and not first and not known.unclear:
        return
    candidates = known.unclear
    candidates.update({path: (time, (None, kind)) for path, time in saver._last_checkpoints})
    if told or first:
        for path in _left_by_others(saver, stem):
            candidates.setdefault(path, (0.0, (kind,)))
        if stem is not None:
            known.stems.add(stem)
    counted = _counted(known, candidates)
    counted.sort(key=lambda one: one[1])
    # At each save, TensorFlow removes one checkpoint at most.
    excess = max(0, len(counted) - saver.saver_def.max_to_keep)
    saver._checkpoints_to_be_deleted.extend(counted[:excess])
    saver.set_last_checkpoints_with_time(counted[excess:])


def _counted(
    known: _Known, candidates: dict[str, tuple[float, Sequence[str | None]]]
) -> list[tuple[str, float]]:
    """Returns the candidates that the Saver counts, with their times. Sets `known.unclear`."""
    counted = []
    known.unclear = {}
    for path, (time, kinds) in candidates.items():
        if path not in known.identities:
            try:
                identity = _identity(path)
                if identity is None or not _is_counted_by(path, kinds):
                    continue
            except (OSError, UnansweredError) as error:
                known.unclear[path] = (time, kinds)
                _log.warning("%s", printable(f"Old checkpoint {path} stays until the next save: {error}"))
                continue
            known.identities[path] = identity
            time = identity[1] / 1e9
        counted.append((path, time))
    return counted


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


def _left_by_others(saver: tf.compat.v1.train.Saver, stem: str | None) -> list[str]:
    """Returns checkpoints `stem-STEP` that neither this Saver nor another one of its graph counts."""
    known = _savers[saver]
    known.unlisted = False
    if stem is None:
        return []
    directory, base = os.path.split(stem)
    index = re.compile(re.escape(base) + r"-\d+" + re.escape(retention.INDEX))
    try:
        counted = {own_files.place(path) for path in saver.last_checkpoints}
        for one in _savers.values():
            if one.graph() is known.graph():
                counted |= {own_files.place(path) for path in one.identities}
        names = [name for name in own_files.names(directory or ".") if index.fullmatch(name)]
        prefixes = [os.path.join(directory, name[: -len(retention.INDEX)]) for name in names]
        return [path for path in prefixes if own_files.place(path) not in counted]
    except OSError as error:
        known.unlisted = True
        _log.warning("%s", printable(f"Old checkpoints beside {stem} stay until the next save: {error}"))
        return []


def _is_counted_by(prefix: str, kinds: Sequence[str | None]) -> bool:
    """Returns whether one of these kinds of Savers counts the checkpoint. None counts a damaged one.

    Raises UnansweredError.
    """
    try:
        checkpoint = reader.open_saved(prefix)
    except UnansweredError:
        raise
    except CheckpointError as error:
        _log.warning("%s", printable(f"{prefix} is not removed: {error}"))
        return False
    if checkpoint is None:
        return False
    return (checkpoint.facts.counted_by if checkpoint.facts else None) in kinds


def note(saver: tf.compat.v1.train.Saver, graph: tf.Graph, prefix: str) -> None:
    """Records that the Saver wrote the checkpoint at `prefix`. The caller holds the prefix's lock."""
    known = _savers.setdefault(saver, _Known(graph)).identities
    known.pop(prefix, None)
    try:
        identity = _identity(prefix)
    except OSError:
        identity = None  # The next save asks again.
    if identity is not None:
        known[prefix] = identity
    pending = {path for path, _ in saver._checkpoints_to_be_deleted}
    for path in set(known) - set(saver.last_checkpoints) - pending - {prefix}:
        del known[path]


def note_failed(saver: tf.compat.v1.train.Saver, graph: tf.Graph, prefix: str, kind: str) -> None:
    """Records that a save of the Saver, of this kind, failed. Its checkpoint may be complete."""
    known = _savers.setdefault(saver, _Known(graph))
    known.identities.pop(prefix, None)
    known.unclear[prefix] = (0.0, (kind,))


def note_save(
    saver: tf.compat.v1.train.Saver, graph: tf.Graph, held: Sequence[str], others: Sequence[str]
) -> None:
    """Records the paths of the locks that the Saver's current save holds, and the graph's other prefixes."""
    known = _savers.setdefault(saver, _Known(graph))
    known.held, known.others = held, others


def remove(original: Callable, saver: tf.compat.v1.train.Saver, meta_graph_suffix: str = "meta") -> None:
    """Replaces `Saver._MaybeDeleteOldCheckpoints`, which is `original`, and which removes one checkpoint."""
    pending = saver._checkpoints_to_be_deleted
    for one in list(pending):
        prefix, time = one
        if prefix in saver.last_checkpoints:
            pending.remove(one)  # It could not be removed, and was saved anew.
        elif not _has_tables(prefix):
            # It removes the first one.
            pending.remove(one)
            pending.insert(0, one)
            original(saver, meta_graph_suffix)
        elif _remove(saver, prefix, time, meta_graph_suffix):
            pending.remove(one)


def _remove(saver: tf.compat.v1.train.Saver, prefix: str, time: float, meta_graph_suffix: str) -> bool:
    """Removes an old checkpoint with tables, or decides to keep it; returns False to try again later."""
    known = _savers.get(saver)
    held, others = (known.held, known.others) if known else ((), ())
    try:
        lock = prefix_lock.try_acquire(prefix)
        if lock is None:
            return False  # Another process is saving there.
        with lock:
            identity = _identity(prefix)
            # Without an index, a removal before was not complete.
            if known is not None and identity not in (None, known.identities.get(prefix, identity)):
                return True  # Another process has saved there.
            if time > saver._next_checkpoint_time:
                reader.keep_checkpoint(prefix)
                saver._next_checkpoint_time += saver.saver_def.keep_checkpoint_every_n_hours * 3600
                return True
            if not retention.remove(prefix, [*saver.last_checkpoints, *others], held):
                return False
            if meta_graph_suffix != "meta" and own_files.facts(f"{prefix}.{meta_graph_suffix}") is not None:
                os.remove(f"{prefix}.{meta_graph_suffix}")
            return True
    except (OSError, CheckpointError) as error:
        # A save must not fail because of an old checkpoint.
        _log.warning("%s", printable(f"Old checkpoint {prefix} stays until the next save: {error}"))
        return False


def _has_tables(prefix: str) -> bool:
    """Returns whether the checkpoint has tables, or may have some."""
    if path_problem(prefix):
        return False
    try:
        checkpoint = reader.open_saved(prefix)
    except CheckpointError:
        return True
    return checkpoint is not None and checkpoint.facts is not None


def _identity(prefix: str) -> _Identity | None:
    """Returns the identity of the index at a prefix; None if there is none. Raises OSError."""
    found = own_files.facts(prefix + retention.INDEX)
    return None if found is None else (found.st_ino, found.st_mtime_ns)
