# Not on GPUs: files, which are the same: see gpu_checkpoints_test
"""`sok.load` reads what `sok.dump` of SOK 2.x wrote."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

import foreign_checkpoints as foreign
import harness
import sparse_operation_kit.experiment as sok
from sparse_operation_kit.checkpoint import cli

v1 = tf.compat.v1
session = harness.session
DIM = 3
KEYS = np.array([5, 2**30, 7, 11, 0], np.int64)
RNG = np.random.default_rng(0)
VALUES, M, V = (RNG.random([5, DIM], np.float32) for _ in range(3))


def tables():
    slots = {"m": M, "v": V}
    return {
        "scope/users": foreign.Rows(KEYS, VALUES, slots),
        "items": foreign.Rows(KEYS.astype(np.uint32), VALUES + 1, slots),
        "fixed": foreign.Rows(np.arange(5, dtype=np.int32)[::-1].copy(), VALUES + 2, slots),
    }


@pytest.fixture
def folder(tmp_path):
    foreign.sok2(tmp_path / "dump", tables(), "Adam")
    return tmp_path / "dump"


class Model:
    def __init__(self):
        self.users = sok.DynamicVariable(DIM, name="scope/users")
        self.items = sok.DynamicVariable(DIM, name="items")
        self.fixed = sok.Variable(np.zeros([5, DIM]), name="fixed")
        self.all = [self.users, self.items, self.fixed]
        keys = [KEYS, KEYS, np.arange(5)]
        self.rows = [
            tf.nn.embedding_lookup(one, tf.constant(of, tf.int64)) for one, of in zip(self.all, keys)
        ]
        self.optimizer = v1.train.AdamOptimizer(0.1)
        self.train = self.optimizer.minimize(tf.add_n([tf.reduce_sum(one * one) for one in self.rows]))

    def assert_loaded(self, session):
        harness.assert_equal_arrays(session.run(self.rows), (VALUES, VALUES + 1, VALUES[::-1] + 2))


@pytest.mark.parametrize("with_slots", [False, True])
def test_rows_and_slots(session, folder, tmp_path, with_slots):
    model = Model()
    loaded = sok.load(str(folder), model.all, model.optimizer if with_slots else None)
    session.run(v1.global_variables_initializer())
    assert session.run(loaded) == b"OK"
    model.assert_loaded(session)
    v1.train.Saver().save(session, str(tmp_path / "m"))
    reader = tf.train.load_checkpoint(str(tmp_path / "m"))
    assert reader.has_tensor("items#0/slot-m") == with_slots
    if with_slots:
        np.testing.assert_array_equal(reader.get_tensor("items#0/slot-m"), M)
        np.testing.assert_array_equal(reader.get_tensor("fixed#0/slot-v"), V[::-1])


def test_files_of_newer_versions(session, folder):
    (folder / "meta_info").unlink()
    for path in list(folder.iterdir()):
        content = bytearray(path.read_bytes())
        content[:256], content[260:292] = b" " * 256, b" " * 32
        path.unlink()
        name, _, rest = path.name.partition("-")
        path.with_name(f"{name}_0-{rest}").write_bytes(content)
    model = Model()
    loaded = sok.load(str(folder), model.all, model.optimizer)
    session.run(v1.global_variables_initializer())
    session.run(loaded)
    model.assert_loaded(session)


def test_an_optimizer_must_train_the_tables(folder):
    with tf.Graph().as_default():
        table = sok.DynamicVariable(DIM, name="items")
        with pytest.raises(ValueError, match="'items' in this graph yet"):
            sok.load(str(folder), table, v1.train.AdamOptimizer(0.1))


def test_inspect(folder, capsys):
    assert cli.main(["inspect", str(folder), "--brief"]) == 0
    out = capsys.readouterr().out
    assert out.count("written by  SOK 2") == 3 and "scope_users" in out and "Adam/m [3], Adam/v [3]" in out


def test_other_files_that_end_in_key(folder, tmp_path, capsys):
    """They make no folder one of SOK's, nor do its files beside a list of checkpoints without `meta_info`."""
    rows = foreign.Rows(KEYS, VALUES)
    foreign.save(tmp_path / "checkpoints" / "m", foreign.deeprec("items", rows))
    (tmp_path / "checkpoints" / "ssh-key").write_bytes(b"secret")
    for name in ("old-key", "old-weight"):
        (tmp_path / "checkpoints" / name).write_bytes(b"")
        assert cli.main(["inspect", str(tmp_path / "checkpoints"), "--brief"]) == 0
        assert "written by  DeepRec" in capsys.readouterr().out
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "ssh-key").write_bytes(b"secret")
    assert cli.main(["inspect", str(tmp_path / "other")]) == 2
    assert "other: holds no checkpoint" in capsys.readouterr().err
    (folder / "checkpoint").write_text('model_checkpoint_path: "m"')
    (folder / "ssh-key").write_bytes(b"secret")
    assert cli.main(["inspect", str(folder), "--brief"]) == 0
    assert "written by  SOK 2" in capsys.readouterr().out


def damages(folder):
    """Files, what the error names, and their damaged contents."""
    for path in sorted(folder.iterdir()):
        whole = path.read_bytes()
        yield path, path.name, whole[:-1]
        yield path, path.name, whole + b"?"
        yield path, path.name, whole[:100]
        yield path, path.name, b""
        if path.name != "meta_info":
            yield path, path.name, None
        # In each fact of the first table, and in each part of a head.
        for place in (3, 7, 19, 31, 47, 64, 319, 832, 863) if path.name == "meta_info" else (255, 259, 295):
            yield path, "", whole[:place] + bytes([whole[place] ^ 255]) + whole[place + 1 :]
        if path.name.endswith("m"):
            yield path, path.name, whole[:291] + b"u" + whole[292:]


def test_damage(session, folder):
    model = Model()
    loaded = sok.load(str(folder), model.all, model.optimizer)
    session.run(v1.global_variables_initializer())
    session.run(loaded)
    count = 0
    for path, name, content in list(damages(folder)):
        whole = path.read_bytes()
        path.unlink()
        if content is not None:
            path.write_bytes(content)
        is_slot = path.name.endswith(("-m", "-v"))
        with pytest.raises(tf.errors.OpError) as caught:
            session.run(loaded)
        assert name in str(caught.value) or (is_slot and "Adam" in str(caught.value)), (path, content)
        assert "dump" in str(caught.value)
        model.assert_loaded(session)
        path.write_bytes(whole)
        count += 1
    assert count > 60


def test_links(folder, tmp_path, capsys):
    (tmp_path / "way").symlink_to("dump")
    assert cli.main(["verify", str(tmp_path / "way")]) == 0
    for name in ("meta_info", "items-key", "items-weight", "items-Adam-m"):
        kept = (folder / name).rename(tmp_path / "kept")
        (folder / name).symlink_to(kept)
        assert cli.main(["inspect", str(folder), "--brief"]) == 2
        assert f"{name}' is a symbolic link" in capsys.readouterr().err
        (folder / name).unlink()
        kept.rename(folder / name)


@pytest.mark.parametrize(
    "name, keys", [("fixed", [0, 1, 2, 3, 3]), ("fixed", [0, 1, 2, 3, 5]), ("items", [1, 2, 3, 2, 4])]
)
def test_wrong_keys(session, tmp_path, name, keys):
    foreign.sok2(tmp_path / "dump", {name: foreign.Rows(np.array(keys), VALUES)})
    model = Model()
    loaded = sok.load(str(tmp_path / "dump"), getattr(model, name))
    session.run(v1.global_variables_initializer())
    with pytest.raises(tf.errors.OpError, match=f"{name}.*(twice|no row for the key 5)"):
        session.run(loaded)
