"""DeepRec's programs over ranks: its arithmetic gives the tables of one process that has the batches of all
ranks; tf.staged, incremental checkpoints, and a WorkQueue, whose works go to one rank each."""

from __future__ import annotations

import pathlib

import numpy as np
import tensorflow as tf

import harness
import ranks
import saved_files
import sparse_operation_kit as sok
from device_of_tests import sized
from sparse_operation_kit import deeprec
from sparse_operation_kit.deeprec import WorkQueue
from sparse_operation_kit.lookup import group
from sparse_operation_kit.optimizers import fused_updates
from sparse_operation_kit.ranks.communicator import communicator

v1 = tf.compat.v1
KEYS = np.concatenate([harness.HOSTILE_KEYS, np.arange(-4, 12)])
STEPS = 9
OPTIMIZERS = {
    "ftrl": lambda: v1.train.FtrlOptimizer(0.1, l1_regularization_strength=0.4),
    "adam": lambda: v1.train.AdamOptimizer(0.05),
    "adam_async": lambda: deeprec.AdamAsyncOptimizer(0.05),
}

# The optimizer, and whether updates are fused.
CASES = [("ftrl", True), ("adam", True), ("adam_async", True), ("adam_async", False)]


def _batch(rank: int, step: int) -> np.ndarray:
    """Keys of a rank. Some ranks have none, and in step 4 no rank has any."""
    rng = np.random.default_rng([rank, step])
    if step == 4 or (step + rank) % 3 == 1:
        return np.zeros([0], np.int64)
    return rng.choice(KEYS, 10)


def _bags_of_one(ids: tf.Tensor) -> tf.RaggedTensor:
    return tf.RaggedTensor.from_row_splits(ids, tf.range(tf.size(ids, out_type=tf.int64) + 1))


def _train(name: str, of_ranks: list[int], fused: bool) -> tuple[list[np.ndarray], list[float]]:
    """The rows of all keys after training with the batches of some ranks, and the powers of Adam.

    With fused updates, TensorFlow draws the initial rows of one table, and those of the other are given.
    """
    seed = 3 if fused else None
    option = deeprec.EmbeddingVariableOption(
        filter_option=deeprec.CounterFilter(3, before_lookup=True),
        init_option=deeprec.InitializerOption(
            v1.truncated_normal_initializer(seed=seed), default_value_dim=5
        ),
    )
    second_option = deeprec.InitializerOption([0.5, -0.25]) if fused else option.init_option
    with harness.graph_and_session() as session, fused_updates(fused):
        tables = [deeprec.get_embedding_variable("a", 3, ev_option=option)]
        tables.append(
            deeprec.get_embedding_variable(
                "b", 2, ev_option=deeprec.EmbeddingVariableOption(init_option=second_option)
            )
        )
        ids = v1.placeholder(tf.int64, [None])
        bags = _bags_of_one(ids)
        # The second table has rows in the steps with even numbers only.
        second = v1.placeholder(tf.int64, [None])
        seconds = _bags_of_one(second)
        rows = deeprec.group_embedding_lookup_sparse(tables, [bags, seconds], ["sum", "sum"])
        loss = tf.add_n([tf.reduce_sum(tf.square(one - 0.25)) for one in rows])
        train = OPTIMIZERS[name]().minimize(loss)
        every = [group.DenseLookup(table, tf.constant(KEYS)) for table in tables]
        every = group.lookup_group(every, training=False)
        powers = sorted(
            (one for one in v1.global_variables() if "beta" in one.name and name == "adam_async"),
            key=lambda one: one.name,
        )
        harness.initialize(session)
        for step in range(STEPS):
            keys = np.concatenate([_batch(rank, step) for rank in of_ranks])
            session.run(train, {ids: keys, second: keys if step % 2 == 0 else keys[:0]})
        return session.run(every), [float(one) for one in session.run(powers)]


def _train_all() -> list:
    deeprec.install()
    return [_train(name, [communicator().rank], fused) for name, fused in CASES]


def test_ranks_train_as_one_process():
    deeprec.install()
    size = sized(3, 2)
    found = ranks.run(_train_all, ranks=size)
    for number, (name, fused) in enumerate(CASES):
        rows, powers = _train(name, list(range(size)), fused)
        for of_rank in found:
            harness.assert_close_arrays(
                of_rank[number][0], rows, rtol=1e-5, atol=1e-6, err_msg=f"{name}, {fused}"
            )
            assert of_rank[number][1] == powers
        if name == "adam_async":
            # Five of the nine steps look up the second table; in one of these, no rank has a key.
            np.testing.assert_allclose(np.log(powers[2:]) / np.log([0.9, 0.999]) - 1, [4, 4], rtol=1e-2)


BATCH = 12  # of all ranks together
KEYS_SCRIPTS = 30


def _keys(first: int, steps: int, rank: int, size: int) -> tf.data.Dataset:
    """A rank's part of the batches of some steps; keys occur in several steps, and on several ranks."""
    rng = np.random.default_rng(7)
    batches = rng.integers(0, KEYS_SCRIPTS, [100, BATCH])[first : first + steps]
    return tf.data.Dataset.from_tensor_slices(np.split(batches, size, axis=1)[rank] * 2**40 - 5)


def _train_scripts(
    folder: str | None, first: int, steps: int, rank: int, size: int, staged: bool
) -> list[list[int]]:
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
    with tf.Graph().as_default():
        return _train_scripts(folder, first, steps, communicator().rank, communicator().size, staged=True)


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
        wanted = _train_scripts(str(whole), 0, 11, rank=0, size=1, staged=False)
    assert np.concatenate(first_ranks, axis=1).tolist() == wanted[:6]
    assert np.concatenate(other_ranks, axis=1).tolist() == wanted[last:]
    rows, expected = _rows(ours), _rows(whole)
    assert rows.keys() == expected.keys() and len(rows) > KEYS_SCRIPTS // 2
    np.testing.assert_allclose([rows[key] for key in expected], [*expected.values()], rtol=1e-5)


WORKS = [f"part-{number}" for number in range(11)]
EPOCHS = 2


def _take(folder: str, restored: bool, counts: list[int | None]) -> list[str]:
    """Takes `counts[rank]` works, or all for None; then saves. Returns what this rank took."""
    count, taken = counts[communicator().rank], []
    with harness.graph_and_session() as session:
        work = WorkQueue(WORKS, EPOCHS, seed=3).take()
        table = sok.EmbeddingVariable("work_queue/table", 2)
        saver = v1.train.Saver()
        harness.initialize(session)
        if restored:
            saver.restore(session, f"{folder}/saved")
        session.run(v1.local_variables_initializer())
        while count is None or len(taken) < count:
            try:
                taken.append(session.run(work).decode())
            except tf.errors.OutOfRangeError:
                break
        saver.save(session, f"{folder}/saved")
        del table
    return taken


def test_each_work_goes_to_one_rank_once_per_epoch(tmp_path):
    taken = []
    # In the end, two ranks share 13 works.
    for number, counts in enumerate([[2], [0, 3], [4], [None, None]]):
        for of_rank in ranks.run(_take, str(tmp_path), number > 0, counts, ranks=len(counts)):
            taken += of_rank
    assert sorted(taken) == sorted(WORKS * EPOCHS)
