# Tags: slow
# Not on GPUs: files, which are the same: see gpu_checkpoints_test
"""Saves of processes that are killed at any point of one, or that save to one folder at the same time.

What is left restores exactly, and nothing is lost: such processes are an old trainer and its restart.
SOK_TEST_KILLS and SOK_TEST_RANK_KILLS set how often processes are killed, and SOK_TEST_CONCURRENT_SAVES how
many checkpoints each of those that save at the same time saves.
"""

from __future__ import annotations

import os
import random
import signal
import threading
import time
import traceback

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.training.saving import saveable_object

import forked
import harness
import ranks
import saved_files
import sparse_operation_kit as sok
from device_of_tests import sized
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
from sparse_operation_kit.ranks.communicator import communicator
from sparse_operation_kit.saver import retention
from sparse_operation_kit.saver.incremental_hook import IncrementalBuilder
from sparse_operation_kit.tables.storage_option import StorageOption, StorageType

KILLS = int(os.environ.get("SOK_TEST_KILLS", "12"))
RANK_KILLS = int(os.environ.get("SOK_TEST_RANK_KILLS", "4"))
session = harness.session
train = tf.compat.v1.train
KEYS = 5000


def touched(step: int) -> np.ndarray:
    """The keys whose rows step `step` adds 1 to."""
    return np.arange(step * 17, step * 17 + 600) % KEYS


def expected(step: int) -> np.ndarray:
    """The expected rows of all keys after `step` steps."""
    counts = np.zeros(KEYS, np.float32)
    for one in range(step):
        counts[touched(one)] += 1
    return counts


class Model:
    """A training whose checkpoints can be checked without other data."""

    def __init__(self, memory: str | StorageOption = "device") -> None:
        """Builds the graph: two tables, whose rows count their steps, and two Savers."""
        self.keys = tf.compat.v1.placeholder(tf.int64, [None])
        self.tables = [
            sok.EmbeddingVariable(f"table_{i}", dim, initializer=0.0, memory=memory)
            for i, dim in enumerate((4, 8))
        ]
        self.rows = [tf.nn.embedding_lookup(table, self.keys)[:, 0] for table in self.tables]
        self.step = train.get_or_create_global_step()
        every_row = [tf.nn.embedding_lookup(table, self.keys) for table in self.tables]
        # Each rank contributes its part of the gradient.
        loss = -tf.add_n([tf.reduce_sum(rows) for rows in every_row]) / communicator().size
        optimizer = train.GradientDescentOptimizer(1.0)
        self.train = optimizer.minimize(loss, global_step=self.step, var_list=self.tables)
        self.saver = train.Saver(max_to_keep=2)
        self.incremental = train.Saver(max_to_keep=2, sharded=True, builder=IncrementalBuilder())

    def restore(self, session: tf.compat.v1.Session, directory: str) -> int:
        """Restores the latest checkpoint, checks that it has the rows of its step, and returns the step."""
        latest = train.latest_checkpoint(directory)
        if latest is None:
            harness.initialize(session)
            return 0
        self.saver.restore(session, latest)
        step = session.run(self.step)
        assert latest.endswith(f"-{step}"), (latest, step)
        for rows in session.run(self.rows, {self.keys: np.arange(KEYS)}):
            np.testing.assert_array_equal(rows, expected(step))
        return int(step)

    def go_on(
        self,
        session: tf.compat.v1.Session,
        directory: str,
        step: int,
        full_every: int = 1,
        told: int | None = None,
    ) -> None:
        """Trains and saves until the process is killed, with incremental checkpoints between full ones.

        Writes a line to the file `told` after each save.
        """
        while True:
            session.run(self.train, {self.keys: touched(step)})
            step += 1
            saver = self.saver if step % full_every == 0 else self.incremental
            saver.save(session, f"{directory}/model", global_step=step, write_meta_graph=step % 2 == 0)
            if told is not None:
                os.write(told, b"saved\n")


def _train(model: Model, init: tf.Operation, directory: str, full_every: int, told: int) -> None:
    with init.graph.as_default(), tf.compat.v1.Session() as session:
        session.run(init)
        step = model.restore(session, directory)
        os.write(told, b"%d\n" % step)
        model.go_on(session, directory, step, full_every, told)


def kill_again_and_again(
    directory: str, kills: int, draw: random.Random, full_every: int, rows_on_disk: bool = False
) -> int:
    """Starts and kills processes one after another; returns the step that the last one restored.

    With `rows_on_disk`, tables have memory for a few rows, and none of their files is left after a kill.

    Each is killed at most 0.25 s after its restore or its first save. Processes are forked with the graph,
    because importing TensorFlow and building a graph take seconds; so this process must not have run
    TensorFlow.
    """
    folder = os.path.join(directory, "rows")
    disk = StorageOption(StorageType.DRAM_SSDHASH, folder, [4096])
    with tf.Graph().as_default():
        init = harness.init()
        model = Model(disk if rows_on_disk else "device")
    step = -1
    for _ in range(kills + 1):
        receiver, sender = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                _train(model, init, directory, full_every, sender)
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(1)
        os.close(sender)
        with os.fdopen(receiver) as lines:
            restored = lines.readline()
            assert restored, f"restoring after step {step} failed: see above"
            assert int(restored) >= step, (restored, step)
            step = int(restored)
            # Often after a save, even on a slow machine, and often during the first save.
            if draw.random() < 0.5:
                lines.readline()
            time.sleep(draw.uniform(0, 0.25))
            os.kill(child, signal.SIGKILL)
        assert os.waitpid(child, 0)[1] == signal.SIGKILL
        assert not rows_on_disk or os.listdir(folder) == []
    return step


_IN_MEMORY = [(1, False), (4, False)]


@pytest.mark.parametrize(
    ("full_every", "rows_on_disk"), sized(on_cpu=[*_IN_MEMORY, (4, True)], on_gpu=_IN_MEMORY)
)
def test_one_process(tmp_path, full_every, rows_on_disk):
    arguments = f"{str(tmp_path)!r}, {KILLS}, it.random.Random(2), {full_every}, {rows_on_disk}"
    code = f"import checkpoint_kill_test as it; print('steps', it.kill_again_and_again({arguments}))"
    output = forked.succeeded(forked.run_code(code, timeout=60 + 20 * KILLS))
    steps = int(output.split("steps")[-1])
    assert steps > KILLS // 4
    # The next save removes the leftovers of killed saves. Those of at most two can be left after that: of one
    # whose removal was interrupted, and of the last killed save.
    with_tables = set(saved_files.bases(tmp_path))
    checkpoints = {path.stem for path in tmp_path.glob("*.index") if ".sok-" not in path.stem}
    assert checkpoints <= with_tables
    if full_every == 1:
        assert len(with_tables - checkpoints) <= 2


def _run_rank(directory: str, seed: int) -> int:
    known = communicator()
    with harness.graph_and_session() as session:
        model = Model()
        step = model.restore(session, directory)
        print(f"restored {step}", flush=True)
        if seed < 0:
            return step
        draw = random.Random(seed * 100)
        moment = draw.uniform(0.2, 1.5)
        # Ranks are killed at different times: what the others do meanwhile must do no harm.
        delay = moment + random.Random(seed * 100 + known.rank + 1).uniform(0, 0.2)
        threading.Timer(delay, os.kill, [os.getpid(), signal.SIGKILL]).start()
        model.go_on(session, directory, step)
        return step


def test_two_ranks(tmp_path):
    directory = str(tmp_path)
    for seed in range(RANK_KILLS):
        job = ranks.launch(_run_rank, directory, seed, ranks=2)
        assert all("restored" in output for output in job.outputs), job.report()
        assert -signal.SIGKILL in job.returncodes and not job.timed_out, job.report()
    steps = ranks.run(_run_rank, directory, -1, ranks=2)
    assert steps[0] == steps[1] > 0


SAVES = int(os.environ.get("SOK_TEST_CONCURRENT_SAVES", "30"))


class ConcurrentModel:
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


@pytest.mark.parametrize("builder", [None, IncrementalBuilder])
def test_tables_that_wait_for_tensorflows_part_stay(tmp_path, builder):
    """Another save ends after the tables are complete, but before `.index` exists."""
    with harness.graph_and_session() as session:
        model = ConcurrentModel(session)
        pause = Pause()
        slow = train.Saver([*tf.compat.v1.global_variables(), pause], builder=builder and builder())
        session.run(model.assign, {model.value: 1})

        def save():
            with session.graph.as_default():
                slow.save(session, str(tmp_path / "m-1"), write_meta_graph=False)

        saving = threading.Thread(target=save)
        saving.start()
        forked.wait_for(lambda: names(tmp_path, "m-1.sok-*.part-0.index"))
        with harness.graph_and_session() as another:
            other = ConcurrentModel(another)
            other.save(tmp_path / "m-2", 2)
        pause.go.set()
        saving.join()
        assert model.restored(tmp_path / "m-1") == 1
        assert other_value(tmp_path / "m-2") == 2
    assert not list(tmp_path.glob("*.lock"))


def other_value(prefix):
    with harness.graph_and_session() as session:
        return ConcurrentModel(session).restored(prefix)


def test_unfinished_tables_stay_while_their_save_lives(tmp_path, session):
    model = ConcurrentModel(session)
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
    model = ConcurrentModel(session)
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
    model = ConcurrentModel(session, max_to_keep=1)
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
    model = ConcurrentModel(session)
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
    model = ConcurrentModel(session)
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
        model = ConcurrentModel(session, max_to_keep=3 if number == 1 else None)
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
    code = f"import checkpoint_kill_test as test; test._serve({str(tmp_path)!r})"
    output = forked.succeeded(forked.run_code(code, timeout=120 + 10 * SAVES))
    words = next(line for line in output.splitlines() if line.startswith("saves")).split()
    counts = dict(zip_equal(words[::2], map(int, words[1::2])))
    assert counts["saves"] >= 2 * SAVES and counts["there"] > 0, output[-6000:]
    assert counts["failures"] == 0 and counts["lost"] == 0, output[-6000:]
    # A last save meets the leftovers of killed saves.
    with harness.graph_and_session() as session:
        ConcurrentModel(session).save(tmp_path / "m-100000", 1)
    assert not list(tmp_path.glob("*.lock"))
    assert saved_files.bases(tmp_path) == [name[: -len(".index")] for name in names(tmp_path, "*.index")]
