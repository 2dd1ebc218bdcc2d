"""Tables are tensors of TensorFlow's checkpoint: in a few files, for any TensorFlow to read."""

import pathlib

import numpy as np
import pytest
import tensorflow as tf

import sparse_operation_kit as sok
from sparse_operation_kit.checkpoint import open_checkpoint, problems

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
