# Not on GPUs: files, which are the same: see gpu_checkpoints_test
"""Paths that the system would mistake for others, or that are occupied, are errors that name the path."""

import os

import numpy as np
import pytest
import tensorflow as tf

import harness
import sparse_operation_kit as sok
from checkpoint_files import History
from sparse_operation_kit import native
from sparse_operation_kit.checkpoint import CheckpointError, compact, export, open_checkpoint, problems

train = tf.compat.v1.train
NAME = "hostile_table"


@pytest.fixture(scope="module")
def model():
    """(session, table, Saver, folder's placeholder, raw dump, raw restore) of a table with rows."""
    with harness.graph_and_session() as session:
        table = sok.EmbeddingVariable(NAME, dim=2)
        rows = tf.nn.embedding_lookup(table, np.arange(3))
        saver = train.Saver()
        folder = tf.compat.v1.placeholder(tf.string, [])
        dump = sok.Saver().dump_to_file(table, folder)
        restore = sok.Saver().restore_from_file(table, folder)
        harness.initialize(session)
        session.run(rows)
        yield session, table, saver, folder, dump, restore


def everything(directory):
    """All paths below a directory, with the bytes of files."""
    return {
        path.relative_to(directory): path.read_bytes() if path.is_file() else None
        for path in directory.rglob("*")
    }


@pytest.fixture
def victims(tmp_path):
    """Folders and files that paths refer to if they are cut at their zero byte. They must not change."""
    for name in ("a", "model"):
        (tmp_path / name / "folder").mkdir(parents=True)
        (tmp_path / name / "file").write_text("must stay")
    (tmp_path / "b").write_text("must stay")
    before = everything(tmp_path)
    yield tmp_path
    assert everything(tmp_path) == before


CUT = ["a\0", "a\0b", "a/\0b", "a\0/b", "b\0", "a/file\0", "a/x\0/y"]


@pytest.mark.parametrize("path", CUT)
def test_a_prefix_with_a_zero_byte(model, victims, path):
    session, _, saver, *_ = model
    with pytest.raises(tf.errors.InvalidArgumentError, match="zero byte") as error:
        saver.save(session, f"{victims}/{path}")
    assert str(victims / path).replace("\0", "\\x00") in error.value.message


@pytest.mark.parametrize("path", CUT)
@pytest.mark.parametrize("way", ["dump", "restore"])
def test_a_raw_folder_with_a_zero_byte(model, victims, path, way):
    session, _, _, folder, dump, restore = model
    with pytest.raises(tf.errors.InvalidArgumentError, match="zero byte"):
        session.run(dump if way == "dump" else restore, {folder: f"{victims}/{path}"})


def test_a_raw_name_with_a_zero_byte(model, victims):
    session, table, *_ = model
    with session.graph.as_default():
        restore = sok.Saver().restore_from_file(table, str(victims), name="b\0")
        with pytest.raises(tf.errors.InvalidArgumentError, match="zero byte"):
            session.run(restore)


def test_a_checkpoint_to_begin_from_with_a_zero_byte(model, victims):
    session, table, *_ = model
    with session.graph.as_default(), pytest.raises(ValueError, match=r"a\\x00.* zero byte"):
        sok.init_from_checkpoint(f"{victims}/a\0", {NAME: table})


@pytest.mark.parametrize("path", CUT)
def test_ops_that_take_paths(model, victims, path):
    """Prefixes of a check, and both of a compaction."""
    session, table, *_ = model
    path = f"{victims}/{path}"
    with session.graph.as_default():
        code, message, _ = native.ops.sok_check_checkpoint([table.handle], path, True, True, [], names=["x"])
        found, text = session.run([code, message])
        assert found == 3 and b"zero byte" in text and b"\0" not in text, text
        for source, prefix in ((path, f"{victims}/new"), (f"{victims}/a", path)):
            text = session.run(native.ops.sok_compact_checkpoint(source, prefix, "0" * 16))
            assert b"zero byte" in text or source.endswith("/a") and b"\0" not in text, text


def test_programs_that_take_paths(victims, tmp_path_factory):
    made = History(tmp_path_factory.mktemp("made"), np.random.default_rng(0))
    checkpoint = open_checkpoint(made.save_steps(1).prefix)
    for path in CUT:
        with pytest.raises(CheckpointError, match=r"\\x00.* zero byte"):
            open_checkpoint(f"{victims}/{path}")
        with pytest.raises(CheckpointError, match=r"\\x00.* zero byte"):
            compact(checkpoint, victims / path)
        with pytest.raises(CheckpointError, match=r"\\x00.* zero byte"):
            export(checkpoint, victims / path, "npy")


def test_a_path_of_many_folders(model, tmp_path):
    session, _, saver, folder, dump, _ = model
    deep = f"{tmp_path}" + "/a" * 100_000
    with pytest.raises(tf.errors.InvalidArgumentError, match=f"{tmp_path}/a.*bytes"):
        saver.save(session, deep)
    with pytest.raises(tf.errors.InvalidArgumentError, match=f"{tmp_path}/a.*bytes"):
        session.run(dump, {folder: deep})
    with pytest.raises(CheckpointError, match=f"{tmp_path}/a"):
        open_checkpoint(deep)


def _put(kind, place):
    place.parent.mkdir()
    if kind == "file":
        place.touch()
    elif kind == "pipe":
        os.mkfifo(place)
    else:
        place.symlink_to({"link": "nowhere", "device": "/dev/zero"}[kind])


@pytest.mark.parametrize("kind", ["file", "pipe", "link"])
def test_something_else_where_a_folder_should_be(model, tmp_path, kind):
    session, _, saver, folder, dump, _ = model
    place = tmp_path / "b" / "way"
    _put(kind, place)
    with pytest.raises(tf.errors.FailedPreconditionError, match=f"'{place}'.*in the way"):
        saver.save(session, str(place / "model"))
    with pytest.raises(tf.errors.FailedPreconditionError, match=f"'{place}'.*in the way"):
        session.run(dump, {folder: str(place / "raw")})


@pytest.mark.parametrize("kind", ["file", "pipe", "link", "device"])
@pytest.mark.parametrize(
    "name",
    [
        *("model.sok", "model.sok-index", "model.data-00000-of-00002"),
        *("model-7.index", "model-7.sok-index", "model.sok-0123456789abcdef.part-0.index"),
    ],
)
def test_something_else_beside_a_checkpoint(model, tmp_path, kind, name):
    """Nothing reads, follows or waits for what only looks like a part of a checkpoint."""
    session, _, saver, *_ = model
    _put(kind, tmp_path / "a" / name)
    saver.restore(session, saver.save(session, str(tmp_path / "a" / "model")))


# TensorFlow takes a prefix with "*", "?", "[" or a backslash for a pattern.
@pytest.mark.parametrize(
    "base", ["..model", "-1", "~", "'", "$(touch x)", "-rf", "größe", " ", "\x1b]0;\n\u202e"]
)
def test_prefixes_of_any_characters(model, tmp_path, base):
    session, _, saver, *_ = model
    prefix = saver.save(session, f"{tmp_path}/{base}", write_state=False, write_meta_graph=False)
    saver.restore(session, prefix)
    assert list(problems(open_checkpoint(prefix))) == []
    assert all(name.startswith(f"{base}.") for name in os.listdir(tmp_path))


@pytest.mark.parametrize(
    "name", ["it\x1b[2Jems", "a/b", "..", "\u202e", "x" * 400, "größe", "%2F", "new\nline"]
)
def test_names_of_any_characters(model, tmp_path, name):
    session, table, *_ = model
    with session.graph.as_default():
        saver = train.Saver({name: table})
        prefix = saver.save(session, f"{tmp_path}/model")
        saver.restore(session, prefix)
    assert [entry.name for entry in open_checkpoint(prefix).tables] == [name]
    assert list(problems(open_checkpoint(prefix))) == []


@pytest.mark.parametrize("kind", ["pipe", "folder"])
@pytest.mark.parametrize("file", ["keys", "values"])
def test_something_else_where_a_raw_file_should_be(model, tmp_path, kind, file):
    session, _, _, folder, dump, restore = model
    session.run(dump, {folder: str(tmp_path)})
    place = tmp_path / f"{NAME}_{file}.file"
    place.unlink()
    place.mkdir() if kind == "folder" else os.mkfifo(place)
    with pytest.raises(tf.errors.DataLossError, match=f"'{place}' is not a file"):
        session.run(restore, {folder: str(tmp_path)})
    unfinished = tmp_path / "other" / f"{NAME}_{file}.file.unfinished"
    unfinished.parent.mkdir()
    if kind == "pipe":
        # Something that is not a folder is replaced, like the leftovers of a killed process.
        os.mkfifo(unfinished)
        session.run(dump, {folder: str(unfinished.parent)})
        session.run(restore, {folder: str(unfinished.parent)})
        return
    unfinished.mkdir()
    with pytest.raises(tf.errors.FailedPreconditionError, match=f"'{unfinished}'"):
        session.run(dump, {folder: str(unfinished.parent)})


def test_a_pipe_is_no_checkpoint(tmp_path):
    """Pipes in place of a checkpoint's files are errors; nothing waits for a writer."""
    made = History(tmp_path, np.random.default_rng(0))
    made.train()
    made.save("model")
    (tmp_path / "checkpoint").write_text('model_checkpoint_path: "model"')
    assert not list(problems(open_checkpoint(tmp_path)))
    paths = [file for file in tmp_path.rglob("*") if file.is_file()]
    assert len(paths) == 4
    for path in paths:
        kept = tmp_path.parent / "kept"
        path.rename(kept)
        os.mkfifo(path)
        with pytest.raises(CheckpointError) as error:
            raise CheckpointError(tmp_path, next(problems(open_checkpoint(tmp_path))))
        assert str(path) in str(error.value), error.value
        path.unlink()
        kept.rename(path)


def test_links_are_followed_by_readers_and_replaced_by_saves(tmp_path):
    """As TensorFlow's own files: what a link leads to is read, and never written or removed."""
    (tmp_path / "real").mkdir()
    (tmp_path / "links").mkdir()
    (tmp_path / "way").symlink_to("real")
    with harness.graph_and_session() as session:
        table = sok.EmbeddingVariable(NAME, dim=2)
        loss = tf.reduce_sum(tf.nn.embedding_lookup(table, np.arange(3)))
        step = train.MomentumOptimizer(0.1, 0.9).minimize(loss)
        reader, saver, last = harness.TableReader(table), train.Saver(), train.Saver(max_to_keep=1)
        harness.initialize(session)
        session.run(step)
        saver.save(session, str(tmp_path / "way" / "m"), write_meta_graph=False)
        real = everything(tmp_path / "real")
        for name in real:
            (tmp_path / "links" / name).symlink_to(tmp_path / "real" / name)
        (before,) = reader.read(session)
        for prefix in ("links/m", "way/m"):
            assert list(problems(open_checkpoint(tmp_path / prefix))) == []
            session.run(step)
            saver.restore(session, str(tmp_path / prefix))
            harness.assert_equal_arrays(reader.read(session)[0], before)
        # A save in place of the links, and one that removes it.
        session.run(step)
        last.save(session, str(tmp_path / "links" / "m"), write_meta_graph=False)
        assert not [path for path in (tmp_path / "links").glob("m.*") if path.is_symlink()]
        (tmp_path / "links" / "m.data-00009-of-00010").symlink_to(tmp_path / "real" / "m.index")
        last.save(session, str(tmp_path / "links" / "m"), write_meta_graph=False)
        last.save(session, str(tmp_path / "links" / "other"), write_meta_graph=False)
    assert {name.partition(".")[0] for name in os.listdir(tmp_path / "links")} == {"checkpoint", "other"}
    assert everything(tmp_path / "real") == real
