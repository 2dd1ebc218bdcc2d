# Tags: versions
"""sok.serving.Follower: a session that serves has each save of a training job, whole."""

import os
import textwrap
import threading
import time

import numpy as np
import pytest
import tensorflow as tf

import forked
import harness
import saved_files
import sparse_operation_kit as sok
from sparse_operation_kit.checkpoint import CheckpointError, open_checkpoint, row_blocks, waiting_ids
from sparse_operation_kit.lookup.group import DenseLookup, lookup_group
from sparse_operation_kit.saver.incremental_hook import IncrementalBuilder

v1 = tf.compat.v1
KEYS = np.concatenate([harness.HOSTILE_KEYS, np.arange(100, 120)])


def make_tables():
    return [sok.EmbeddingVariable("scope/one", 2, initializer=0.0), sok.EmbeddingVariable("two", 3)]


class Trainer:
    """A session that changes rows of two tables and a variable, and saves to a directory."""

    def __init__(self, directory, optimizer=None):
        self.directory, self.saves = directory, 0
        self.session = v1.Session(graph=tf.Graph(), config=harness.session_config())
        with self.session.graph.as_default():
            sok.Init(global_batch_size=harness.GLOBAL_BATCH_SIZE, seed=harness.SEED)
            self.tables = make_tables()
            self.dense = v1.get_variable("dense", [2], initializer=v1.zeros_initializer())
            self.ids = v1.placeholder(tf.int64, [None])
            rows = [tf.nn.embedding_lookup(table, self.ids) for table in self.tables]
            loss = tf.add_n([tf.reduce_sum(tf.sin(one)) for one in rows]) + tf.reduce_sum(self.dense)
            rule = optimizer or v1.train.AdagradOptimizer(0.5)
            self.step = rule.minimize(loss, v1.train.get_or_create_global_step())
            self.erased = v1.placeholder(tf.int64, [None])
            self.erase = [table.evict(self.erased) for table in self.tables]
            self.full = v1.train.Saver()
            self.incremental = v1.train.Saver(builder=IncrementalBuilder())
            self.contents = [table.keys_and_rows() for table in self.tables]
            self.session.run([sok.Init(global_batch_size=harness.GLOBAL_BATCH_SIZE, seed=harness.SEED)])
            self.session.run(v1.global_variables_initializer())

    def train(self, ids):
        self.session.run(self.step, {self.ids: ids})

    def save(self, incremental=True):
        self.saves += 1
        saver = self.incremental if incremental else self.full
        prefix = os.path.join(self.directory, "model.ckpt")
        with self.session.graph.as_default():
            return saver.save(self.session, prefix, self.saves, write_meta_graph=False)


class Server:
    """A session without an optimizer that follows the directory."""

    def __init__(self, directory):
        self.session = v1.Session(graph=tf.Graph(), config=harness.session_config())
        with self.session.graph.as_default():
            sok.Init(global_batch_size=harness.GLOBAL_BATCH_SIZE, seed=harness.SEED)
            self.tables = make_tables()
            self.dense = v1.get_variable("dense", [2])
            self.ids = v1.placeholder(tf.int64, [None])
            lookups = [DenseLookup(table, self.ids) for table in self.tables]
            self.rows = lookup_group(lookups, training=False)
            self.contents = [table.keys_and_rows() for table in self.tables]
        self.follower = sok.serving.Follower(self.session, directory)


def state(one):
    """Of a trainer or server, the rows of each table by key, and the variable."""
    contents = [dict(zip(*pair)) for pair in one.session.run(one.contents)]
    return contents, one.session.run(one.dense)


def count_whole_loads(server, monkeypatch):
    """A list that grows with each load of a whole checkpoint."""
    loads, saver = [], server.follower._everything
    restore = saver.restore
    monkeypatch.setattr(saver, "restore", lambda *arguments: (loads.append(arguments), restore(*arguments)))
    return loads


def test_it_loads_a_whole_checkpoint_and_then_what_changes(tmp_path, monkeypatch):
    trainer, server = Trainer(str(tmp_path)), Server(str(tmp_path))
    loads = count_whole_loads(server, monkeypatch)
    assert server.follower.update() is None and server.follower.prefix is None
    rng = np.random.default_rng(0)
    for number in range(6):
        trainer.train(rng.choice(KEYS, 10))
        if number % 3 == 1:
            trainer.session.run(trainer.erase, {trainer.erased: KEYS[:4]})
        prefix = trainer.save()
        if number == 3:
            continue  # The next update has two saves to load.
        assert server.follower.update() == prefix == server.follower.prefix
        np.testing.assert_equal(state(server), state(trainer))
        assert server.follower.update() is None
    assert len(loads) == 1
    assert saved_files.entry(prefix, "two")["kind"] == "delta"
    # Another full one, which does not build on what the session has.
    trainer.train(KEYS)
    trainer.save(incremental=False)
    server.follower.update()
    np.testing.assert_equal(state(server), state(trainer))
    assert len(loads) == 2


def test_increments_of_exact_adam_are_loaded_whole(tmp_path, monkeypatch):
    trainer, server = Trainer(str(tmp_path), v1.train.AdamOptimizer(0.1)), Server(str(tmp_path))
    loads = count_whole_loads(server, monkeypatch)
    for number in range(3):
        trainer.train(KEYS[number:])
        trainer.save()
        server.follower.update()
        np.testing.assert_equal(state(server), state(trainer))
    assert len(loads) == 3


@pytest.mark.parametrize("what", ["rows", "variable", "file"])
def test_a_damaged_save_leaves_the_last_state(tmp_path, what):
    trainer, server = Trainer(str(tmp_path)), Server(str(tmp_path))
    trainer.train(KEYS)
    trainer.save()
    server.follower.update()
    before = state(server)
    trainer.train(KEYS[:5])
    prefix = trainer.save()
    if what == "variable":
        path = f"{prefix}.data-00000-of-00002"
        offset = os.path.getsize(path) - 1
    else:
        path, offset, size = saved_files.place(prefix, "two", "values")
        offset += size - 1
    with open(path, "r+b") as file:
        file.seek(offset)
        good = file.read(1)
        file.seek(offset)
        file.write(bytes([good[0] ^ 1]))
    hidden = f"{path}.hidden"
    if what == "file":
        os.rename(path, hidden)
    with pytest.raises((CheckpointError, tf.errors.OpError)) as raised:
        server.follower.update()
    assert server.follower.error is raised.value
    np.testing.assert_equal(state(server), before)
    if what == "file":
        os.rename(hidden, path)
    with open(path, "r+b") as file:
        file.seek(offset)
        file.write(good)
    assert server.follower.update() == prefix and server.follower.error is None
    np.testing.assert_equal(state(server), state(trainer))


def test_requests_see_all_of_a_save_or_none(tmp_path):
    """Also those that do not tell the follower that they read: tables of one lookup change together."""
    trainer, server = Trainer(str(tmp_path)), Server(str(tmp_path))
    one, two = trainer.tables
    with trainer.session.graph.as_default():
        number = v1.placeholder(tf.float32, [])
        keys = tf.range(2000, dtype=tf.int64)
        assign = [
            one.assign_rows(keys, tf.fill([2000, 2], number)),
            two.assign_rows(keys, tf.fill([2000, 3], number)),
            trainer.dense.assign(tf.fill([2], number)),
        ]

    def save(value):
        trainer.session.run(assign, {number: value})
        trainer.save()

    save(0)
    server.follower.update()
    seen, failures, done = set(), [], threading.Event()

    def request(told):
        while not done.is_set():
            try:
                feed = {server.ids: np.arange(0, 2000, 7)}
                if told:
                    with server.follower.reading():
                        rows = [*server.session.run(server.rows, feed), server.session.run(server.dense)]
                else:
                    rows = server.session.run(server.rows, feed)
                found = np.unique(np.concatenate([array.ravel() for array in rows]))
                assert found.size == 1, found
                seen.add(float(found[0]))
            except Exception as error:
                failures.append(error)
                return

    threads = [threading.Thread(target=request, args=(told,)) for told in (True, False, True)]
    server.follower.start(seconds=0.01)
    with pytest.raises(RuntimeError, match="start was called before"):
        server.follower.start()
    for thread in threads:
        thread.start()
    for value in range(1, 8):
        save(value)
        deadline = time.monotonic() + 60
        while value not in seen and not failures and time.monotonic() < deadline:
            time.sleep(0.01)
    done.set()
    for thread in threads:
        thread.join()
    server.follower.stop()
    assert not failures, failures[0]
    assert {1.0, 7.0} <= seen


def test_graphs_that_cannot_follow(tmp_path):
    trainer = Trainer(str(tmp_path))
    with pytest.raises(ValueError, match="graph trains tables"):
        sok.serving.Follower(trainer.session, tmp_path)
    with tf.Graph().as_default(), v1.Session() as session:
        v1.get_variable("alone", [2])
        with pytest.raises(ValueError, match="no embedding variable"):
            sok.serving.Follower(session, tmp_path)


@pytest.mark.skipif(not hasattr(v1, "estimator"), reason="this TensorFlow has no Estimator")
def test_an_estimators_model_follows_its_training(tmp_path):
    def model_fn(features, labels, mode):
        del labels
        sok.Init(global_batch_size=harness.GLOBAL_BATCH_SIZE, seed=harness.SEED)
        table = sok.EmbeddingVariable("items", 2, initializer=0.0, admission=sok.CounterFilter(2))
        rows = tf.nn.embedding_lookup(table, features["ids"]) * v1.get_variable("scale", [2])
        if mode == tf.estimator.ModeKeys.PREDICT:
            return tf.estimator.EstimatorSpec(mode, predictions={"rows": rows})
        loss = tf.reduce_sum(tf.square(rows - 1))
        step = v1.train.AdagradOptimizer(0.1).minimize(loss, v1.train.get_global_step())
        return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=step)

    def receiver():
        inputs = {"ids": v1.placeholder(tf.int64, [None])}
        return tf.estimator.export.ServingInputReceiver(inputs, inputs)

    def dataset(ids):
        return tf.data.Dataset.from_tensors({"ids": tf.constant(ids, tf.int64)}).repeat()

    directory = str(tmp_path / "model")
    estimator = tf.estimator.Estimator(model_fn, directory)

    def train(ids):
        hook = sok.IncrementalCheckpointHook(directory, save_steps=2)
        estimator.train(lambda: dataset(ids), hooks=[hook], steps=3)

    train([3, 5, 8, 3])
    # 70 has occurred once, and waits.
    estimator.train(lambda: dataset([3, 70]), steps=1)
    assert waiting_ids(table_of(estimator.latest_checkpoint()))[0].tolist() == [70]
    exported = estimator.export_saved_model(str(tmp_path / "exported"), receiver).decode()
    written = table_of(os.path.join(exported, "variables", "variables"))
    assert set(key for block in row_blocks(written, ()) for key in block.keys) == {3, 5, 8}
    assert waiting_ids(written)[0].size == 0

    session = v1.Session(graph=tf.Graph(), config=harness.session_config())
    with session.graph.as_default():
        model = v1.saved_model.load(session, [tf.saved_model.SERVING], exported)
    signature = model.signature_def["serving_default"]
    follower = sok.serving.Follower(session, directory)
    asked = [3, 5, 8, 9, 70]

    def served():
        with follower.reading():
            return session.run(signature.outputs["rows"].name, {signature.inputs["ids"].name: asked})

    def predicted():
        return [one["rows"] for one in estimator.predict(lambda: dataset(asked).take(1))]

    answers = [served()]
    np.testing.assert_array_equal(answers[0], predicted())
    for ids in [[3], [9, 70]]:
        train(ids)
        assert follower.update() == estimator.latest_checkpoint()
        answers.append(served())
        np.testing.assert_array_equal(answers[-1], predicted())
    assert [not np.array_equal(*pair) for pair in zip(answers, answers[1:])] == [True, True]


def table_of(prefix):
    """The only table of a checkpoint."""
    (table,) = open_checkpoint(prefix).select(None)
    return table.open()


def test_all_rows_of_the_last_save_of_a_killed_trainer_are_served(tmp_path):
    program = tmp_path / "train.py"
    program.write_text(
        textwrap.dedent(
            """
            import sys
            import numpy as np
            import serving_follower_test as shared
            trainer = shared.Trainer(sys.argv[1])
            rng = np.random.default_rng(3)
            while True:
                trainer.train(rng.integers(0, 5000, 200))
                trainer.save()
            """
        )
    )
    folder = tmp_path / "saves"
    folder.mkdir()
    server = Server(str(folder))
    process = forked.start(program, str(folder), output=tmp_path / "output")
    updates = 0
    deadline = time.monotonic() + 120
    while updates < 4 and time.monotonic() < deadline:
        updates += server.follower.update() is not None
        time.sleep(0.05)
    process.kill()
    process.wait()
    server.follower.update()
    assert updates == 4
    prefix = tf.train.latest_checkpoint(str(folder))
    assert server.follower.prefix == prefix
    for entry, rows in zip(open_checkpoint(prefix).tables, state(server)[0]):
        saved = {}
        for block in row_blocks(entry.open()):
            saved.update(zip(block.keys.tolist(), block.columns["values"]))
        assert saved.keys() == set(rows)
        for key, row in saved.items():
            np.testing.assert_array_equal(rows[key], row)
