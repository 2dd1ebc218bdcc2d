"""What DeepRec's scripts do around their tables, over ranks: tf.staged and incremental checkpoints."""

from __future__ import annotations

import pathlib

import numpy as np
import tensorflow as tf

import harness
import ranks
import saved_files
from sparse_operation_kit import deeprec

v1 = tf.compat.v1
BATCH = 12  # of all ranks together
KEYS = 30


def _keys(first: int, steps: int, rank: int, size: int) -> tf.data.Dataset:
    """A rank's part of the batches of some steps; keys occur in several steps, and on several ranks."""
    rng = np.random.default_rng(7)
    batches = rng.integers(0, KEYS, [100, BATCH])[first : first + steps]
    return tf.data.Dataset.from_tensor_slices(np.split(batches, size, axis=1)[rank] * 2**40 - 5)


def _train(folder: str | None, first: int, steps: int, rank: int, size: int, staged: bool) -> list[list[int]]:
    """Trains on a rank's batches until they end, and returns them. Saves incremental checkpoints."""
    seen = []
    keys = v1.data.make_initializable_iterator(_keys(first, steps, rank, size))
    batch = keys.get_next()
    if staged:
        batch = v1.staged(batch, num_threads=2, capacity=3)
    table = v1.get_embedding_variable("table", embedding_dim=2, initializer=tf.ones_initializer())
    rows = tf.nn.embedding_lookup(table, batch)
    loss = tf.reduce_mean(tf.square(rows - 3))
    step = v1.train.AdagradOptimizer(0.5).minimize(loss, v1.train.get_or_create_global_step())
    scaffold = v1.train.Scaffold(local_init_op=tf.group(v1.local_variables_initializer(), keys.initializer))
    with v1.train.MonitoredTrainingSession(
        checkpoint_dir=folder,
        scaffold=scaffold,
        hooks=[v1.make_prefetch_hook()],
        save_checkpoint_secs=None,
        save_checkpoint_steps=1000,
        save_incremental_checkpoint_secs=1e-6,
    ) as session:
        while not session.should_stop():
            seen.append(session.run([batch, step])[0].tolist())
    return seen


def _train_on_ranks(folder: str, first: int, steps: int) -> list[list[int]]:
    v1.config.experimental.enable_distributed_strategy(strategy="collective")
    import horovod.tensorflow as hvd

    with tf.Graph().as_default():
        return _train(folder, first, steps, hvd.rank(), hvd.size(), staged=True)


def _rows(folder: pathlib.Path) -> dict[int, list[float]]:
    """The rows that one process restores from the latest checkpoint."""
    with harness.graph_and_session() as session:
        table = v1.get_embedding_variable("table", embedding_dim=2, initializer=tf.ones_initializer())
        v1.train.Saver([table]).restore(session, v1.train.latest_checkpoint(str(folder)))
        return dict(zip(*(part.tolist() for part in session.run(table.keys_and_rows()))))


def _kinds(folder: pathlib.Path) -> dict[int, str]:
    """Of each checkpoint, by its step, the kind of its table."""
    prefixes = [path.with_suffix("") for path in folder.glob("model.ckpt-*.index")]
    return {int(prefix.name[11:]): saved_files.entry(prefix, "table")["kind"] for prefix in prefixes}


def test_staged_batches_and_incremental_checkpoints_are_those_of_one_process(tmp_path):
    """Two ranks train, three go on from an incremental checkpoint; one process trains on all batches."""
    deeprec.install()
    ours, whole = tmp_path / "ours", tmp_path / "whole"
    first_ranks = ranks.run(_train_on_ranks, str(ours), 0, 6, ranks=2)
    last = max(step for step, kind in _kinds(ours).items() if kind == "delta")
    v1.train.update_checkpoint_state(str(ours), str(ours / f"model.ckpt-{last}"))
    other_ranks = ranks.run(_train_on_ranks, str(ours), last, 11 - last, ranks=3)

    with tf.Graph().as_default():
        wanted = _train(str(whole), 0, 11, rank=0, size=1, staged=False)
    assert np.concatenate(first_ranks, axis=1).tolist() == wanted[:6]
    assert np.concatenate(other_ranks, axis=1).tolist() == wanted[last:]
    rows, expected = _rows(ours), _rows(whole)
    assert rows.keys() == expected.keys() and len(rows) > KEYS // 2
    np.testing.assert_allclose([rows[key] for key in expected], [*expected.values()], rtol=1e-5)
