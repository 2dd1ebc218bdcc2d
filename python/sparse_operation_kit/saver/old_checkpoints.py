"""Keeps `max_to_keep` from removing a checkpoint that another process saved under the same name.

TensorFlow's Saver removes the files of its old checkpoints by name. If another process has saved under such a
name, that would remove the other's checkpoint, or half of it. For checkpoints with tables, files are
therefore removed only under the lock of their prefix, and not if they were written again after this Saver
wrote them.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tensorflow as tf

from sparse_operation_kit.checkpoint import prefix_lock, table_files
from sparse_operation_kit.checkpoint.table_files import FOLDER_SUFFIX

# The identity of the `.index` file that a Saver wrote, by Saver and prefix.
_written: weakref.WeakKeyDictionary[tf.compat.v1.train.Saver, dict[str, Any]] = weakref.WeakKeyDictionary()


def note(saver: tf.compat.v1.train.Saver, prefix: str) -> None:
    """Records that the Saver wrote the checkpoint at `prefix`. The caller holds the prefix's lock."""
    known = _written.setdefault(saver, {})
    known[prefix] = _identity(prefix)
    pending = {path for path, _ in saver._checkpoints_to_be_deleted}
    for path in set(known) - set(saver.last_checkpoints) - pending - {prefix}:
        del known[path]


def remove(original: Callable, saver: tf.compat.v1.train.Saver, *args: Any, **kwargs: Any) -> None:
    """Replaces `Saver._MaybeDeleteOldCheckpoints`, which is `original`."""
    pending = saver._checkpoints_to_be_deleted
    prefix = pending[0][0] if pending else None
    if prefix is None or not _has_tables(prefix):
        original(saver, *args, **kwargs)
        return
    try:
        lock = prefix_lock.try_acquire(prefix)
    except OSError:
        lock = None  # A save must not fail because of an old checkpoint.
    if lock is None:
        pending.pop(0)  # Another process is saving there.
        return
    with lock:
        if _written.get(saver, {}).get(prefix, _identity(prefix)) == _identity(prefix):
            original(saver, *args, **kwargs)
        else:
            pending.pop(0)


def _has_tables(prefix: str) -> bool:
    try:
        return bool(table_files.places_of(Path(prefix))) or os.path.lexists(f"{prefix}{FOLDER_SUFFIX}")
    except OSError:
        return True


def _identity(prefix: str) -> tuple[int, int] | None:
    try:
        facts = os.stat(f"{prefix}.index")
    except OSError:
        return None
    return facts.st_ino, facts.st_mtime_ns
