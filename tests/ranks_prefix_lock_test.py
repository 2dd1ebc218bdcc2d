"""Ranks that save: while another process does, all fail and go on; rank 0 exports the rows of all."""

import os
import time
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

import harness
import ranks
import saved_files
import sparse_operation_kit as sok
from sparse_operation_kit.checkpoint import prefix_lock
from sparse_operation_kit.ranks.communicator import communicator
from sparse_operation_kit.saver import checkpoint_save
from sparse_operation_kit.serving import together


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


v1 = tf.compat.v1
KEYS = np.arange(8)


def _model_fn(features, labels, mode):
    del labels
    sok.Init(global_batch_size=len(KEYS), seed=harness.SEED)
    table = sok.EmbeddingVariable("scope/table", 2)
    rows = tf.nn.embedding_lookup(table, features["ids"])
    if mode == tf.estimator.ModeKeys.PREDICT:
        return tf.estimator.EstimatorSpec(mode, predictions={"rows": rows})
    loss = tf.reduce_sum(tf.square(rows))
    step = v1.train.AdamOptimizer(0.1).minimize(loss, v1.train.get_global_step())
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=step)


def _input_fn():
    return tf.data.Dataset.from_tensors({"ids": KEYS}).repeat(4)


def _receiver():
    ids = v1.placeholder(tf.int64, [None])
    return tf.estimator.export.ServingInputReceiver({"ids": ids}, {"ids": ids})


def _export(folder):
    """Trains, exports into `folder`, and returns the rows of KEYS."""
    estimator = tf.estimator.Estimator(_model_fn, os.path.join(folder, "model"))
    exporters = [tf.estimator.FinalExporter("final", _receiver)]
    if communicator().rank == 0:
        exporters.append(tf.estimator.LatestExporter("latest", _receiver))  # As if its results were better.
    tf.estimator.train_and_evaluate(
        estimator,
        tf.estimator.TrainSpec(_input_fn, max_steps=3),
        tf.estimator.EvalSpec(_input_fn, steps=1, exporters=exporters),
    )
    own = estimator.export_saved_model(os.path.join(folder, "all"), _receiver)
    assert Path(os.fsdecode(own)).is_dir() and Path(os.fsdecode(own)).parent.name == "all"
    stock = os.path.join(folder, "stock")
    path = sok.serving.export_saved_model(estimator, stock, _receiver, absent="zeros")
    with pytest.raises(Exception, match="absent" if communicator().rank == 0 else "another rank failed"):
        sok.serving.export_saved_model(estimator, stock, _receiver)
    rows = np.stack([one["rows"] for one in estimator.predict(_input_fn)])[: len(KEYS)]
    _export_apart(estimator, folder)
    return rows, os.fsdecode(path)


def _wait_for(file):
    while not file.exists():
        time.sleep(0.1)


def _export_apart(estimator, folder):
    """Rank 0 exports and gives up before the other rank does."""
    raised = [Path(folder, f"raised_{rank}") for rank in range(2)]
    if communicator().rank == 1:
        _wait_for(raised[0])
    together._PATIENCE_SECONDS = 1
    with pytest.raises(tf.errors.FailedPreconditionError, match="not all 2 ranks have called it"):
        estimator.export_saved_model(os.path.join(folder, "apart"), _receiver)
    raised[communicator().rank].touch()
    _wait_for(raised[1])  # Horovod ends with the first rank.


@pytest.mark.skipif(not hasattr(tf, "estimator"), reason=f"TensorFlow {tf.__version__} has no Estimator")
def test_rank_0_exports_all_rows(tmp_path):
    of_ranks, paths = zip(*ranks.run(_export, str(tmp_path), ranks=2))
    np.testing.assert_array_equal(*of_ranks)
    assert paths[0] == paths[1]
    found = saved_files.serve_model(Path(paths[0]), {"ids": KEYS.tolist()}, "sparse_operation_kit")
    np.testing.assert_array_equal(found["serving_default"]["rows"], of_ranks[0])
    folders = [tmp_path / "model" / "export" / name for name in ("final", "latest")]
    for folder in [*folders, tmp_path / "all"]:
        (exported,) = folder.iterdir()
        np.testing.assert_array_equal(harness.served(str(exported), ids=KEYS)["rows"], of_ranks[0])
