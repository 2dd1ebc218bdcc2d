"""GlobalStepEvict over ranks uses the global step, also after a restart on another number of ranks."""

import numpy as np
import tensorflow as tf

import harness
import ranks
import sparse_operation_kit as sok
from row_policy_reference import ReferenceTable
from same_length import zip_equal
from sparse_operation_kit.ranks.communicator import communicator

v1 = tf.compat.v1
train = v1.train
LIFE = 4
STRIDE = 2  # global steps per step here, because other training takes every second one


def _keys(step, rank):
    rng = np.random.default_rng([step, rank])
    return harness.zipf_keys(rng, int(rng.integers(0, 12)), vocabulary=60)


def _train(folder, first, last, parts):
    """Trains steps on this rank's share of the keys, which come in `parts`; gives the global step."""
    known = communicator()
    with tf.Graph().as_default():
        sok.Init(global_batch_size=harness.GLOBAL_BATCH_SIZE, seed=1)
        step = train.get_or_create_global_step()
        table = sok.EmbeddingVariable(
            "table", 2, eviction=sok.GlobalStepEvict(LIFE), admission=sok.CounterFilter(2)
        )
        keys = v1.placeholder(tf.int64, [None])
        loss = tf.reduce_sum(tf.nn.embedding_lookup(table, keys))
        update = train.GradientDescentOptimizer(1.0).minimize(loss)
        count = v1.assign_add(step, STRIDE)
        with train.MonitoredTrainingSession(
            checkpoint_dir=folder, save_checkpoint_steps=10**6, save_summaries_steps=None
        ) as session:
            for number in range(first, last):
                mine = [_keys(number, part) for part in range(parts) if part % known.size == known.rank]
                session.run(update, {keys: np.concatenate(mine) if mine else np.zeros([0], np.int64)})
                session.run(count)
            return int(session.run(step))


def test_rows_go_by_the_global_step_on_any_number_of_ranks(tmp_path):
    parts = 3
    reference = ReferenceTable(steps_to_live=LIFE, filter_freq=2)
    went = 0
    for size, first in ((2, 0), (3, 4), (1, 8)):
        last = first + 4
        steps = ranks.run(_train, str(tmp_path), first, last, parts, ranks=size)
        assert steps == [last * STRIDE] * size
        for number in range(first, last):
            keys = [int(key) for part in range(parts) for key in _keys(number, part)]
            reference.step(keys, global_step=number * STRIDE)
        before = len(reference.rows)
        reference.save(global_step=last * STRIDE)
        went += before - len(reference.rows)
        arrays = harness.saved_tables(str(tmp_path / f"model.ckpt-{last * STRIDE}"))["table"]
        want = {key: row.last_step for key, row in reference.rows.items()}
        assert dict(zip_equal(arrays["keys"].tolist(), arrays["last_step"].tolist())) == want
    assert went > 5
