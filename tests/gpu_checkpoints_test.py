"""Files of tables go from TensorFlow's /GPU:0 to the CPU and back: raw files and incremental checkpoints."""

from __future__ import annotations

import pathlib

import pytest
import tensorflow as tf

import fake_gpu_device  # noqa: F401 - gives this process the device
import harness
import sparse_operation_kit as sok

v1 = tf.compat.v1
CPU, GPU = "/CPU:0", "/GPU:0"
DIM = 3


def model(device, keys):
    """A table on `device`, and a step of Adam on the rows of the keys."""
    sok.Init(global_batch_size=harness.GLOBAL_BATCH_SIZE, seed=harness.SEED)
    with tf.device(device):
        table = sok.EmbeddingVariable(name="table", dim=DIM, initializer="random_normal")
    rows = tf.nn.embedding_lookup(table, keys)
    step = v1.train.AdamOptimizer(0.1).minimize(
        tf.reduce_mean(tf.square(rows + 1.0)), global_step=v1.train.get_or_create_global_step()
    )
    return table, step


def files_of(folder):
    return {path.name: path.read_bytes() for path in pathlib.Path(folder).iterdir()}


@pytest.mark.parametrize(("dumped_on", "restored_on"), [(GPU, CPU), (CPU, GPU)])
def test_raw_files(tmp_path, dumped_on, restored_on):
    (tmp_path / "first").mkdir()
    (tmp_path / "second").mkdir()
    with harness.graph_and_session() as session:
        table, step = model(dumped_on, tf.constant(harness.HOSTILE_KEYS, tf.int64))
        harness.initialize(session)
        session.run(step)
        session.run(sok.Saver().dump_to_file(table, str(tmp_path / "first")))
        want = harness.table_contents(session, table)
    with harness.graph_and_session() as session:
        table, _ = model(restored_on, tf.constant([1, 2], tf.int64))
        harness.initialize(session)
        session.run(sok.Saver().restore_from_file(table, str(tmp_path / "first")))
        harness.assert_equal_arrays(harness.table_contents(session, table), want)
        session.run(sok.Saver().dump_to_file(table, str(tmp_path / "second")))
    assert files_of(tmp_path / "first") == files_of(tmp_path / "second")


def train(folder, device, until):
    """Goes on from the last checkpoint of the folder, and saves an incremental one every other step."""
    with tf.Graph().as_default():
        global_step = v1.train.get_or_create_global_step()
        # All keys in the first step, and a few in the others: increments have these.
        first = tf.where(tf.equal(global_step, 0), tf.range(50, dtype=tf.int64), tf.zeros([50], tf.int64))
        _, step = model(device, tf.concat([global_step * 7 + tf.range(6, dtype=tf.int64), first], 0))
        hook = sok.IncrementalCheckpointHook(str(folder), save_steps=2)
        arguments = {"checkpoint_dir": str(folder), "save_checkpoint_steps": 1000, "hooks": [hook]}
        with v1.train.MonitoredTrainingSession(**arguments) as session:
            for _ in range(int(session.run(global_step)), until):
                session.run(step)


def state_of(prefix, device, folder):
    """All arrays of the table that a checkpoint gives, which a full checkpoint writes."""
    with harness.graph_and_session() as session:
        model(device, tf.constant([1], tf.int64))
        saver = v1.train.Saver()
        saver.restore(session, prefix)
        return harness.saved_tables(saver.save(session, str(folder / "state")))["table"]


def test_incremental_checkpoints_go_on_on_the_other_device(tmp_path):
    states = []
    for name, devices in (("moved", (GPU, CPU, GPU)), ("stayed", (CPU, CPU, CPU))):
        for part, device in enumerate(devices):
            train(tmp_path / name, device, until=4 * (part + 1))
        last = v1.train.latest_checkpoint(str(tmp_path / name))
        states += [state_of(last, device, tmp_path) for device in (CPU, GPU)]
    for state in states[1:]:
        harness.assert_equal_dicts(state, states[0])
