# Not on GPUs: files, which are the same: see gpu_checkpoints_test
"""Which old checkpoints and leftovers are removed, and which are kept for other checkpoints."""

from __future__ import annotations

import logging
import os
import pathlib
import socket

import pytest

import checkpoint_files
import saved_files
from sparse_operation_kit.checkpoint import own_files, prefix_lock, reader
from sparse_operation_kit.checkpoint.errors import UnansweredError
from sparse_operation_kit.saver import retention

ID = "0123456789abcdef"
# What a process that was killed in a save leaves.
LEFT = [
    "data-00001-of-00007",
    f"sok-{ID}.new-index",
    f"sok-{ID}.others_temp_{32 * 'a'}/part-00000-of-00001.index",
    f"sok-{ID}.part-0.data-00000-of-00001",
    f"sok-{ID}.part-0.index",
    f"sok-{ID}.plan",
]


class Folder:
    """A directory of fake checkpoints of one table."""

    def __init__(self, path: pathlib.Path):
        self.path = path
        path.mkdir(exist_ok=True)

    def prefix(self, base: str) -> str:
        return str(self.path / base)

    def checkpoint(self, base: str, chains: tuple[str, ...] = (), **changed: str) -> None:
        """Makes a checkpoint that builds on others."""
        table = '{"format":"sparse-operation-kit table"' + 64 * " " + "}"
        tensors = {**checkpoint_files.facts(ID, 1, chains), "t": table, "t#0": "{}", **changed}
        checkpoint_files.write(self.path / base, tensors)

    def retired(self, base: str, chains: tuple[str, ...] = ()) -> None:
        """Makes a checkpoint that was removed while another one was building on it."""
        self.checkpoint(base, chains)
        reader.remove_checkpoint(self.prefix(base), needed=True)

    def left(self, base: str) -> set[str]:
        """Makes what a killed save leaves; returns the names of the files."""
        for name in LEFT:
            file = self.path / f"{base}.{name}"
            file.parent.mkdir(exist_ok=True)
            file.touch()
        return {f"{base}.{name.split('/')[0]}" for name in LEFT}

    def remove(self, base: str, others: tuple[str, ...] = ()) -> list[str]:
        assert retention.remove(self.prefix(base), others, ())
        return self.bases()

    def clean(self, base: str, others: tuple[str, ...] = ()) -> list[str]:
        retention.clean(self.prefix(base), others, ())
        return self.bases()

    def bases(self) -> list[str]:
        return saved_files.bases(self.path)

    def names(self) -> set[str]:
        return set(os.listdir(self.path))


@pytest.fixture
def folder(tmp_path):
    return Folder(tmp_path)


def test_a_checkpoint_is_removed_whole(folder):
    for base in ("model-1", "model-2"):
        folder.checkpoint(base)
        (folder.path / f"{base}.meta").touch()
    assert folder.remove("model-1") == ["model-2"]
    assert folder.names() == {"model-2.index", "model-2.data-00000-of-00001", "model-2.meta"}


def test_leftovers_of_killed_saves(folder):
    folder.checkpoint("model-2")
    folder.checkpoint("model-3")
    kept = folder.names()
    for base in ("model-1", "model-2", "model-3", "model"):
        folder.left(base)
    (folder.path / "model-1.sok.lock").touch()
    (folder.path / "model-1.meta").touch()
    (folder.path / ".incremental.sok.lock").touch()
    folder.clean("model-3")
    assert folder.names() == kept


def test_leftovers_need_no_checkpoint(folder):
    for base in ("model-1", "model-2"):
        folder.checkpoint(base)
    folder.left("other-3")  # with indexes that are newer, and damaged
    kept = folder.names() - {"model-1.index", "model-1.data-00000-of-00001"}
    folder.remove("model-1")
    assert folder.names() == kept


def test_another_family_is_left_alone(folder):
    folder.checkpoint("model-3")
    kept = folder.names()
    for base in ("other-1", "model-3-best", "models-1", "my-model-1", "[m]odel-1"):
        kept |= folder.left(base)
        folder.retired(f"{base}-0")
    kept |= {name for name in folder.names() if ".sok-index" in name or "-0.data" in name}
    folder.left("model-1")
    folder.clean("model-3")
    assert folder.names() == kept


def test_only_own_names_go_with_a_killed_save(folder):
    folder.checkpoint("m-2")
    (folder.path / f"m-1.sok-{ID}.plan").touch()
    kept = folder.names() - {f"m-1.sok-{ID}.plan"}
    for name in (
        "m-1.meta.mine",
        "m-1.data-00000-of-00002.mine",
        "m-1.data-0-of-1",
        "m-1.data-00000-of-00000",
        "m-1.sok-0123456789ABCDEF.plan",
        f"m-1.sok-{ID}",
        f"m-1.sok-{ID}0.plan",
        "m-1.notes",
        "of-m-1.meta",
        "m-10.meta",
    ):
        (folder.path / name).touch()
        kept.add(name)
    folder.clean("m-2")
    assert folder.names() == kept


def test_the_chain_of_an_incremental_checkpoint_stays(folder):
    folder.checkpoint("model-1")
    folder.checkpoint("model-2")
    folder.checkpoint("model-3", ("model-1",))
    folder.checkpoint("model-4", ("model-1", "model-3"))
    assert folder.remove("model-1") == ["model-1", "model-2", "model-3", "model-4"]
    assert folder.remove("model-2") == ["model-1", "model-3", "model-4"]
    assert folder.remove("model-3") == folder.clean("model-4") == ["model-1", "model-3", "model-4"]
    found = {"model-1.sok-index", "model-1.data-00000-of-00001"}
    assert {name for name in folder.names() if name.startswith("model-1")} == found
    folder.checkpoint("model-5")
    assert folder.remove("model-4") == ["model-1", "model-3", "model-5"]
    assert folder.clean("model-5") == ["model-5"]


def test_an_incremental_checkpoint_upon_one_of_the_same_prefix(folder):
    folder.checkpoint("model-1")
    os.rename(folder.prefix("model-1.index"), folder.prefix("model-1.sok-index"))
    os.rename(folder.prefix("model-1.data-00000-of-00001"), folder.prefix("keep"))
    folder.checkpoint("model-1", ("model-1",))
    os.rename(folder.prefix("keep"), folder.prefix("model-1.data-00000-of-00001"))
    before = folder.names()
    folder.clean("model-1")
    assert folder.names() == before
    folder.checkpoint("model-2")
    assert folder.remove("model-1") == ["model-2"]


def test_a_copied_checkpoint_keeps_what_it_builds_on(folder):
    folder.retired("model-1")
    folder.checkpoint("best", ("model-1",))
    folder.checkpoint("model-2")
    assert folder.clean("model-2") == ["best", "model-1", "model-2"]


def _socket(path):
    path.unlink()
    with socket.socket(socket.AF_UNIX) as made:
        # Paths of sockets must be short.
        os.chdir(path.parent)
        made.bind(path.name)


def _loop(path):
    path.unlink()
    path.symlink_to(path.name)


# Files that tell that a checkpoint is damaged; and those about which nothing can be known.
DAMAGED = {kind: damage for kind, damage in saved_files.DAMAGES.items() if kind != "cut"}
UNKNOWN = {"socket": _socket, "loop": _loop}


@pytest.mark.parametrize(
    ("file", "kind"),
    [
        (file, kind)
        for file in ("index", "data-00000-of-00001")
        for kind in [*DAMAGED, *UNKNOWN]
        if (file, kind) != ("data-00000-of-00001", "huge")  # All that the index names is in it.
    ],
)
def test_what_cannot_be_read_keeps_what_was_there_before(folder, file, kind, caplog, monkeypatch):
    """A damaged one neither stops nor blocks the removal of others, and is reported once."""
    monkeypatch.chdir(folder.path)
    folder.retired("model-0")
    folder.retired("model-1")
    folder.checkpoint("model-2", ("model-1",))
    folder.retired("model-3")
    folder.checkpoint("model-4")
    bad = folder.path / f"model-2.{file}"
    time = os.lstat(folder.path / "model-2.index").st_mtime
    {**DAMAGED, **UNKNOWN}[kind](bad)
    for base, offset in (("model-0.sok", -5), ("model-1.sok", -5), ("model-3.sok", 5)):
        os.utime(folder.path / f"{base}-index", (time + offset, time + offset))
    os.utime(folder.path / "model-2.index", (time, time), follow_symlinks=False)
    stay = [f"model-{step}" for step in range(5) if step != 3 or kind in UNKNOWN]
    with caplog.at_level(logging.WARNING):
        assert folder.clean("model-4") == stay
        assert "model-2" in caplog.text
        if kind in DAMAGED:
            folder.clean("model-4")
            assert len(caplog.records) == 1
        # What may be needed becomes a checkpoint that only those see which build on it.
        folder.remove("model-4")
        assert "model-4.index" not in folder.names()


def test_facts_of_hostile_text(folder, caplog):
    for number, text in enumerate(["{" * 100_000, '{"format": "\\u0000"}', "[]", ""]):
        folder.checkpoint(f"bad-{number}", **{"#sok": text})
        os.utime(folder.prefix(f"bad-{number}.index"), (1, 1))
    folder.retired("model-1")
    folder.checkpoint("model-2")
    with caplog.at_level(logging.WARNING):
        assert "model-1" not in folder.clean("model-2")
    assert all(f"bad-{number}" in caplog.text for number in range(4))


@pytest.mark.parametrize("leads", ["../../../../../x", "nowhere/x", "file/x", "."])
def test_chains_that_lead_to_nothing(folder, leads):
    (folder.path / "file").touch()
    folder.checkpoint("bad", (leads,))
    folder.retired("model-1")
    folder.checkpoint("model-2")
    assert folder.clean("model-2") == ["bad", "model-2"]


def test_checkpoints_without_tables_are_no_obstacle(folder):
    checkpoint_files.write(folder.path / "plain", {"dense": "a string"})
    folder.retired("model-1")
    folder.checkpoint("model-2")
    assert folder.clean("model-2") == ["model-2", "plain"]


def test_a_directory_that_is_not_there(folder, caplog):
    folder.clean("nowhere/model-1")
    assert not caplog.text


def test_the_present_directory(folder, monkeypatch):
    monkeypatch.chdir(folder.path)
    folder.checkpoint("model-0")
    folder.left("model-1")
    folder.checkpoint("model-2", ("model-0",))
    folder.checkpoint("model-3")
    retention.clean("model-3", (), ())
    assert folder.bases() == ["model-0", "model-2", "model-3"]
    with prefix_lock.acquire(retention.chains_of("."), 0):
        assert retention.remove("model-0", (), [retention.chains_of("")])
        assert retention.remove("model-2", (), [retention.chains_of(str(folder.path))])
    retention.clean("model-3", (), ())
    assert folder.bases() == ["model-3"]


def test_a_directory_under_two_names(folder, tmp_path):
    """The lock that a save holds under one name is the lock of the other."""
    real = Folder(tmp_path / "real")
    (tmp_path / "link").symlink_to("real")
    real.checkpoint("model-1")
    real.checkpoint("model-2", ("../link/model-1",))
    chains = retention.chains_of(str(tmp_path / "link"))
    with prefix_lock.acquire(chains, 0):
        assert retention.remove(real.prefix("model-1"), [str(tmp_path / "link" / "model-2")], [chains])
    assert real.clean("model-2") == ["model-1", "model-2"]
    real.checkpoint("model-3")
    real.remove("model-2")
    assert Folder(tmp_path / "link").clean("model-3") == ["model-3"]


def test_a_chain_into_another_directory_stays(folder):
    other = Folder(folder.path / "other")
    other.checkpoint("model-1")
    folder.checkpoint("model-2", ("other/model-1",))
    other.checkpoint("model-3")
    others = (folder.prefix("model-2"),)
    assert other.remove("model-1", others) == other.clean("model-3", others) == ["model-1", "model-3"]
    folder.remove("model-2")
    assert other.clean("model-3", others) == ["model-3"]


def test_what_is_locked_stays(folder):
    folder.left("model-0")
    folder.retired("model-1")
    folder.checkpoint("model-2")
    folder.checkpoint("model-3")
    with prefix_lock.acquire(folder.prefix("model-0"), 0), prefix_lock.acquire(folder.prefix("model-1"), 0):
        assert folder.clean("model-3") == ["model-0", "model-1", "model-2", "model-3"]
    with prefix_lock.acquire(retention.chains_of(str(folder.path)), 0):
        assert folder.clean("model-3") == ["model-1", "model-2", "model-3"]
        assert not retention.remove(folder.prefix("model-2"), (), ())
    assert folder.clean("model-3") == folder.bases() == ["model-2", "model-3"]
    assert not list(folder.path.glob("*.lock"))


def test_an_index_that_comes_while_the_lock_is_waited_for_counts(folder, monkeypatch):
    """There was no index when the folder was listed, but the save finished before its lock was acquired."""
    folder.left("model-1")
    folder.checkpoint("model-2")
    try_acquire = prefix_lock.try_acquire

    def after_the_save(prefix):
        if prefix.endswith("model-1"):
            folder.checkpoint("model-1")
        return try_acquire(prefix)

    monkeypatch.setattr(prefix_lock, "try_acquire", after_the_save)
    assert folder.clean("model-2") == ["model-1", "model-2"]
    assert {name for name in folder.names() if name.startswith("model-1")} == {
        "model-1.index",
        "model-1.data-00000-of-00001",
    }


def test_an_interrupted_removal_is_finished(folder):
    for base in ("model-1", "model-2"):
        folder.checkpoint(base)
        (folder.path / f"{base}.index").unlink()
    (folder.path / "model-2.sok.lock").touch()
    folder.checkpoint("model-3")
    assert folder.remove("model-1") == ["model-2", "model-3"]
    assert folder.clean("model-3") == ["model-3"]


def test_an_index_that_cannot_be_read_keeps_its_data(folder, caplog):
    """Only an index that is known to be missing tells that a checkpoint is not complete."""
    folder.checkpoint("m-2")
    folder.left("m-2")
    _loop(folder.path / "m-2.index")
    files = folder.names()
    folder.clean("m-2")
    assert folder.names() == files
    assert "m-2" in caplog.text and "not removed" in caplog.text


def test_errors_say_whether_the_file_system_answered(folder):
    folder.checkpoint("m-1")
    _loop(folder.path / "m-1.index")
    with pytest.raises(UnansweredError, match="symbolic links"):
        reader.open_saved(folder.prefix("m-1"))


@pytest.mark.parametrize("path", ["/dev/null/x", "a\0b/x", "/nowhere/at/all"])
def test_paths_at_which_there_can_be_nothing(path):
    assert own_files.facts(path) is None and not own_files.is_folder(path)
    assert own_files.names(path) == [] and own_files.place(f"{path}/y") is None
