# Not on GPUs: files, which are the same: see gpu_checkpoints_test
"""Which checkpoints are in a directory after a job was started again and again, and killed in between."""

from __future__ import annotations

import contextlib
import functools
import os
import pathlib
import re
import shutil
import signal
import traceback

import numpy as np
import pytest
import tensorflow as tf

import forked
import harness
import saved_files
import sparse_operation_kit as sok
from sparse_operation_kit import deeprec
from sparse_operation_kit.checkpoint import own_files, reader
from sparse_operation_kit.checkpoint.errors import UnansweredError
from sparse_operation_kit.deeprec.incremental_saver import IncrementalSaver
from sparse_operation_kit.saver import checkpoint_save, old_checkpoints, retention

deeprec.uninstall()  # importing it has installed its names
v1 = tf.compat.v1
train = v1.train


class Job:
    """A table of which each step adds 1 to the row of its number, and a Saver of each kind."""

    def __init__(
        self, directory, base="model", increments="model", keep=2, keep_increments=2, table=True, hours=10000
    ):
        self.init = harness.init()
        self.directory, self.base, self.increments = str(directory), base, increments
        self.step = train.get_or_create_global_step()
        if table:
            self.table = sok.EmbeddingVariable("table", dim=1, initializer=0.0)
            ids = tf.expand_dims(self.step, 0)
            self.rows = tf.nn.embedding_lookup(self.table, tf.range(100, dtype=tf.int64))[:, 0]
        else:
            self.table, ids = v1.get_variable("dense", [1, 1], initializer=tf.zeros_initializer()), [0]
        loss = -tf.reduce_sum(tf.nn.embedding_lookup(self.table, ids))
        self.train = train.GradientDescentOptimizer(1.0).minimize(loss, global_step=self.step)
        self.initializer = v1.global_variables_initializer()
        self.saver = train.Saver(max_to_keep=keep, keep_checkpoint_every_n_hours=hours)
        self.incremental = IncrementalSaver(max_to_keep=keep_increments, sharded=True)

    def start(self, session, tell="recover"):
        """Initializes, or restores the latest checkpoint and tells the Saver of the earlier ones."""
        self.session = session
        session.run([self.init, self.initializer])
        state = train.get_checkpoint_state(self.directory)
        if state is None:
            return
        self.saver.restore(session, state.model_checkpoint_path)
        self.check(state.model_checkpoint_path)
        if tell == "recover":
            self.saver.recover_last_checkpoints(state.all_model_checkpoint_paths)
        elif tell == "set":
            self.saver.set_last_checkpoints(list(state.all_model_checkpoint_paths))

    def check(self, prefix):
        """Checks that the session has the rows of the step in the name."""
        step = int(prefix.rpartition("-")[2])
        assert self.session.run(self.step) == step
        np.testing.assert_array_equal(self.session.run(self.rows), np.arange(100) < step)

    def save(self, kinds):
        """For each letter, a step and then a full ("f") or an incremental ("i") checkpoint."""
        for kind in kinds:
            self.session.run(self.train)
            if kind == "f":
                self.saver.save(self.session, f"{self.directory}/{self.base}", self.step)
            else:
                self.incremental.incremental_save(
                    self.session, f"{self.directory}/{self.increments}", self.step
                )

    @contextlib.contextmanager
    def restart(self, tell="recover"):
        """A session as of a new process: its Savers do not know what those of the last one did."""
        old_checkpoints._savers.clear()
        for saver in (self.saver, self.incremental):
            saver.set_last_checkpoints_with_time([])
        with v1.Session(graph=self.step.graph, config=harness.session_config()) as session:
            self.start(session, tell)
            yield self

    def run(self, kinds, tell="recover"):
        with self.restart(tell):
            self.save(kinds)


def job_of(directory, **arguments):
    with tf.Graph().as_default():
        return Job(directory, **arguments)


def steps(directory, base="model"):
    """The steps of a directory's checkpoints."""
    found = [path.stem for path in pathlib.Path(directory).glob("*.index")]
    return sorted(int(name.rpartition("-")[2]) for name in found if name.rpartition("-")[0] == base)


def counted(directory):
    """The steps of the checkpoints that each kind of Saver counts."""
    kinds = {"full": [], "incremental": [], None: []}
    for index in directory.glob("*.index"):
        kinds[saved_files.counted_by(index.with_suffix(""))].append(int(index.stem.rpartition("-")[2]))
    return [sorted(kinds[kind]) for kind in ("full", "incremental")]


def all_restore(job):
    with job.restart(None):
        for step in steps(job.directory):
            prefix = f"{job.directory}/model-{step}"
            job.saver.restore(job.session, prefix)
            job.check(prefix)


@pytest.mark.parametrize("increments, tell", [("model", "recover"), ("increment", "set")])
def test_both_kinds_of_savers(tmp_path, increments, tell):
    """The state file has the list of one Saver only: after "fiif" of the full one, else of the other."""
    job = job_of(tmp_path, increments=increments)
    for kinds, full, incremental in [
        ("ffii", [1, 2], [3, 4]),
        ("iii", [1, 2], [6, 7]),
        ("fi", [2, 8], [7, 9]),
        ("fiif", [10, 13], [11, 12]),
        ("", [10, 13], [11, 12]),
        ("f", [13, 14], [11, 12]),
    ]:
        job.run(kinds, tell)
        assert counted(tmp_path) == [full, incremental]
        if increments == "model":
            assert steps(tmp_path) == sorted(full + incremental)
        else:
            assert (steps(tmp_path), steps(tmp_path, increments)) == (full, incremental)
    if increments == "model":
        all_restore(job)


def test_what_max_to_keep_does_not_count_stays(tmp_path):
    """Checkpoints of Savers that keep all; but that of the state file is taken over, as in TensorFlow."""
    keeps_all = job_of(tmp_path, keep=None, keep_increments=0)
    keeps_all.run("fiif")
    assert counted(tmp_path) == [[], []]
    job_of(tmp_path).run("ffiii")
    assert steps(tmp_path) == [1, 2, 3, 5, 6, 8, 9]
    keeps_all.run("fi")
    assert steps(tmp_path) == [1, 2, 3, 5, 6, 8, 9, 10, 11]
    assert counted(tmp_path) == [[5, 6], [8, 9]]


def test_fewer_are_kept_if_max_to_keep_becomes_less(tmp_path):
    job_of(tmp_path, keep=4, keep_increments=5).run("ffffiiiii")
    job_of(tmp_path, keep=1, keep_increments=1).run("fi")
    assert steps(tmp_path) == [10, 11]


@pytest.mark.parametrize("ends_with_error", [False, True])
def test_a_checkpoint_that_is_saved_again_is_the_newest(tmp_path, ends_with_error):
    """Also if the state file cannot be written: what is to be removed is then removed by the next save."""
    job_of(tmp_path, keep=3).run("fff")
    (tmp_path / "folder").mkdir()
    job = job_of(tmp_path, keep=2)
    with job.restart():
        error = pytest.raises(tf.errors.OpError) if ends_with_error else contextlib.nullcontext()
        with error:
            state = "folder" if ends_with_error else "checkpoint"
            job.saver.save(job.session, f"{tmp_path}/model", 1, latest_filename=state)
        assert steps(tmp_path) == ([1, 2, 3] if ends_with_error else [1, 3])
        job.save("f")
        assert steps(tmp_path) == [1, 4]


@pytest.mark.parametrize("told", ["recover", None])
@pytest.mark.parametrize("kind", ["f", "i"])
def test_a_failed_save_whose_checkpoint_is_complete_counts(tmp_path, monkeypatch, kind, told):
    """What was left before is not taken over because of it."""
    job_of(tmp_path, keep=3, keep_increments=3).run("fff" if kind == "f" else "f")
    job = job_of(tmp_path, keep=2)
    with job.restart(told):

        def fail(*_):
            raise OSError("the disk has failed")

        saver = job.saver if kind == "f" else job.incremental
        with monkeypatch.context() as patch, pytest.raises(OSError, match="has failed"):
            patch.setattr(saver, "_RecordLastCheckpoint", fail)
            job.save(kind)
        first = job.session.run(job.step)
        assert steps(tmp_path)[-1] == first
        job.save(3 * kind)
        new = [step for step in steps(tmp_path) if step >= first]
        assert new == [first + 2, first + 3]
        left = [step for step in steps(tmp_path) if step < first]
        assert left == ([] if (kind, told) == ("f", "recover") else [1, 2, 3] if kind == "f" else [1])


def test_a_new_graph_takes_over_what_savers_of_another_left(tmp_path):
    """In one process, while the other graph and its Savers are still there."""
    left, job = job_of(tmp_path), job_of(tmp_path)
    left.run("ffii")
    with v1.Session(graph=job.step.graph, config=harness.session_config()) as session:
        job.start(session)
        job.save("ffii")
    assert steps(tmp_path) == [5, 6, 7, 8]
    assert left.incremental.last_checkpoints


@pytest.mark.parametrize("is_new", [False, True])
def test_savers_of_an_imported_graph_take_over_too(tmp_path, is_new):
    """The Saver that comes with the MetaGraph, or new ones of both kinds that are built after it."""
    job = job_of(tmp_path, increments="increment")
    job.run("ffii")
    old_checkpoints._savers.clear()
    with tf.Graph().as_default() as graph, v1.Session(config=harness.session_config()) as session:
        saver = train.import_meta_graph(f"{tmp_path}/model-2.meta")
        saver.restore(session, f"{tmp_path}/model-2")
        incremental = IncrementalSaver(max_to_keep=1, sharded=True)
        if is_new:
            saver = train.Saver(max_to_keep=3)
        saver.recover_last_checkpoints([f"{tmp_path}/model-1", f"{tmp_path}/model-2"])
        step = train.get_global_step(graph)
        for _ in range(3):
            session.run(job.train.name)
            saver.save(session, f"{tmp_path}/model", step)
            session.run(job.train.name)
            incremental.incremental_save(session, f"{tmp_path}/increment", step)
    left = [3, 5, 7] if is_new else [5, 7]
    assert (steps(tmp_path), steps(tmp_path, "increment")) == (left, [8])
    assert saved_files.bases(tmp_path) == ["increment-8", *(f"model-{step}" for step in left)]


def test_what_is_kept_by_time_stays_after_restarts(tmp_path):
    """With what builds on it."""
    keeps_all = job_of(tmp_path, keep=1, keep_increments=1, hours=1e-9)
    keeps_all.run("fifi")
    assert steps(tmp_path) == [1, 3, 4]
    assert counted(tmp_path) == [[3], [4]]
    job_of(tmp_path, keep=1, keep_increments=1).run("ffi")
    assert steps(tmp_path) == [1, 6, 7]
    assert counted(tmp_path) == [[6], [7]]
    all_restore(keeps_all)


def test_what_cannot_be_marked_as_kept_is_asked_for_again(tmp_path, monkeypatch, caplog):
    job = job_of(tmp_path, keep=1, hours=1e-9)
    with job.restart():
        job.save("f")
        with monkeypatch.context() as patch:
            patch.setattr(reader, "keep_checkpoint", _unanswered)
            job.save("ff")
        assert counted(tmp_path) == [[1, 2, 3], []] and "model-1" in caplog.text
        job.save("f")
    assert counted(tmp_path) == [[4], []] and steps(tmp_path) == [1, 2, 3, 4]


def _unanswered(prefix):
    raise UnansweredError(prefix, "cannot be read: Input/output error")


def test_what_another_process_wrote_again_stays_after_a_failed_save(tmp_path):
    job_of(tmp_path, keep=3).run("fff")
    (tmp_path / "folder").mkdir()
    job = job_of(tmp_path, keep=1)
    with job.restart():
        job.session.run(job.train)
        with pytest.raises(tf.errors.OpError):
            job.saver.save(job.session, f"{tmp_path}/model", job.step, latest_filename="folder")
        index = tmp_path / "model-1.index"
        content = index.read_bytes()
        index.unlink()
        index.write_bytes(content)
        job.save("f")
    assert steps(tmp_path) == [1, 5]


def test_a_saver_that_is_told_nothing_removes_nothing_of_others(tmp_path):
    """As without tables."""
    job = job_of(tmp_path)
    job.run("ffi", None)
    job.run("ffi", None)
    assert steps(tmp_path) == [1, 2, 3, 4, 5, 6]
    assert train.get_checkpoint_state(str(tmp_path)).all_model_checkpoint_paths[0].endswith("model-3")


def test_other_names_are_of_other_jobs(tmp_path):
    job = job_of(tmp_path)
    job.run("ffii")
    others = ("model-1", "model.2", "model-2-old", "mod", "model-", "[m]odel")
    for path in [path for path in tmp_path.iterdir() if path.name != "checkpoint"]:
        for other in others:
            shutil.copy(path, tmp_path / path.name.replace("model", other))
    before = {path.name for path in tmp_path.iterdir() if not path.name.startswith("model-")}
    job.run("ffii")
    assert before <= {path.name for path in tmp_path.iterdir()}
    assert steps(tmp_path) == [5, 6, 7, 8]
    assert [steps(tmp_path, other) for other in others] == [[1, 2, 3, 4]] * len(others)


def test_numbers_in_names(tmp_path):
    """Without `global_step`, checkpoints whose names differ in a number may be of several jobs, or of one."""
    job = job_of(tmp_path)
    for numbers in [(1,), (2,), (3,), (3,), (4, 5, 6)]:
        with job.restart():
            for number in numbers:
                job.incremental.incremental_save(job.session, f"{tmp_path}/job-{number}")
        (tmp_path / "checkpoint").unlink()
        assert steps(tmp_path, "job") == ([*range(1, number + 1)] if number < 4 else [5, 6])


def test_savers_of_one_session_count_their_own(tmp_path):
    with tf.Graph().as_default():
        job = Job(tmp_path)
        often, job.incremental = job.incremental, IncrementalSaver(max_to_keep=3, sharded=True)
    with job.restart():
        job.save("iii")
        seldom, job.incremental = job.incremental, often
        job.save("iiii")
        assert steps(tmp_path) == [1, 2, 3, 6, 7]
        job.incremental = seldom
        job.save("i")
        assert steps(tmp_path) == [2, 3, 6, 7, 8]


@pytest.mark.parametrize("question", [(own_files, "facts"), (own_files, "names"), (reader, "open_saved")])
def test_what_a_restart_cannot_ask_about_is_asked_about_again(tmp_path, monkeypatch, caplog, question):
    """It stays, takes no place of max_to_keep, and is removed when the file system answers."""
    job_of(tmp_path, keep=3, keep_increments=3).run("fffiii")
    job = job_of(tmp_path, keep=2, keep_increments=2)
    original = getattr(*question)

    def fails(path, **options):
        if re.search(r"model-[25]\b", str(path)) or question[1] == "names":
            raise (OSError if question[0] is own_files else functools.partial(UnansweredError, path))(
                "no answer"
            )
        return original(path, **options)

    with job.restart():
        before = steps(tmp_path)
        with monkeypatch.context() as patch:
            patch.setattr(*question, fails)
            job.save("fi")
        assert {2, 5, 7, 8} <= set(steps(tmp_path)) <= {*before, 7, 8}
        assert "no answer" in caplog.text
        job.save("fi")
        assert counted(tmp_path) == [[7, 9], [8, 10]]
        assert steps(tmp_path) == [7, 8, 9, 10]
    all_restore(job)


@pytest.mark.parametrize("kind", ["damaged", "pipe"])
def test_what_cannot_be_read_stays(tmp_path, kind):
    job = job_of(tmp_path)
    job.run("iiff")
    for step in (1, 3):
        index = tmp_path / f"model-{step}.index"
        index.unlink()
        index.write_bytes(b"damaged") if kind == "damaged" else os.mkfifo(index)
    before = set(tmp_path.glob("model-[13].*"))
    job.run("ffii")
    assert before <= set(tmp_path.iterdir())
    assert steps(tmp_path) == [1, 3, 5, 6, 7, 8]


def test_the_last_table_is_taken_out(tmp_path):
    """A Saver without tables removes what it is told of, with tables that no others need."""
    job_of(tmp_path).run("ifif")
    job = job_of(tmp_path, table=False)
    with v1.Session(graph=job.step.graph) as session:
        job.session = session
        session.run([job.init, job.initializer])
        session.run(job.step.assign(4))
        job.saver.recover_last_checkpoints([f"{tmp_path}/model-{step}" for step in (2, 4)])
        job.save("ff")
    assert steps(tmp_path) == [1, 3, 5, 6]
    assert saved_files.bases(tmp_path) == [f"model-{step}" for step in (1, 2, 3, 5, 6)]


def _kill(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)


def _begin_removal_and_kill(prefix, *, needed):
    if needed:
        os.rename(f"{prefix}.index", f"{prefix}.sok-index")
    else:
        os.unlink(f"{prefix}.index")
    _kill()


def _before(owner, name):
    return lambda: setattr(owner, name, _kill)


def _after(owner, name):
    def arm():
        original = getattr(owner, name)
        setattr(owner, name, lambda *args, **options: (original(*args, **options), _kill()))

    return arm


# What is to be done in a process so that its next save is killed at this point.
MOMENTS = {
    "with locks only": _after(checkpoint_save, "_prepare"),
    "without a state file": _before(train.Saver, "_RecordLastCheckpoint"),
    "before anything is removed": _before(train.Saver, "_MaybeDeleteOldCheckpoints"),
    "before an index is removed": _before(reader, "remove_checkpoint"),
    "within a removal": lambda: setattr(reader, "remove_checkpoint", _begin_removal_and_kill),
    "after a removal": _after(reader, "remove_checkpoint"),
    "before leftovers are removed": _before(retention, "clean"),
}


def kill_in_saves(directory):
    """Kills a process at each moment in each kind of save; the last process ends by itself."""
    job = job_of(directory)
    for kinds, moment in [
        *((kinds, moment) for moment in MOMENTS for kinds in ("fii", "iif")),
        ("fiif", None),
    ]:
        child = os.fork()
        if child == 0:
            try:
                with job.restart():
                    job.save(kinds[:-1])
                    if moment is not None:
                        MOMENTS[moment]()
                    job.save(kinds[-1:])
                os._exit(0)
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(1)
        status = os.waitpid(child, 0)[1]
        assert status == (0 if moment is None else signal.SIGKILL), (kinds, moment, status)
        print(kinds, moment, steps(directory), flush=True)


def test_kills_in_saves_leave_nothing(tmp_path):
    code = f"import checkpoint_restarts_test as it; it.kill_in_saves({str(tmp_path)!r})"
    print(forked.succeeded(forked.run_code(code, timeout=300)))
    found = steps(tmp_path)
    full, increments = counted(tmp_path)
    assert len(full) == len(increments) == 2 and sorted(full + increments) == found
    needed = {base for step in found for base in saved_files.chain(tmp_path / f"model-{step}")}
    kept = {f"model-{step}" for step in found}
    assert set(saved_files.bases(tmp_path)) == needed | kept
    assert not list(tmp_path.glob("*.lock")) and not list(tmp_path.glob("*.sok-[0-9a-f]*"))
    all_restore(job_of(tmp_path))
