"""Tables are tensors of TensorFlow's checkpoint: in a few files, for any TensorFlow to read."""

import json
import pathlib

import numpy as np
import pytest
import tensorflow as tf

import sparse_operation_kit as sok
from sparse_operation_kit.checkpoint import open_checkpoint, problems, reader
from sparse_operation_kit.saver.incremental_hook import IncrementalBuilder

v1 = tf.compat.v1
train = v1.train


def model(count, dense=True):
    """Adds `count` trained tables, and returns them, an op that trains them, and one that initializes."""
    tables = [sok.EmbeddingVariable(f"t{number}", dim=2 + number) for number in range(count)]
    keys = tf.constant([5, -6, 2**40], tf.int64)
    loss = tf.add_n([tf.reduce_sum(tf.nn.embedding_lookup(table, keys)) for table in tables])
    if dense:
        loss *= v1.get_variable("scale", initializer=2.0)
    return tables, train.MomentumOptimizer(0.1, 0.9).minimize(loss)


@pytest.fixture
def session():
    with tf.Graph().as_default(), v1.Session() as sess:
        sess.run(sok.Init(global_batch_size=3))
        yield sess


def names_in(folder):
    return sorted(path.name for path in pathlib.Path(folder).iterdir())


def test_any_number_of_tables_takes_one_file_beside_tensorflows(session, tmp_path):
    _, step = model(20)
    session.run(v1.global_variables_initializer())
    session.run(step)
    train.Saver().save(session, str(tmp_path / "m"), write_meta_graph=False)
    assert names_in(tmp_path) == ["checkpoint", "m.data-00000-of-00002", "m.data-00001-of-00002", "m.index"]


def test_tensorflow_reads_the_rows(session, tmp_path):
    tables, step = model(2)
    session.run(v1.global_variables_initializer())
    session.run(step)
    prefix = train.Saver().save(session, str(tmp_path / "m"))
    checkpoint = tf.train.load_checkpoint(prefix)
    assert json.loads(checkpoint.get_tensor("t1"))["table"]["dim"] == 3
    keys = checkpoint.get_tensor("t1#0/keys")
    assert sorted(keys.tolist()) == [-6, 5, 2**40]
    rows = session.run(tf.nn.embedding_lookup(tables[1], tf.constant(keys)))
    np.testing.assert_array_equal(checkpoint.get_tensor("t1#0/values"), rows)
    assert checkpoint.get_variable_to_shape_map()["t1#0/slot-momentum"] == [3, 3]
    assert checkpoint.get_tensor("scale") != 2.0


@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.parametrize("sharded", [False, True])
def test_a_saver_restores_what_it_saved(session, tmp_path, dense, sharded):
    tables, step = model(2, dense)
    rows = [tf.nn.embedding_lookup(table, tf.constant([5, -6], tf.int64)) for table in tables]
    session.run(v1.global_variables_initializer())
    session.run(step)
    saver = train.Saver(sharded=sharded)
    prefix = saver.save(session, str(tmp_path / "m"))
    before = session.run([rows, v1.global_variables()[len(tables) :]])
    session.run(step)
    saver.restore(session, prefix)
    after = session.run([rows, v1.global_variables()[len(tables) :]])
    for old, new in zip(tf.nest.flatten(before), tf.nest.flatten(after)):
        np.testing.assert_array_equal(old, new)


def test_a_repeated_save_leaves_only_its_own_files(session, tmp_path):
    _, step = model(1)
    session.run(v1.global_variables_initializer())
    saver = train.Saver()
    for _ in range(3):
        session.run(step)
        prefix = saver.save(session, str(tmp_path / "m"), write_meta_graph=False)
        assert len(names_in(tmp_path)) == 4
    tf.train.load_checkpoint(prefix).get_tensor("t0#0/values")


def test_old_checkpoints_go_and_bases_of_increments_stay(session, tmp_path):
    _, step = model(1)
    session.run(v1.global_variables_initializer())
    saver = train.Saver(max_to_keep=1, sharded=True, builder=IncrementalBuilder())
    for number in range(3):
        session.run(step)
        saver.save(session, str(tmp_path / "m"), number)
    indexes = [name for name in names_in(tmp_path) if "index" in name]
    assert indexes == ["m-0.sok-index", "m-1.sok-index", "m-2.index"]
    assert reader.open_saved(str(tmp_path / "m-2")).facts.chains == ("m-0", "m-1")
    before = session.run(v1.global_variables()[1:])
    saver.restore(session, str(tmp_path / "m-2"))
    np.testing.assert_array_equal(session.run(v1.global_variables()[1:]), before)
    full = train.Saver(max_to_keep=1)
    full.save(session, str(tmp_path / "m"), 3)
    (tmp_path / "m-2.index").unlink()
    full.save(session, str(tmp_path / "m"), 4)
    assert [name for name in names_in(tmp_path) if "index" in name] == ["m-4.index"]


def test_links_are_followed_by_readers_and_replaced_by_saves(session, tmp_path):
    """As TensorFlow's own files: what a link leads to is read, and never written or removed."""
    _, step = model(1)
    session.run(v1.global_variables_initializer())
    session.run(step)
    saver = train.Saver()
    (tmp_path / "real").mkdir()
    (tmp_path / "links").mkdir()
    (tmp_path / "way").symlink_to("real")
    saver.save(session, str(tmp_path / "way" / "m"), write_meta_graph=False)
    real = {path.name: path.read_bytes() for path in (tmp_path / "real").iterdir()}
    for name in real:
        (tmp_path / "links" / name).symlink_to(tmp_path / "real" / name)
    before = session.run(v1.global_variables()[1:])
    for prefix in ("links/m", "way/m"):
        assert list(problems(open_checkpoint(tmp_path / prefix))) == []
        session.run(step)
        saver.restore(session, str(tmp_path / prefix))
        np.testing.assert_array_equal(session.run(v1.global_variables()[1:]), before)
    # A save in place of the links, and one that removes it.
    session.run(step)
    saver = train.Saver(max_to_keep=1)
    saver.save(session, str(tmp_path / "links" / "m"), write_meta_graph=False)
    assert not [path for path in (tmp_path / "links").glob("m.*") if path.is_symlink()]
    (tmp_path / "links" / "m.data-00009-of-00010").symlink_to(tmp_path / "real" / "m.index")
    saver.save(session, str(tmp_path / "links" / "m"), write_meta_graph=False)
    saver.save(session, str(tmp_path / "links" / "other"), write_meta_graph=False)
    assert sorted({name.partition(".")[0] for name in names_in(tmp_path / "links")}) == [
        "checkpoint",
        "other",
    ]
    assert {path.name: path.read_bytes() for path in (tmp_path / "real").iterdir()} == real
