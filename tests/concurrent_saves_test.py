"""Processes that save to one folder at the same time, such as an old trainer and its restart, lose nothing.

SOK_TEST_CONCURRENT_SAVES sets how many checkpoints each of them saves.
"""

import os
import random
import signal
import sys
import threading
import time

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.training.saving import saveable_object

import forked
import harness
import saved_files
import sparse_operation_kit as sok
from same_length import zip_equal
from sparse_operation_kit.checkpoint import (
    CheckpointError,
    compact,
    compaction,
    open_checkpoint,
    prefix_lock,
    problems,
    reader,
)
from sparse_operation_kit.saver import retention
from sparse_operation_kit.saver.incremental_hook import IncrementalBuilder

train = tf.compat.v1.train
SAVES = int(os.environ.get("SOK_TEST_CONCURRENT_SAVES", "30"))


class Model:
    """Two tables, in which every row has the value that was assigned last."""

    def __init__(self, session, **options):
        self.session = session
        self.value = tf.compat.v1.placeholder(tf.float32, [])
        tables = [sok.EmbeddingVariable(name, dim=2) for name in ("a", "b")]
        keys = tf.range(50, dtype=tf.int64)
        self.rows = [tf.nn.embedding_lookup(table, keys) for table in tables]
        values = tf.fill([50, 2], self.value)
        self.assign = [sok.Saver().load_embedding_values(table, values) for table in tables]
        self.saver = train.Saver(**options)
        harness.initialize(session)

    def save(self, prefix, value):
        self.session.run(self.assign, {self.value: value})
        return self.saver.save(self.session, str(prefix), write_meta_graph=False)

    def restored(self, prefix):
        self.saver.restore(self.session, str(prefix))
        values = np.unique(self.session.run(self.rows))
        assert len(values) == 1, values
        return values[0]


@pytest.fixture
def session():
    with harness.graph_and_session() as session:
        yield session


def names(folder, pattern):
    return sorted(path.name for path in folder.glob(pattern))


class Pause(saveable_object.SaveableObject):
    """A part of a checkpoint that is not ready before `go` is set, so that TensorFlow's files wait for it."""

    def __init__(self):
        self.go = threading.Event()
        tensor = tf.numpy_function(self._wait, [], tf.float32)
        super().__init__(tensor, [saveable_object.SaveSpec(tensor, "", "pause", tf.float32)], "pause")

    def _wait(self):
        self.go.wait(60)
        return np.float32(0)

    def restore(self, restored_tensors, restored_shapes):
        return tf.no_op()


def wait_for(condition):
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.parametrize("builder", [None, IncrementalBuilder])
def test_tables_that_wait_for_tensorflows_part_stay(tmp_path, builder):
    """Another save ends after the tables are complete, but before `.index` exists."""
    with harness.graph_and_session() as session:
        model = Model(session)
        pause = Pause()
        slow = train.Saver([*tf.compat.v1.global_variables(), pause], builder=builder and builder())
        session.run(model.assign, {model.value: 1})

        def save():
            with session.graph.as_default():
                slow.save(session, str(tmp_path / "m-1"), write_meta_graph=False)

        saving = threading.Thread(target=save)
        saving.start()
        wait_for(lambda: names(tmp_path, "m-1.sok-*.part-0.index"))
        with harness.graph_and_session() as another:
            other = Model(another)
            other.save(tmp_path / "m-2", 2)
        pause.go.set()
        saving.join()
        assert model.restored(tmp_path / "m-1") == 1
        assert other_value(tmp_path / "m-2") == 2
    assert not list(tmp_path.glob("*.lock"))


def other_value(prefix):
    with harness.graph_and_session() as session:
        return Model(session).restored(prefix)


def test_unfinished_tables_stay_while_their_save_lives(tmp_path, session):
    model = Model(session)
    unfinished = [
        "m-1.data-00000-of-00002",
        "m-1.sok-0123456789abcdef.part-1.data-00000-of-00001",
        "m-1.sok-0123456789abcdef.plan",
    ]
    for name in unfinished:
        (tmp_path / name).touch()
    with prefix_lock.acquire(str(tmp_path / "m-1"), 0):
        model.save(tmp_path / "m-2", 2)
        assert names(tmp_path, "m-1.*[!k]") == unfinished
    model.save(tmp_path / "m-3", 3)
    assert saved_files.bases(tmp_path) == ["m-2", "m-3"]


def test_a_compaction_holds_its_prefix(tmp_path, session, monkeypatch):
    model = Model(session)
    saved = open_checkpoint(model.save(tmp_path / "m-1", 1))
    with prefix_lock.acquire(str(tmp_path / "m-9"), 0):
        with pytest.raises(CheckpointError, match=f"Process {os.getpid()} on .* is saving"):
            compact(saved, tmp_path / "m-9")
    write = compaction.write_anew

    def write_beside_a_save(*arguments):
        (tmp_path / "m-9.sok-0123456789abcdef.plan").touch()  # like files of the compaction
        model.save(tmp_path / "m-2", 2)
        assert names(tmp_path, "m-9.*[!k]") == ["m-9.sok-0123456789abcdef.plan"]
        write(*arguments)

    monkeypatch.setattr(compaction, "write_anew", write_beside_a_save)
    compact(saved, tmp_path / "m-9")
    assert not list(problems(open_checkpoint(tmp_path / "m-9")))
    assert model.restored(tmp_path / "m-9") == 1


def test_max_to_keep_leaves_what_another_process_has_saved(tmp_path, session):
    """A Saver removes its own checkpoint, but not one that replaces it or is about to."""
    model = Model(session, max_to_keep=1)
    other = train.Saver()
    model.save(tmp_path / "m-1", 1)
    model.save(tmp_path / "m-2", 2)
    assert names(tmp_path, "*.index") == ["m-2.index"]
    other.save(session, str(tmp_path / "m-2"), write_state=False)
    model.save(tmp_path / "m-3", 3)
    with prefix_lock.acquire(str(tmp_path / "m-3"), 0):
        model.save(tmp_path / "m-4", 4)
        assert saved_files.bases(tmp_path) == ["m-2", "m-3", "m-4"]
    other.save(session, str(tmp_path / "m-3"), write_state=False)
    # The other one ends without a checkpoint.
    with prefix_lock.acquire(str(tmp_path / "m-4"), 0):
        model.save(tmp_path / "m-5", 5)
        assert saved_files.bases(tmp_path) == ["m-2", "m-3", "m-4", "m-5"]
    model.save(tmp_path / "m-6", 6)
    assert names(tmp_path, "*.index") == ["m-2.index", "m-3.index", "m-6.index"]
    assert saved_files.bases(tmp_path) == ["m-2", "m-3", "m-6"]
    for step, value in ((2, 2), (3, 4), (6, 6)):
        assert model.restored(tmp_path / f"m-{step}") == value


def test_locks_of_killed_saves_are_removed(tmp_path, session):
    model = Model(session)
    model.save(tmp_path / "m-1", 1)
    # Left by a killed save to the same prefix.
    (tmp_path / "m-1.sok-0123456789abcdef.part-0.index").touch()
    for name in ("m-1.sok.lock", "m-5.sok.lock"):
        (tmp_path / name).write_text("Process 1 on nowhere")
    model.save(tmp_path / "m-2", 2)
    assert not list(tmp_path.glob("*.lock"))
    assert saved_files.bases(tmp_path) == ["m-1", "m-2"]
    assert names(tmp_path, "m-1.*") == ["m-1.data-00000-of-00001", "m-1.index"]
    assert model.restored(tmp_path / "m-1") == 1


def test_the_base_of_an_incremental_save_is_kept(tmp_path, session):
    """Another process has removed the checkpoint that the incremental save builds on."""
    model = Model(session)
    saver = train.Saver(builder=IncrementalBuilder())
    saver.save(session, str(tmp_path / "m-1"), write_meta_graph=False)
    reader.remove_checkpoint(str(tmp_path / "m-1"), needed=True)
    with prefix_lock.acquire(retention.chains_of(str(tmp_path)), 0):
        model.save(tmp_path / "m-2", 2)
        assert saved_files.bases(tmp_path) == ["m-1", "m-2"]
    model.save(tmp_path / "m-3", 3)
    assert saved_files.bases(tmp_path) == ["m-2", "m-3"]


def _save_again_and_again(folder, number, processes, reports):
    """Saves to prefixes of which every second is shared by all processes."""
    with harness.graph_and_session(intra_op_threads=1) as session:
        model = Model(session, max_to_keep=3 if number == 1 else None)
        os.write(reports, b"ready\n")
        for save in range(SAVES):
            step = save * processes + (number if save % 2 else 0)
            path = model.save(f"{folder}/m-{step}", step)
            os.write(reports, f"{path}\n".encode())


def _serve(folder):
    """Three processes; the third is killed and started again."""
    draw = random.Random(3)
    receiver, sender = os.pipe()

    def start(number):
        child = os.fork()
        if child:
            return child
        try:
            _save_again_and_again(folder, number, 3, sender)
            os._exit(0)
        except BaseException as error:
            print(error, flush=True)
        finally:
            os._exit(1)

    children = [start(number) for number in range(2)]
    kills = 0
    while any(os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None for child in children):
        third = start(2)
        time.sleep(draw.uniform(0.5, 1.5))
        os.kill(third, signal.SIGKILL)
        os.waitpid(third, 0)
        kills += 1
    failures = sum(os.waitpid(child, 0)[1] != 0 for child in children)
    os.close(sender)
    with os.fdopen(receiver) as lines:
        reported = [line for line in lines.read().split() if line != "ready"]
    lost = {}
    there = [path for path in dict.fromkeys(reported) if os.path.exists(f"{path}.index")]
    for path in there:
        found = list(problems(open_checkpoint(path)))
        if found:
            lost[path] = found
    print(f"saves {len(reported)} kills {kills} failures {failures} there {len(there)} lost {len(lost)}")
    for path, found in lost.items():
        print("lost", path, found[:2])


def test_three_processes(tmp_path):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    code = f"import concurrent_saves_test as test; test._serve({str(tmp_path)!r})"
    result = forked.run_code(code, env=environment, timeout=120 + 10 * SAVES)
    assert result.returncode == 0, (result.stdout + result.stderr)[-6000:]
    words = next(line for line in result.stdout.splitlines() if line.startswith("saves")).split()
    counts = dict(zip_equal(words[::2], map(int, words[1::2])))
    assert counts["saves"] >= 2 * SAVES and counts["there"] > 0, result.stdout[-6000:]
    assert counts["failures"] == 0 and counts["lost"] == 0, result.stdout[-6000:]
    # A last save meets the leftovers of killed saves.
    with harness.graph_and_session() as session:
        Model(session).save(tmp_path / "m-100000", 1)
    assert not list(tmp_path.glob("*.lock"))
    assert saved_files.bases(tmp_path) == [name[: -len(".index")] for name in names(tmp_path, "*.index")]
