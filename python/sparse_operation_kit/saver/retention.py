"""Removes tables' folders that no checkpoint refers to any more.

TensorFlow removes its own files of old checkpoints and knows nothing of the folders beside them. A save that
was killed leaves folders that no checkpoint knows either.
"""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
from collections.abc import Iterable, Sequence

import tensorflow as tf

_SUFFIX = ".sok"
_MANIFEST = "manifest.json"
_KEY = "/checkpoint"

_log = logging.getLogger(__name__)


def collect(prefix: str, removed: Iterable[str] = ()) -> None:
    """Removes what no checkpoint in the directory of `prefix` needs; nothing where that is unclear.

    It looks at the folder of `prefix` itself, at those of its family (the same name with other step numbers)
    whose checkpoint is gone, and at those of `removed`. Everything stays that an existing `.index` refers to,
    or the chain of an incremental checkpoint that one refers to. Only a warning tells of errors.

    Args:
      prefix: Of the checkpoint that was just saved, or could not be.
      removed: Prefixes of checkpoints that TensorFlow has removed.
    """
    try:
        _collect(prefix, removed)
    except (OSError, ValueError, KeyError, TypeError, tf.errors.OpError) as error:
        _log.warning("Old tables beside %s stay where they are: %s", prefix, error)


def _collect(prefix: str, removed: Iterable[str]) -> None:
    directory, name = os.path.split(prefix)
    directory = directory or "."
    if not os.path.isdir(directory):
        return
    family = re.compile(re.escape(re.sub(r"-\d+$", "", name)) + r"(-\d+)?")
    gone = {os.path.basename(path) for path in removed}
    entries = set(os.listdir(directory))
    folders = []
    for entry in sorted(entries):
        base = entry.removesuffix(_SUFFIX)
        if base == entry or not os.path.isdir(os.path.join(directory, entry)):
            continue
        orphaned = not _exists(base, entries) and (base in gone or family.fullmatch(base))
        if orphaned or base == name:
            folders.append(os.path.join(directory, entry))
    _remove_all_but(folders, directory, entries, name)


def _remove_all_but(folders: Sequence[str], directory: str, entries: set[str], saved: str) -> None:
    """Removes the tables in `folders` that no checkpoint of the directory needs, and folders left empty."""
    tables = [os.path.join(folder, table) for folder in folders for table in os.listdir(folder)]
    if not tables and not any(_is_empty(folder) for folder in folders):
        return
    # The folder of the checkpoint that was just saved is looked at each time: that is quick to tell.
    needed = _needed_by(directory, saved) if _exists(saved, entries) else set()
    if not {os.path.normpath(table) for table in tables} <= needed:
        for entry in entries:
            if entry.endswith(".index") and entry != f"{saved}.index":
                needed |= _needed_by(directory, entry.removesuffix(".index"))
    for table in tables:
        if os.path.normpath(table) not in needed:
            shutil.rmtree(table) if os.path.isdir(table) else os.remove(table)
    for folder in folders:
        if _is_empty(folder):
            os.rmdir(folder)


def _is_empty(folder: str) -> bool:
    with os.scandir(folder) as entries:
        return next(entries, None) is None


def _exists(base: str, entries: set[str]) -> bool:
    """Whether the directory's `entries` hold a checkpoint of TensorFlow's called `base`."""
    if f"{base}.index" in entries or base in entries:
        return True
    return any(entry.startswith(f"{base}-00000-of-") for entry in entries)


def _needed_by(directory: str, base: str) -> set[str]:
    """The tables' folders that the checkpoint `base` needs."""
    reader = tf.train.load_checkpoint(os.path.join(directory, base))
    needed: set[str] = set()
    for name, dtype in reader.get_variable_to_dtype_map().items():
        if not name.endswith(_KEY) or dtype != tf.string:
            continue
        folder = _folder(reader.get_tensor(name))
        if folder is None:
            continue
        leaf = os.path.basename(folder)
        # A reader looks under the checkpoint's present name first.
        for path in (os.path.join(directory, base + _SUFFIX, leaf), os.path.join(directory, folder)):
            needed |= {os.path.normpath(path), *_chain(path)}
    return needed


def _folder(reference: bytes) -> str | None:
    """The folder that a reference names; None for a string that is none."""
    try:
        parsed = json.loads(reference)
    except (ValueError, TypeError):
        return None
    return parsed.get("folder") if isinstance(parsed, dict) else None


def _chain(table: str) -> list[str]:
    """The folders that an incremental checkpoint builds on."""
    manifest = os.path.join(table, _MANIFEST)
    if not os.path.exists(manifest):
        return []
    with open(manifest, encoding="utf-8") as file:
        chain = json.load(file)["chain"]
    return [os.path.normpath(os.path.join(table, link["path"])) for link in chain]
