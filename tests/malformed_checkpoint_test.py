"""Restoring a checkpoint that is damaged, incomplete or another variable's is an error; nothing changes."""

import functools
import json
import os
import pathlib
import random
import shutil
import zlib

import numpy as np
import pytest
import tensorflow as tf

import harness
import saved_files
import sparse_operation_kit as sok
from same_length import zip_equal

train = tf.compat.v1.train
NAME = "damaged_table"
KEYS = np.arange(-20, 20)


class Model:
    """A table, a second one, and a dense variable, whose checkpoint is damaged."""

    def __init__(self, optimizer=None, dim=4, keys=KEYS, **arguments):
        self.table = sok.EmbeddingVariable(name=NAME, dim=dim, **arguments)
        self.other = sok.EmbeddingVariable(name="another", dim=2)
        self.dense = tf.compat.v1.get_variable("dense", initializer=1.0)
        keys = tf.constant(keys, self.table.key_dtype)
        losses = [
            tf.reduce_sum(tf.square(tf.nn.embedding_lookup(self.table, keys) * self.dense)),
            tf.reduce_sum(tf.square(tf.nn.embedding_lookup(self.other, KEYS))),
        ]
        optimizer = optimizer or train.AdagradOptimizer(0.1)
        self.step = optimizer.minimize(tf.add_n(losses))
        self.saver = train.Saver()
        self.reader = harness.TableReader(self.table, self.other)

    def state(self, session):
        contents = self.reader.read(session)
        return [array for pair in contents for array in pair] + [session.run(self.dense)]


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    """A directory with a checkpoint "model" of two steps."""
    folder = tmp_path_factory.mktemp("good")
    with harness.graph_and_session() as session:
        model = Model()
        harness.initialize(session)
        for _ in range(2):
            session.run(model.step)
        model.saver.save(session, str(folder / "model"))
    return folder


@functools.lru_cache(maxsize=None)
def sessions(make_model):
    """Two sessions with models: the tables of one have rows, those of the other are empty."""
    made = []
    for used in (True, False):
        graph = tf.Graph()
        session = tf.compat.v1.Session(graph=graph)
        with graph.as_default():
            session.run(sok.Init(global_batch_size=harness.GLOBAL_BATCH_SIZE, seed=harness.SEED))
            model = make_model()
            session.run(tf.compat.v1.global_variables_initializer())
        if used:
            session.run(model.step)
        made.append((session, model))
    return made


def assert_refused(folder, errors, match=None, make_model=Model):
    """Checks that restoring "model" into tables with rows and into empty ones fails and changes nothing."""
    for session, model in sessions(make_model):
        before = model.state(session)
        with session.graph.as_default(), pytest.raises(errors, match=match):
            model.saver.restore(session, str(folder / "model"))
        for was, now in zip_equal(before, model.state(session)):
            np.testing.assert_array_equal(now, was)


def table_file(folder, file):
    files = saved_files.of(pathlib.Path(folder, "model"), file)
    (found,) = (path for path in files if path.name.startswith(f"model.sok-{NAME}-"))
    return found


def copy(good, tmp_path):
    return pathlib.Path(shutil.copytree(good, tmp_path / "copy"))


def _flip(position):
    def damage(path):
        content = bytearray(path.read_bytes())
        content[position] ^= 0x40
        path.write_bytes(content)

    return damage


def _resize(change):
    def damage(path):
        content = path.read_bytes()
        path.write_bytes(content[:change] if change < 0 else content + b"\0" * change)

    return damage


DAMAGES = {
    "missing": lambda path: path.unlink(),
    "empty": lambda path: path.write_bytes(b""),
    "cut": _resize(-3),
    "longer": _resize(8),
    "a flipped bit in the middle": _flip(200),
    "a flipped bit at the start": _flip(1),
    "a flipped bit at the end": _flip(-3),
    "another file": lambda path: path.write_bytes(b"something else" * 1000),
    "a folder": lambda path: (path.unlink(), path.mkdir()),
}
FILES = [
    "shard-00000/keys.npy",
    "shard-00000/values.npy",
    "shard-00000/slot-accumulator.npy",
    "manifest.json",
]


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("file", FILES)
def test_damaged_files(good, tmp_path, file, damage):
    folder = copy(good, tmp_path)
    DAMAGES[damage](table_file(folder, file))
    errors = (tf.errors.DataLossError, tf.errors.NotFoundError, tf.errors.InvalidArgumentError)
    assert_refused(folder, errors, os.path.basename(file))


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("file", FILES)
def test_damaged_files_of_an_earlier_version(good, tmp_path, file, damage):
    folder = copy(good, tmp_path)
    (table,) = saved_files.move_into_folder(folder / "model").glob(f"{NAME}-*")
    DAMAGES[damage](table / file)
    errors = (tf.errors.DataLossError, tf.errors.NotFoundError, tf.errors.InvalidArgumentError)
    assert_refused(folder, errors, os.path.basename(file))


def test_a_table_that_is_gone(good, tmp_path):
    folder = copy(good, tmp_path)
    manifest = table_file(folder, "manifest.json")
    for path in folder.glob(f"model.sok-{NAME}-*"):
        path.unlink()
    assert_refused(folder, tf.errors.NotFoundError, manifest.name)


def test_a_folder_of_an_earlier_version_that_is_gone(good, tmp_path):
    folder = copy(good, tmp_path)
    (table,) = saved_files.move_into_folder(folder / "model").glob(f"{NAME}-*")
    shutil.rmtree(table)
    assert_refused(folder, tf.errors.NotFoundError, table.name)


def test_files_of_another_table(good, tmp_path):
    """The files are valid, but not those that TensorFlow's checkpoint refers to."""
    folder = copy(good, tmp_path)
    with harness.graph_and_session() as session:
        model = Model()
        harness.initialize(session)
        session.run(model.step)
        model.saver.save(session, str(tmp_path / "other" / "model"))
    for mine, other in zip_equal(
        saved_files.of(folder / "model"), saved_files.of(tmp_path / "other" / "model")
    ):
        assert mine.name.split(".")[2:] == other.name.split(".")[2:]
        shutil.copy(other, mine)
    assert_refused(folder, tf.errors.DataLossError, "manifest.json")


def test_the_data_of_tensorflow_damaged(good, tmp_path):
    """The damaged file is the dense variable's; the tables must not have changed when the error is found."""
    folder = copy(good, tmp_path)
    (data,) = folder.glob("model.data-*")
    data.write_bytes(bytes(byte ^ 0xFF for byte in data.read_bytes()))
    assert_refused(folder, tf.errors.DataLossError, str(folder / "model"))


def _with_reference(folder, change):
    """Writes TensorFlow's checkpoint again with another reference."""
    reader = tf.train.load_checkpoint(str(folder / "model"))
    values = {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}
    values[NAME] = change(values[NAME])
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        names = sorted(values)
        tensors = [tf.constant(values[name]) for name in names]
        session.run(
            tf.raw_ops.SaveV2(
                prefix=str(folder / "model"),
                tensor_names=names,
                shape_and_slices=[""] * len(names),
                tensors=tensors,
            )
        )


REFERENCES = {
    "nothing": lambda reference: b"",
    "no JSON": lambda reference: reference[:-1],
    "a list": lambda reference: b"[1, 2]",
    "deeply nested": lambda reference: b"[" * 100_000,
    "no folder": lambda reference: json.dumps({"manifest_crc32": 1}).encode(),
    "a number for a folder": lambda reference: json.dumps({**json.loads(reference), "folder": 7}).encode(),
    "an empty folder": lambda reference: json.dumps({**json.loads(reference), "folder": ""}).encode(),
    "an absent folder": lambda reference: reference.replace(NAME.encode(), b"no_table"),
    "another checksum": lambda reference: json.dumps({**json.loads(reference), "manifest_crc32": 1}).encode(),
    "zero bytes": lambda reference: reference.replace(b"model", b"mo\0el"),
}


@pytest.mark.parametrize("case", REFERENCES)
def test_references_that_lead_nowhere(good, tmp_path, case):
    folder = copy(good, tmp_path)
    _with_reference(folder, REFERENCES[case])
    errors = (tf.errors.DataLossError, tf.errors.NotFoundError, tf.errors.InvalidArgumentError)
    assert_refused(folder, errors)


def _of_another_dim():
    return Model(dim=5)


def _of_another_key_dtype():
    return Model(key_dtype=tf.int32)


def _without_hashing():
    return Model(keys=np.arange(40), use_hashtable=False, capacity=100)


@pytest.mark.parametrize("make_model", [_of_another_dim, _of_another_key_dtype, _without_hashing])
def test_a_checkpoint_of_another_variable(good, make_model):
    assert_refused(good, tf.errors.InvalidArgumentError, NAME, make_model)


def test_more_rows_than_the_capacity(good):
    with harness.graph_and_session() as session:
        built = Model(capacity=len(KEYS) - 1)
        harness.initialize(session)
        with pytest.raises(tf.errors.ResourceExhaustedError, match=f"{NAME}.*{len(KEYS) - 1}"):
            built.saver.restore(session, str(good / "model"))
        assert session.run([built.table.size(), built.other.size(), built.dense]) == [0, 0, 1.0]


def test_another_optimizer_is_told_at_its_first_step(good):
    with harness.graph_and_session() as session:
        model = Model(train.GradientDescentOptimizer(0.1))
        saver = train.Saver([model.table])
        harness.initialize(session)
        saver.restore(session, str(good / "model"))
        with pytest.raises(tf.errors.FailedPreconditionError, match=f"{NAME}.*adagrad"):
            session.run(model.step)


def test_random_corruptions(good, tmp_path):
    """If any byte of any file is changed, either the exact state is restored, or nothing."""
    draw = random.Random(1)
    with harness.graph_and_session() as session:
        model = Model()
        harness.initialize(session)
        model.saver.restore(session, str(good / "model"))
        want = model.state(session)
        session.run(model.step)
        before = model.state(session)
        files = [path.relative_to(good) for path in good.rglob("*") if path.is_file() and path.stat().st_size]
        refused = 0
        for case in range(int(os.environ.get("SOK_TEST_CORRUPTIONS", "40"))):
            folder = pathlib.Path(shutil.copytree(good, tmp_path / str(case)))
            path = folder / draw.choice(files)
            content = bytearray(path.read_bytes())
            position = draw.randrange(len(content))
            if draw.random() < 0.2:
                del content[position:]
            else:
                content[position] ^= 1 << draw.randrange(8)
            path.write_bytes(content)
            try:
                model.saver.restore(session, str(folder / "model"))
                expected = want
            except (tf.errors.OpError, ValueError) as error:
                refused += 1
                expected = before
                assert str(folder) in str(error) or path.suffix not in (".npy", ".json"), error
            for was, now in zip_equal(expected, model.state(session)):
                np.testing.assert_array_equal(now, was)
            shutil.rmtree(folder)
            if expected is want:
                session.run(model.step)
                before = model.state(session)
        assert refused > 0


def test_checksums_are_those_of_zlib(good):
    """So other programs can check them."""
    text = table_file(good, "manifest.json").read_bytes()
    manifest = json.loads(text)
    assert manifest["crc32"] == zlib.crc32(text[: text.rindex(b'"crc32"')])
    block = manifest["block_bytes"]
    for entry in manifest["shards"][0]["arrays"].values():
        content = table_file(good, entry["file"]).read_bytes()
        assert len(content) == entry["bytes"]
        blocks = [content[begin : begin + block] for begin in range(0, len(content), block)]
        assert [zlib.crc32(one) for one in blocks] == entry["crc32"]
