"""A WorkQueue over ranks: each work goes to one rank, also after a restore on another number of ranks."""

from __future__ import annotations

import pytest
import tensorflow as tf

import harness
import ranks
import sparse_operation_kit as sok
from sparse_operation_kit.deeprec import WorkQueue

v1 = tf.compat.v1
WORKS = [f"part-{number}" for number in range(11)]
EPOCHS = 2


def _initialize_horovod() -> int:
    import horovod.tensorflow as hvd

    hvd.init()
    return hvd.rank()


def _take(folder: str, restored: bool, counts: list[int] | None) -> list[str]:
    """Takes `counts[rank]` works, or all; then saves. Returns what this rank took."""
    rank = _initialize_horovod()
    taken = []
    with harness.graph_and_session() as session:
        work = WorkQueue(WORKS, EPOCHS, seed=3).take()
        table = sok.EmbeddingVariable("work_queue/table", 2)
        saver = v1.train.Saver()
        harness.initialize(session)
        if restored:
            saver.restore(session, f"{folder}/saved")
        session.run(v1.local_variables_initializer())
        while counts is None or len(taken) < counts[rank]:
            try:
                taken.append(session.run(work).decode())
            except tf.errors.OutOfRangeError:
                break
        saver.save(session, f"{folder}/saved")
        del table
    return taken


@pytest.mark.parametrize(
    ("first", "second", "last"),
    # In the first, two ranks share 11 works in the end.
    [([3, 4], [4], 2), ([2], [0, 3], 1)],
)
def test_each_work_goes_to_one_rank_once_per_epoch(tmp_path, first, second, last):
    taken = []
    for number, (size, counts) in enumerate([(len(first), first), (len(second), second), (last, None)]):
        for of_rank in ranks.run(_take, str(tmp_path), number > 0, counts, ranks=size):
            taken += of_rank
    assert sorted(taken) == sorted(WORKS * EPOCHS)
