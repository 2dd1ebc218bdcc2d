"""sok.IncrementalCheckpointHook saves the changes since the last checkpoint; any Saver restores them."""

import contextlib
import json
import pathlib

import numpy as np
import pytest
import tensorflow as tf

import harness
import saved_files
import sparse_operation_kit as sok
from same_length import zip_equal

pytestmark = pytest.mark.cases_on_gpu(1)

v1 = tf.compat.v1
train = v1.train

OPTIMIZERS = {
    "adagrad": lambda: train.AdagradOptimizer(0.1),
    "adam": lambda: train.AdamOptimizer(0.1),
    "lazy adam": lambda: sok.tf.keras.optimizers.LazyAdamOptimizer(0.1),
}


class Model:
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


def run(directory, optimizer, steps, hooks=(), **arguments):
    with tf.Graph().as_default():
        model = Model(optimizer)
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
        model = Model(optimizer)
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


def assert_same(one, other):
    assert one[0].keys() == other[0].keys()
    for name in one[0]:
        np.testing.assert_array_equal(one[0][name], other[0][name], err_msg=name)
    np.testing.assert_array_equal(one[1], other[1])


def entries(directory):
    """The entry of the table, by checkpoint."""
    found = {}
    for index in sorted(pathlib.Path(directory).glob("*.index")):
        found[index.stem] = saved_files.entry(index.with_suffix(""), "table")
    return found


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_an_incremental_checkpoint_restores_the_exact_state(tmp_path, optimizer):
    directory = tmp_path / "run"
    hook = sok.IncrementalCheckpointHook(str(directory), save_steps=3)
    full = train.CheckpointSaverHook(str(tmp_path / "full"), save_steps=3)
    run(directory, optimizer, 12, [hook, full], save_checkpoint_steps=1000)
    names = [f"model.ckpt-{step}" for step in (3, 6, 9)]
    folders = (directory, tmp_path / "full")
    states = states_of([folder / name for folder in folders for name in names], optimizer, tmp_path)
    for got, want in zip_equal(states[:3], states[3:]):
        assert_same(got, want)


@pytest.mark.parametrize("optimizer", ["adam", "lazy adam"])
def test_training_goes_on_as_if_nothing_had_happened(tmp_path, optimizer):
    """With Adam, an incremental checkpoint does not change how many steps a row lags behind."""
    hook = sok.IncrementalCheckpointHook(str(tmp_path), save_steps=3)
    run(tmp_path, optimizer, 12, [hook], save_checkpoint_steps=1000)
    assert [entries(tmp_path)[f"model.ckpt-{step}"]["kind"] for step in (6, 9)] == ["delta", "delta"]
    prefixes = [tmp_path / f"model.ckpt-{step}" for step in (6, 9, 12)]
    *resumed, want = states_of(prefixes, optimizer, tmp_path, until=12)
    for got in resumed:
        assert_same(got, want)


def test_it_holds_only_what_has_changed(tmp_path):
    hook = sok.IncrementalCheckpointHook(str(tmp_path), save_steps=3)
    run(tmp_path, "adagrad", 11, [hook], save_checkpoint_steps=1000)
    by_checkpoint = entries(tmp_path)
    assert by_checkpoint["model.ckpt-0"]["kind"] == "full"
    deltas = [entry for entry in by_checkpoint.values() if entry["kind"] == "delta"]
    assert deltas
    for name, entry in by_checkpoint.items():
        shard = json.loads(tf.train.load_checkpoint(str(tmp_path / name)).get_tensor("table#0"))
        if entry["kind"] == "delta":
            assert entry["chain"] and shard["table_rows"] == 200 and 0 < shard["rows"] <= 3 * 6


@pytest.mark.parametrize("optimizer", ["adagrad", "adam"])
def test_a_session_goes_on_from_an_incremental_checkpoint(tmp_path, optimizer):
    for steps in (5, 6):
        hook = sok.IncrementalCheckpointHook(str(tmp_path / "parts"), save_steps=2)
        run(tmp_path / "parts", optimizer, steps, [hook], save_checkpoint_steps=1000)
    run(tmp_path / "whole", optimizer, 11, save_checkpoint_steps=1000)
    parts, whole = (train.latest_checkpoint(str(tmp_path / name)) for name in ("parts", "whole"))
    assert parts.endswith("model.ckpt-11") and whole.endswith("model.ckpt-11")
    parts, whole = states_of([parts, whole], optimizer, tmp_path)
    if optimizer == "adam":
        # Its full checkpoint at step 5 brings all rows up to date, which changes the rounding of sums.
        np.testing.assert_allclose(parts[0]["values"], whole[0]["values"], atol=1e-6)
        np.testing.assert_allclose(parts[1], whole[1], atol=1e-6)
    else:
        assert_same(parts, whole)


def test_the_hook_has_a_directory_of_its_own(tmp_path):
    """Its checkpoints of the last session stay whole, although they build on one that is saved again."""
    of_hook, of_others = tmp_path / "hook", tmp_path / "others"

    for steps in (7, 0):
        hook = sok.IncrementalCheckpointHook(str(of_hook), save_steps=2)
        with tf.Graph().as_default(), contextlib.suppress(EOFError):
            model = Model("adagrad")
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
        model = Model("adagrad")
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


@pytest.mark.parametrize("arguments", [{}, {"save_secs": 1, "save_steps": 1}])
def test_one_of_seconds_and_steps(tmp_path, arguments):
    with pytest.raises(ValueError):
        sok.IncrementalCheckpointHook(str(tmp_path), **arguments)
