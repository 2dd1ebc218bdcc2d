"""Estimators over ranks export SavedModels: rank 0 writes the rows of all ranks, and no rank waits."""

import os

import numpy as np
import pytest
import tensorflow as tf

import harness
import ranks
import sparse_operation_kit as sok
from sparse_operation_kit.ranks.communicator import communicator

if not hasattr(tf, "estimator"):
    pytest.skip(f"TensorFlow {tf.__version__} has no Estimator", allow_module_level=True)

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
    exporters = [
        tf.estimator.FinalExporter("final", _receiver),
        tf.estimator.LatestExporter("latest", _receiver),
    ]
    tf.estimator.train_and_evaluate(
        estimator,
        tf.estimator.TrainSpec(_input_fn, max_steps=3),
        tf.estimator.EvalSpec(_input_fn, steps=1, exporters=exporters),
    )
    path = estimator.export_saved_model(os.path.join(folder, "all"), _receiver)
    assert (path is None) == (communicator().rank > 0)
    if path is not None:
        # A rank may export alone.
        estimator.export_saved_model(os.path.join(folder, "alone"), _receiver)
    return np.stack([one["rows"] for one in estimator.predict(_input_fn)])[: len(KEYS)]


def test_rank_0_exports_all_rows(tmp_path):
    of_ranks = ranks.run(_export, str(tmp_path), ranks=2)
    np.testing.assert_array_equal(*of_ranks)
    folders = [tmp_path / "model" / "export" / name for name in ("final", "latest")]
    for folder in [*folders, tmp_path / "all", tmp_path / "alone"]:
        (exported,) = folder.iterdir()
        np.testing.assert_array_equal(harness.served(str(exported), ids=KEYS)["rows"], of_ranks[0])
