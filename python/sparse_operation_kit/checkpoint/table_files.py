"""The names of tables' files in checkpoints. `cc/checkpoint/checkpoint_path.h` has the same rules.

A table of the checkpoint with the prefix `P` has the path `P.sok/TABLE`. TABLE is its quoted name, "-" and
the save's id. References and chains hold such paths. In checkpoints of earlier versions there is a folder at
this path, with the files. Now the files are beside TensorFlow's: `P.sok-TABLE.FILE`, with "." for "/" in
FILE. Programs take a folder in a directory of checkpoints for something else, for example for an exported
model.

A table's place is its folder, or else `P.sok-TABLE`, with which the names of its files begin.
"""

from __future__ import annotations

import contextlib
import os
import re
import urllib.parse
from collections.abc import Iterable
from pathlib import Path

from sparse_operation_kit.checkpoint import own_files
from sparse_operation_kit.newer_python import removesuffix

FOLDER_SUFFIX = ".sok"
MANIFEST = "manifest.json"
# The end of the name of an old folder, or of a manifest, that is not complete.
UNFINISHED = ".unfinished"

_BEFORE_TABLE = ".sok-"
_LEAF = r"(?P<name>.+)-[0-9a-f]{16}"
_PLACE = re.compile(rf"(?P<base>.+)\.sok-(?P<leaf>{_LEAF})", re.DOTALL)
_FILE = re.compile(
    rf"(?P<place>{_PLACE.pattern})\.(manifest\.json(\.unfinished)?|plan\.json"
    r"|shard-\d{5,}(\.json|\.[a-z0-9_-]+\.npy))",
    re.DOTALL,
)
# The longest name of a file that file systems take, and the part of it for what follows a table's name.
_MAX_FILE_NAME = 255
_MAX_TAIL = 97
_LEAST_NAME, _MOST_NAME = 17, 150


def new_place(prefix: Path, name: str, identity: str) -> Path:
    """Returns the place to write a table to; `identity` is the save's 16 hex digits."""
    quoted = urllib.parse.quote(name, safe="").replace(_BEFORE_TABLE, "%2Esok-")
    longest = _MAX_FILE_NAME - len(os.fsencode(prefix.name)) - len(_BEFORE_TABLE) - _MAX_TAIL
    quoted = quoted[: max(_LEAST_NAME, min(longest, _MOST_NAME))]
    return prefix.with_name(f"{prefix.name}{_BEFORE_TABLE}{quoted}-{identity}")


def place_at(path: Path) -> Path:
    """Returns the place of the table with this path: the folder if there is one, or a link in its place."""
    if not path.parent.name.endswith(FOLDER_SUFFIX) or own_files.is_there(path) or path.parent.is_symlink():
        return path
    return path.parent.with_name(f"{path.parent.name}-{path.name}")


def path_of(place: Path) -> Path:
    """Returns the table's path, which references and chains hold."""
    found = _match_of_files(place)
    if found is None:
        return place
    return place.with_name(found["base"] + FOLDER_SUFFIX) / found["leaf"]


def name_in(place: Path) -> str:
    """Returns the table's name, as far as the name of its folder or files has it."""
    leaf = re.fullmatch(_LEAF, path_of(place).name, re.DOTALL)
    return urllib.parse.unquote(leaf["name"] if leaf else place.name)


def file_of(place: Path, file: str) -> Path:
    """Returns the path of one of the table's files, for example of "shard-00000/keys.npy"."""
    if is_folder(place):
        return place / file
    return place.with_name(f"{place.name}.{file.replace('/', '.')}")


def is_folder(place: Path) -> bool:
    """Returns whether the table has a folder, as in checkpoints of earlier versions."""
    return _match_of_files(place) is None


def is_complete(place: Path) -> bool:
    """Returns whether there is a table. An old folder may be damaged; files without a manifest are none.

    Raises OSError if the file system does not say.
    """
    if is_folder(place):
        return own_files.is_folder(place) and not place.name.endswith(UNFINISHED)
    return own_files.is_there(file_of(place, MANIFEST))


def place_of_file(path: Path) -> Path | None:
    """Returns the place of a table without a folder, given it or a file of it; None if there is none."""
    found = _FILE.fullmatch(path.name)
    place = path.with_name(found["place"]) if found else path
    return place if not is_folder(place) and files_of(place) else None


def files_of(place: Path) -> list[Path]:
    """Returns the existing files of a table without a folder, sorted; the manifest is the first."""
    start = place.name + "."
    try:
        names = [name for name in os.listdir(place.parent) if name.startswith(start)]
    except FileNotFoundError:
        return []
    return [place.with_name(name) for name in sorted(names)]


def places_of(prefix: Path) -> list[Path]:
    """Returns the places of all tables of a checkpoint, sorted, with unfinished ones.

    A link in place of the folder is not followed. Raises OSError if a folder cannot be read.
    """
    folder = prefix.with_name(prefix.name + FOLDER_SUFFIX)
    places = set()
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        if not folder.is_symlink():
            places |= {folder / name for name in own_files.names(folder)}
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        for name in os.listdir(prefix.parent):
            found = _FILE.fullmatch(name) if name.startswith(prefix.name + _BEFORE_TABLE) else None
            if found and found["base"] == prefix.name:
                places.add(prefix.with_name(found["place"]))
    return sorted(places)


def prefix_of_folder(folder: Path) -> Path:
    """Returns the prefix of `P.sok`."""
    return folder.with_name(removesuffix(folder.name, FOLDER_SUFFIX))


def bases_in(names: Iterable[str]) -> set[str]:
    """Returns the prefixes, without their directory, that have files among the names in it."""
    found = (_FILE.fullmatch(name) for name in names if _BEFORE_TABLE in name)
    return {match["base"] for match in found if match}


def written_at(place: Path) -> float:
    """Returns when a table was written, in seconds since the epoch. Raises OSError if it does not exist."""
    if is_folder(place):
        return os.lstat(place).st_mtime
    try:
        return os.lstat(file_of(place, MANIFEST)).st_mtime
    except FileNotFoundError:
        files = files_of(place)
        if not files:
            raise
        return min(os.lstat(file).st_mtime for file in files)


def publish(place: Path) -> None:
    """Gives the manifest, which is complete, its name: from then on, the table exists."""
    own_files.rename(file_of(place, MANIFEST + UNFINISHED), file_of(place, MANIFEST).name)


def remove(place: Path) -> None:
    """Removes a table. If the process is killed meanwhile, what is left does not look complete."""
    if not is_folder(place):
        own_files.remove_tree(file_of(place, MANIFEST))
        for file in files_of(place):
            own_files.remove_tree(file)
        return
    if not place.name.endswith(UNFINISHED):
        own_files.rename(place, place.name + UNFINISHED)
        place = place.with_name(place.name + UNFINISHED)
    own_files.remove_tree(place)


def _match_of_files(place: Path) -> re.Match[str] | None:
    """Returns the parts of the name if the place is the start of files' names, None if it is a folder."""
    if place.parent.name.endswith(FOLDER_SUFFIX) or own_files.is_there(place):
        return None
    return _PLACE.fullmatch(place.name)
