"""Access to files and folders that a checkpoint owns, without following symbolic links.

A checkpoint owns its files, and in earlier versions the folder `<prefix>.sok` and its contents. In a path,
links before the last component that ends with ".sok" are the user's, and are followed. From that component
on, links are not followed: removing removes the link itself, everything else raises an error. If no component
ends with ".sok", this applies to the last component, so no file is opened through a link.
`cc/checkpoint/posix_files.cc` has the same rule.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator

_OWN_FOLDER = ".sok"
# More levels than any folder of a checkpoint has.
_MAX_DEPTH = 100
_FOLDER = os.O_DIRECTORY | os.O_CLOEXEC


def opener(path: str, flags: int) -> int:
    """Opens a file; for the `opener` argument of `open()`. Raises OSError that names a link in the path."""
    with _place(os.fspath(path)) as (folder, name):
        return _open(name, flags | os.O_CLOEXEC, folder, path)


def is_there(path: str | os.PathLike) -> bool:
    """Returns whether there is a file, a folder or a link, whose target may be missing, at the path.

    `os.path.lexists` takes every error for an absence. On a network file system that would make a checkpoint
    disappear whose file cannot be looked at for a moment.

    Raises:
      OSError: The file system did not answer.
    """
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def is_folder(path: str | os.PathLike) -> bool:
    """Returns whether there is a folder, or a link to one, at the path. Raises OSError as `is_there`."""
    try:
        return stat.S_ISDIR(os.stat(path).st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False


def names(path: str | os.PathLike) -> list[str]:
    """Returns the sorted names in a folder. Raises OSError, also if the folder is a link."""
    with _place(os.fspath(path)) as (folder, name):
        descriptor = _open(name, os.O_RDONLY | _FOLDER, folder, path)
        try:
            return sorted(os.listdir(descriptor))
        finally:
            os.close(descriptor)


def make_folders(path: str | os.PathLike) -> None:
    """Creates a folder and its missing parents, following links.

    Raises OSError, which names the folder that cannot be created and the reason.
    """
    missing = []
    path = os.path.abspath(os.fspath(path))
    while not os.path.isdir(path):
        missing.append(path)
        path = os.path.dirname(path)
    for folder in reversed(missing):
        try:
            os.mkdir(folder)
        except FileExistsError:
            if not os.path.isdir(folder):
                reason = f"Cannot create the folder '{folder}': something else of this name is in the way"
                raise OSError(errno.EEXIST, reason, folder) from None


def rename(path: str | os.PathLike, name: str) -> None:
    """Renames a file, a folder or a link within its folder."""
    with _place(os.fspath(path)) as (folder, old):
        os.rename(old, name, src_dir_fd=folder, dst_dir_fd=folder)


def remove_tree(path: str | os.PathLike) -> None:
    """Removes a file, a link, or a folder with its contents. Links in it are removed, not followed.

    Ignores files that do not exist or disappear meanwhile. Raises OSError for files that cannot be removed.
    """
    with contextlib.suppress(FileNotFoundError), _place(os.fspath(path)) as (folder, name):
        _remove(folder, name, _MAX_DEPTH)


def _remove(folder: int, name: str, depth: int) -> None:
    try:
        os.unlink(name, dir_fd=folder)
        return
    except FileNotFoundError:
        return
    except (IsADirectoryError, PermissionError):  # the errors of unlink for a folder
        if depth == 0:
            raise
    with contextlib.suppress(FileNotFoundError):
        inner = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | _FOLDER, dir_fd=folder)
        try:
            for entry in os.listdir(inner):
                _remove(inner, entry, depth - 1)
        finally:
            os.close(inner)
        os.rmdir(name, dir_fd=folder)


@contextlib.contextmanager
def _place(path: str) -> Iterator[tuple[int, str]]:
    """Yields a descriptor of the folder of the path's last component, and that component."""
    parts = path.split("/")
    own = [number for number, part in enumerate(parts) if part.endswith(_OWN_FOLDER)]
    first = own[-1] if own else len(parts) - 1
    user = "/".join(parts[:first])
    folder = os.open(user or ("/" if path.startswith("/") else "."), os.O_PATH | _FOLDER)
    try:
        for number in range(first, len(parts) - 1):
            if parts[number] not in ("", "."):
                inner = _open(parts[number], os.O_PATH | _FOLDER, folder, "/".join(parts[: number + 1]))
                os.close(folder)
                folder = inner
        yield folder, parts[-1]
    finally:
        os.close(folder)


def _open(name: str, flags: int, folder: int, path: str | os.PathLike) -> int:
    """Like `os.open`, but raises an error for a link; `path` is the whole path, for the error."""
    try:
        return os.open(name, flags | os.O_NOFOLLOW, 0o666, dir_fd=folder)
    except OSError as error:
        facts = None
        with contextlib.suppress(OSError):
            facts = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if facts is None or not stat.S_ISLNK(facts.st_mode):
            raise OSError(error.errno, error.strerror, os.fspath(path)) from None
        reason = (
            f"'{os.fspath(path)}' is a symbolic link: a checkpoint's own folders and files are never links"
        )
        raise OSError(errno.ELOOP, reason, os.fspath(path)) from None
