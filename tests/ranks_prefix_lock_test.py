"""While another process saves to the prefix, a save fails on all ranks with the reason; the next succeeds."""

import os

import pytest
import tensorflow as tf

import harness
import ranks
import saved_files
import sparse_operation_kit as sok
from sparse_operation_kit.checkpoint import prefix_lock
from sparse_operation_kit.ranks.communicator import communicator
from sparse_operation_kit.saver import checkpoint_save


def _save_where_another_does(folder):
    checkpoint_save._PATIENCE_SECONDS = 0.1
    prefix = f"{folder}/m"
    first = communicator().rank == 0
    with harness.graph_and_session() as session:
        table = sok.EmbeddingVariable("t", dim=2)
        rows = tf.nn.embedding_lookup(table, tf.constant([1, 2, 3], tf.int64))
        saver = tf.compat.v1.train.Saver()
        harness.initialize(session)
        before = session.run(rows)
        lock = prefix_lock.acquire(prefix, 0) if first else None
        with pytest.raises(tf.errors.FailedPreconditionError) as raised:
            saver.save(session, prefix)
        if first:
            assert f"Process {os.getpid()} on " in raised.value.message
            assert not [name for name in saved_files.files(prefix) if not name.endswith(".lock")]
            lock.release()
        # Ranks start a save together, so none starts before rank 0 has released its lock.
        saver.save(session, prefix)
        saver.restore(session, prefix)
        assert (session.run(rows) == before).all()
        return raised.value.message


@pytest.mark.parametrize("count", [2, 3])
def test_all_ranks_raise_and_go_on(tmp_path, count):
    messages = ranks.run(_save_where_another_does, str(tmp_path), ranks=count)
    assert "is saving to" in messages[0]
    assert all("rank 0" in message for message in messages[1:]), messages
