"""Restoring a checkpoint that is damaged, incomplete or another variable's is an error; nothing changes.

SOK_TEST_CORRUPTIONS sets how many files are damaged at random.
"""

import functools
import os
import pathlib
import random
import shutil

import numpy as np
import pytest
import tensorflow as tf

import checkpoint_files
import harness
import saved_files
import sparse_operation_kit as sok
from sparse_operation_kit.saver.incremental_hook import IncrementalBuilder

train = tf.compat.v1.train
NAME = "damaged_table"
KEYS = np.arange(-20, 20)
CORRUPTIONS = int(os.environ.get("SOK_TEST_CORRUPTIONS", "40"))


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
        self.increments = train.Saver(sharded=True, builder=IncrementalBuilder())
        self.reader = harness.TableReader(self.table, self.other)

    def state(self, session):
        contents = self.reader.read(session)
        return [array for pair in contents for array in pair] + [session.run(self.dense)]


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    """A directory with a checkpoint "model" of two steps, and "increment" with what changed since."""
    folder = tmp_path_factory.mktemp("good")
    with harness.graph_and_session() as session:
        model = Model()
        harness.initialize(session)
        for _ in range(2):
            session.run(model.step)
        model.increments.save(session, str(folder / "model"))
        session.run(model.table.assign_rows(KEYS[:3], np.ones([3, 4])))
        model.increments.save(session, str(folder / "increment"))
    assert saved_files.chain(folder / "increment", NAME) == ["model"]
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


def assert_refused(folder, errors, match=None, make_model=Model, name="model"):
    """Checks that restoring `name` into tables with rows and into empty ones fails and changes nothing."""
    for session, model in sessions(make_model):
        before = model.state(session)
        with session.graph.as_default(), pytest.raises(errors, match=match):
            model.saver.restore(session, str(folder / name))
        harness.assert_equal_arrays(before, model.state(session))


def copy(good, tmp_path):
    return pathlib.Path(shutil.copytree(good, tmp_path / "copy"))


DAMAGES = {**saved_files.DAMAGES, "missing": lambda path: path.unlink()}
ERRORS = (
    tf.errors.DataLossError,
    tf.errors.NotFoundError,
    tf.errors.InvalidArgumentError,
    tf.errors.FailedPreconditionError,
    ValueError,
)


@pytest.mark.parametrize(
    ("damage", "file", "restored"),
    [
        (damage, file, restored)
        for damage in DAMAGES
        for file in ("model.index", "model.data-00001-of-00002")
        for restored in ("model", "increment")
        # TensorFlow itself would wait for the pipe's writer. What follows the last tensor has no meaning.
        if (damage, file, restored) != ("a pipe", "model.index", "model")
        and (damage, file) != ("huge", "model.data-00001-of-00002")
    ],
)
def test_damaged_files(good, tmp_path, file, damage, restored):
    """Of a checkpoint, and of one that an incremental one builds on."""
    folder = copy(good, tmp_path)
    DAMAGES[damage](folder / file)
    # An index that is not there is TensorFlow's error, which names the prefix.
    assert_refused(folder, ERRORS, str(folder / file.partition(".index")[0]), name=restored)


def tensors_of(folder):
    reader = tf.train.load_checkpoint(str(folder / "model"))
    found = {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}
    return {name: value.decode() if isinstance(value, bytes) else value for name, value in found.items()}


def test_a_table_that_is_gone(good, tmp_path):
    folder = copy(good, tmp_path)
    tensors = {name: value for name, value in tensors_of(folder).items() if not name.startswith(NAME)}
    checkpoint_files.write(folder / "model", tensors)
    assert_refused(folder, tf.errors.NotFoundError, f"model.index' has no '{NAME}'")


def test_a_checkpoint_that_another_program_wrote_again(good, tmp_path):
    """The order of tensors and the names of data files do not matter."""
    folder = copy(good, tmp_path)
    tensors = tensors_of(folder)
    checkpoint_files.write(folder / "model", dict(reversed(list(tensors.items()))), alignment=1)
    session, model = sessions(Model)[0]
    with session.graph.as_default():
        model.saver.restore(session, str(good / "model"))
        wanted = model.state(session)
        session.run(model.step)
        model.saver.restore(session, str(folder / "model"))
    harness.assert_equal_arrays(wanted, model.state(session))


TEXTS = {
    "nothing": "",
    "no table": "some words",
    "no JSON": '{"format":"sparse-operation-kit table",',
    "deeply nested": '{"format":"sparse-operation-kit table","a":' + "[" * 100_000,
}


@pytest.mark.parametrize("case", TEXTS)
def test_texts_that_are_no_table(good, tmp_path, case):
    folder = copy(good, tmp_path)
    checkpoint_files.write(folder / "model", {**tensors_of(folder), NAME: TEXTS[case]})
    assert_refused(folder, (tf.errors.DataLossError, tf.errors.InvalidArgumentError), NAME)


def _of_another_dim():
    return Model(dim=5)


def _of_another_key_dtype():
    return Model(key_dtype=tf.int32)


def _without_hashing():
    return Model(keys=np.arange(40), use_hashtable=False, capacity=100)


@pytest.mark.parametrize("make_model", [_of_another_dim, _of_another_key_dtype, _without_hashing])
def test_a_checkpoint_of_another_variable(good, make_model):
    assert_refused(good, tf.errors.InvalidArgumentError, NAME, make_model)


def test_another_optimizer_is_told_at_its_first_step(good):
    with harness.graph_and_session() as session:
        model = Model(train.GradientDescentOptimizer(0.1))
        saver = train.Saver([model.table])
        harness.initialize(session)
        saver.restore(session, str(good / "model"))
        with pytest.raises(tf.errors.FailedPreconditionError, match=f"{NAME}.*adagrad"):
            session.run(model.step)


def test_random_corruptions(good, tmp_path):
    """If any byte of any file of a chain is changed, either the exact state is restored, or nothing."""
    draw = random.Random(1)
    with harness.graph_and_session() as session:
        model = Model()
        harness.initialize(session)
        model.saver.restore(session, str(good / "increment"))
        want = model.state(session)
        session.run(model.step)
        before = model.state(session)
        files = [path.relative_to(good) for path in good.rglob("*") if path.is_file() and path.stat().st_size]
        refused = 0
        for case in range(CORRUPTIONS):
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
                model.saver.restore(session, str(folder / "increment"))
                expected = want
            except (tf.errors.OpError, ValueError) as error:
                refused += 1
                expected = before
                assert str(folder) in str(error), error
            harness.assert_equal_arrays(expected, model.state(session))
            shutil.rmtree(folder)
            if expected is want:
                session.run(model.step)
                before = model.state(session)
        assert refused > 0
