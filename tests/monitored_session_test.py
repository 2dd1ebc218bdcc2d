# Tags: versions
"""Embedding variables in MonitoredTrainingSession: initialized, saved by its hooks, and restored.
sok.IncrementalCheckpointHook saves the changes since the last checkpoint. The timer that ranks agree on:
how often a rank asks for rank 0's time, and when it is time to save."""

import contextlib
import json
import pathlib
import types

import numpy as np
import pytest
import tensorflow as tf

import harness
import saved_files
import sparse_operation_kit as sok
from sparse_operation_kit.saver import agreed_timer

v1 = tf.compat.v1
train = v1.train


class Model:
    """A layer that a monitored session initializes, for which it runs the op of sok.Init."""

    def __init__(self):
        sok.Init(global_batch_size=harness.GLOBAL_BATCH_SIZE, seed=harness.SEED)
        self.global_step = train.get_or_create_global_step()
        layer = sok.All2AllDenseEmbedding(100, 2, 1, 1, dynamic_input=True, name="layer")
        self.table = layer.embedding_variable
        self.keys = tf.math.floormod(self.global_step * 7 + tf.range(6, dtype=tf.int64), 20)
        self.rows = layer(self.keys)
        optimizer = sok.tf.keras.optimizers.LazyAdamOptimizer(0.1)
        self.step = optimizer.minimize(tf.reduce_sum(tf.square(self.rows)), global_step=self.global_step)
        self.reader = harness.TableReader(self.table)

    def contents(self, session):
        """(keys, rows) of the table, by key."""
        [(keys, rows)] = self.reader.read(session)
        order = np.argsort(keys)
        return keys[order], rows[order]


def run(steps, **arguments):
    """(global step, table) after some steps of a monitored session in a new graph."""
    with tf.Graph().as_default():
        model = Model()
        with train.MonitoredTrainingSession(**arguments) as session:
            for _ in range(steps):
                session.run(model.step)
            return session.run(model.global_step), model.contents(session)


def test_init_is_no_part_of_a_step():
    with tf.Graph().as_default():
        model = Model()
        assert model.table.initializer.control_inputs
        assert not model.table.handle.op.control_inputs


def test_variables_are_initialized_by_the_session():
    step, (keys, rows) = run(3)
    assert step == 3
    np.testing.assert_array_equal(keys, [*range(6), *range(7, 13), *range(14, 20)])
    assert rows.shape == (18, 2) and np.all(np.isfinite(rows))


def test_a_scaffold_of_the_users_initializes():
    with tf.Graph().as_default():
        model = Model()
        scaffold = train.Scaffold(
            init_op=v1.global_variables_initializer(), ready_op=v1.report_uninitialized_variables()
        )
        with train.MonitoredTrainingSession(scaffold=scaffold) as session:
            for _ in range(3):
                session.run(model.step)
            _, rows = model.contents(session)
    np.testing.assert_array_equal(rows, run(3)[1][1])


def test_without_init_a_session_raises_an_error():
    with tf.Graph().as_default():
        sok.EmbeddingVariable("lonely_table", 2)
        train.get_or_create_global_step()
        with pytest.raises(tf.errors.FailedPreconditionError, match="lonely_table.*sok.Init"):
            train.MonitoredTrainingSession()


def test_a_second_session_goes_on_where_the_first_ended(tmp_path):
    directory = str(tmp_path)
    assert run(3, checkpoint_dir=directory, save_checkpoint_secs=600)[0] == 3
    assert train.latest_checkpoint(directory).endswith("model.ckpt-3")
    np.testing.assert_equal(run(4, checkpoint_dir=directory, save_checkpoint_secs=600), run(7))


def test_the_checkpoint_hook_saves_on_its_steps(tmp_path):
    directory = str(tmp_path)
    hook = train.CheckpointSaverHook(directory, save_steps=2)
    with tf.Graph().as_default():
        model = Model()
        with train.MonitoredTrainingSession(hooks=[hook]) as session:
            for _ in range(5):
                session.run(model.step)
            want = model.contents(session)
    assert train.latest_checkpoint(directory).endswith("model.ckpt-5")
    np.testing.assert_equal(run(0, checkpoint_dir=directory, save_checkpoint_secs=600), (5, want))


def test_a_saver_takes_no_monitored_session(tmp_path):
    """As without tables."""
    with tf.Graph().as_default():
        Model()
        saver = train.Saver()
        with train.MonitoredTrainingSession() as session:
            with pytest.raises(TypeError, match="must be a Session"):
                saver.save(session, str(tmp_path / "model"))
    assert not list(tmp_path.iterdir())


def test_a_session_recovers_from_a_failure(tmp_path):
    """After an aborted step, the session is made again from its last checkpoint, including tables."""
    failures = [True]

    class Fail(train.SessionRunHook):
        def before_run(self, run_context):
            if failures and run_context.session.run(train.get_global_step()) == 4:
                failures.clear()
                raise tf.errors.AbortedError(None, None, "a worker was lost")

    with tf.Graph().as_default():
        model = Model()
        arguments = {"checkpoint_dir": str(tmp_path), "save_checkpoint_steps": 2}
        with train.MonitoredTrainingSession(hooks=[Fail()], **arguments) as session:
            while session.run(model.global_step) < 6:
                session.run(model.step)
            found = session.run(model.global_step), model.contents(session)
    assert not failures
    np.testing.assert_equal(found, run(int(found[0])))


OPTIMIZERS = {
    "adagrad": lambda: train.AdagradOptimizer(0.1),
    "adam": lambda: train.AdamOptimizer(0.1),
    "lazy adam": lambda: sok.tf.keras.optimizers.LazyAdamOptimizer(0.1),
}


class IncrementalModel:
    """A table of which each step touches a few of many keys, and a dense variable."""

    def __init__(self, optimizer):
        self.init = sok.Init(global_batch_size=harness.GLOBAL_BATCH_SIZE, seed=harness.SEED)
        self.global_step = train.get_or_create_global_step()
        self.table = sok.EmbeddingVariable(name="table", dim=3)
        self.dense = v1.get_variable("dense", initializer=1.0)
        keys = tf.math.floormod(self.global_step * 7 + tf.range(6, dtype=tf.int64), 200)
        first = tf.where(
            tf.equal(self.global_step, 0), tf.range(200, dtype=tf.int64), tf.tile(keys[:1], [200])
        )
        rows = tf.nn.embedding_lookup(self.table, tf.concat([keys, first], 0))
        loss = tf.reduce_mean(tf.square(rows * self.dense))
        self.step = OPTIMIZERS[optimizer]().minimize(loss, global_step=self.global_step)
        self.saver = train.Saver(name="of_state")


def run_with_increments(directory, optimizer, steps, hooks=(), **arguments):
    with tf.Graph().as_default():
        model = IncrementalModel(optimizer)
        # As in `states_of`: with 1.15, the last bits of results depend on how often Grappler rewrites graphs.
        config = harness.session_config()
        arguments = {"checkpoint_dir": str(directory), "hooks": hooks, "config": config, **arguments}
        with train.MonitoredTrainingSession(**arguments) as session:
            for _ in range(steps):
                session.run(model.step)


def states_of(prefixes, optimizer, folder, until=None):
    """Restores each checkpoint into a session of its own, and trains up to the step `until`.

    Returns:
      For each, all state that a full checkpoint has.
    """
    states = []
    with tf.Graph().as_default():
        model = IncrementalModel(optimizer)
        for prefix in prefixes:
            with v1.Session(config=harness.session_config()) as session:
                session.run(model.init)
                model.saver.restore(session, str(prefix))
                while until is not None and session.run(model.global_step) < until:
                    session.run(model.step)
                path = model.saver.save(session, str(folder / "state"))
                state = session.run([model.dense, model.global_step])
                states.append((harness.saved_tables(path)["table"], state))
    return states


def entries(directory):
    """The entry of the table, by checkpoint."""
    indexes = sorted(pathlib.Path(directory).glob("*.index"))
    return {index.stem: saved_files.entry(index.with_suffix(""), "table") for index in indexes}


@pytest.mark.cases_on_gpu(1)
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_an_incremental_checkpoint_restores_the_exact_state(tmp_path, optimizer):
    directory = tmp_path / "run"
    hook = sok.IncrementalCheckpointHook(str(directory), save_steps=3)
    full = train.CheckpointSaverHook(str(tmp_path / "full"), save_steps=3)
    run_with_increments(directory, optimizer, 12, [hook, full], save_checkpoint_steps=1000)
    names = [f"model.ckpt-{step}" for step in (3, 6, 9)]
    folders = (directory, tmp_path / "full")
    states = states_of([folder / name for folder in folders for name in names], optimizer, tmp_path)
    np.testing.assert_equal(states[:3], states[3:])


@pytest.mark.cases_on_gpu(1)
@pytest.mark.parametrize("optimizer", ["adam", "lazy adam"])
def test_training_goes_on_as_if_nothing_had_happened(tmp_path, optimizer):
    """With Adam, an incremental checkpoint does not change how many steps a row lags behind."""
    hook = sok.IncrementalCheckpointHook(str(tmp_path), save_steps=3)
    run_with_increments(tmp_path, optimizer, 12, [hook], save_checkpoint_steps=1000)
    assert [entries(tmp_path)[f"model.ckpt-{step}"]["kind"] for step in (6, 9)] == ["delta", "delta"]
    prefixes = [tmp_path / f"model.ckpt-{step}" for step in (6, 9, 12)]
    *resumed, want = states_of(prefixes, optimizer, tmp_path, until=12)
    np.testing.assert_equal(resumed, [want] * 2)


def test_it_holds_only_what_has_changed(tmp_path):
    hook = sok.IncrementalCheckpointHook(str(tmp_path), save_steps=3)
    run_with_increments(tmp_path, "adagrad", 11, [hook], save_checkpoint_steps=1000)
    by_checkpoint = entries(tmp_path)
    assert by_checkpoint["model.ckpt-0"]["kind"] == "full"
    deltas = [entry for entry in by_checkpoint.values() if entry["kind"] == "delta"]
    assert deltas
    for name, entry in by_checkpoint.items():
        shard = json.loads(tf.train.load_checkpoint(str(tmp_path / name)).get_tensor("table#0"))
        if entry["kind"] == "delta":
            assert entry["chain"] and shard["table_rows"] == 200 and 0 < shard["rows"] <= 3 * 6


@pytest.mark.cases_on_gpu(1)
@pytest.mark.parametrize("optimizer", ["adagrad", "adam"])
def test_a_session_goes_on_from_an_incremental_checkpoint(tmp_path, optimizer):
    for steps in (5, 6):
        hook = sok.IncrementalCheckpointHook(str(tmp_path / "parts"), save_steps=2)
        run_with_increments(tmp_path / "parts", optimizer, steps, [hook], save_checkpoint_steps=1000)
    run_with_increments(tmp_path / "whole", optimizer, 11, save_checkpoint_steps=1000)
    parts, whole = (train.latest_checkpoint(str(tmp_path / name)) for name in ("parts", "whole"))
    assert parts.endswith("model.ckpt-11") and whole.endswith("model.ckpt-11")
    parts, whole = states_of([parts, whole], optimizer, tmp_path)
    if optimizer == "adam":
        # Its full checkpoint at step 5 brings all rows up to date, which changes the rounding of sums.
        np.testing.assert_allclose(parts[0]["values"], whole[0]["values"], atol=1e-6)
        np.testing.assert_allclose(parts[1], whole[1], atol=1e-6)
    else:
        np.testing.assert_equal(parts, whole)


def test_the_hook_has_a_directory_of_its_own(tmp_path):
    """Its checkpoints of the last session stay whole, although they build on one that is saved again."""
    of_hook, of_others = tmp_path / "hook", tmp_path / "others"

    for steps in (7, 0):
        hook = sok.IncrementalCheckpointHook(str(of_hook), save_steps=2)
        with tf.Graph().as_default(), contextlib.suppress(EOFError):
            model = IncrementalModel("adagrad")
            with train.MonitoredTrainingSession(
                checkpoint_dir=str(of_others), save_checkpoint_steps=5, hooks=[hook]
            ) as session:
                for _ in range(steps):
                    session.run(model.step)
                raise EOFError
    latest = [train.latest_checkpoint(str(folder)) for folder in (of_hook, of_others)]
    assert [pathlib.Path(path).name for path in latest] == ["model.ckpt-6", "model.ckpt-5"]
    states_of(latest, "adagrad", tmp_path)


def test_what_builds_on_checkpoints_in_another_directory_stays_whole(tmp_path):
    """The Saver of that directory removes its checkpoints while the hook still has what builds on them."""
    of_hook, of_others = tmp_path / "hook", tmp_path / "others"
    hook = sok.IncrementalCheckpointHook(str(of_hook), save_steps=3, max_to_keep=None)
    with tf.Graph().as_default():
        model = IncrementalModel("adagrad")
        with train.MonitoredTrainingSession(
            checkpoint_dir=str(of_others),
            save_checkpoint_steps=4,
            hooks=[hook],
            scaffold=train.Scaffold(saver=train.Saver(max_to_keep=1)),
            config=harness.session_config(),
        ) as session:
            for _ in range(11):
                session.run(model.step)
    found = entries(of_hook)
    bases = {link["prefix"] for entry in found.values() for link in entry["chain"]}
    removed = {base for base in bases if not (of_hook / f"{base}.index").exists()}
    assert removed and all(base.startswith("../others/") for base in removed)
    states_of([of_hook / name for name in found], "adagrad", tmp_path)


def test_a_graph_without_tables(tmp_path):
    with tf.Graph().as_default():
        train.get_or_create_global_step()
        with pytest.raises(ValueError, match="embedding variables"):
            sok.IncrementalCheckpointHook(str(tmp_path), save_steps=1).begin()


@pytest.mark.cases_on_gpu(1)
@pytest.mark.parametrize("arguments", [{}, {"save_secs": 1, "save_steps": 1}])
def test_one_of_seconds_and_steps(tmp_path, arguments):
    with pytest.raises(ValueError):
        sok.IncrementalCheckpointHook(str(tmp_path), **arguments)


SECONDS = 60.0


class Session:
    """Gives all ranks the first rank's value: this rank's, unless there is `of_another`."""

    def __init__(self, of_another=None):
        self.looks = 0
        self._of_another = of_another

    def run(self, fetch, feed):
        self.looks += 1
        (words,) = feed.values()
        return np.array(self._of_another or words)


@pytest.fixture
def clock(monkeypatch):
    """A replacement of the module `time`."""
    clock = types.SimpleNamespace(now=1000.0, time=lambda: clock.now)
    monkeypatch.setattr(agreed_timer, "time", clock)
    return clock


def _train(timer, session, clock, steps, seconds_per_step, first=0):
    """Returns the steps at which it was time to save."""
    saved = []
    for step in range(first + 1, first + steps + 1):
        clock.now += seconds_per_step
        if timer.look(session, step):
            saved.append(step)
            timer.update_last_triggered_step(step)
    return saved


def _timer():
    timer = agreed_timer.AgreedTimer(SECONDS, ("words", "of the first rank"))
    timer.update_last_triggered_step(0)
    return timer


@pytest.mark.parametrize("seconds_per_step", [0.01, 0.5, 7.0, 100.0])
def test_saves_after_the_given_seconds(clock, seconds_per_step):
    steps = max(1, round(SECONDS / seconds_per_step))
    session = Session()
    saved = _train(_timer(), session, clock, 5 * steps, seconds_per_step)
    assert 4 <= len(saved) <= 5
    for before, after in zip([0, *saved], saved):
        assert steps <= after - before <= steps + 1000
        assert seconds_per_step * (after - before) <= SECONDS * 1.2 + 2 * seconds_per_step


def test_ranks_seldom_ask_for_rank_0s_time(clock):
    session = Session()
    _train(_timer(), session, clock, 60_000, 0.001)
    assert session.looks <= 65


def test_training_that_slows_down(clock):
    timer, session = _timer(), Session()
    assert _train(timer, session, clock, 100, 0.01) == []
    saved = _train(timer, session, clock, 3000, 1.0, first=100)
    assert 1000 <= saved[0] <= 1101  # not before the step that was agreed on
    assert all(60 <= after - before <= 70 for before, after in zip(saved, saved[1:]))


def test_a_step_is_not_saved_twice(clock):
    timer, session = _timer(), Session()
    clock.now += 2 * SECONDS
    assert timer.look(session, 1)
    assert timer.update_last_triggered_step(1) == (2 * SECONDS, 1)
    clock.now += 2 * SECONDS
    assert not timer.look(session, 1)
    assert timer.last_triggered_step() == 1


def test_the_first_save_is_due_at_once(clock):
    timer = agreed_timer.AgreedTimer(SECONDS, ("words", "of the first rank"))
    assert timer.last_triggered_step() is None
    assert timer.look(Session(), 5)
    assert timer.update_last_triggered_step(5) == (None, None)


def test_the_first_ranks_clock_decides(clock):
    timer = _timer()
    assert timer.look(Session(of_another=[1, 7]), 1)
    assert timer.next_look == 7
    clock.now += 2 * SECONDS
    assert not timer.look(Session(of_another=[0, 9]), 7)
    assert timer.next_look == 9
    assert not timer.look(Session(of_another=[1, 10]), 8)
    assert timer.look(Session(of_another=[1, 10]), 9)
