# Tags: slow
# Not on GPUs: a program; the tests gpu_* have one
"""tf.estimator.train_and_evaluate with TF_CONFIG: chief, worker, servers and evaluator are processes."""

from __future__ import annotations

import json
import os
import pathlib
import sys
import time

import numpy as np
import pytest
import tensorflow as tf

import harness
import local_cluster
import sparse_operation_kit as sok
from sparse_operation_kit.checkpoint import open_checkpoint

if not hasattr(tf, "estimator"):
    pytest.skip(f"TensorFlow {tf.__version__} has no Estimator", allow_module_level=True)

v1 = tf.compat.v1

IDS = np.arange(64) * 7 % 40
STEPS = 40


def clicks(repeat):
    labels = (IDS % 2).astype(np.float32)
    data = tf.data.Dataset.from_tensor_slices(({"user": IDS}, labels))
    return data.repeat(repeat).batch(16)


def model_fn(features, labels, mode, params):
    table = sok.get_embedding_variable("users", 4)
    rows = tf.nn.embedding_lookup(table, features["user"])
    logits = v1.layers.dense(rows, 1, name="dense")[:, 0]
    if mode == tf.estimator.ModeKeys.PREDICT:
        outputs = {"serving_default": tf.estimator.export.PredictOutput({"logits": logits})}
        return tf.estimator.EstimatorSpec(mode, predictions={"logits": logits}, export_outputs=outputs)
    loss = tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=logits))
    # Estimators evaluate models with a training step, too.
    train = v1.train.AdamOptimizer(params["rate"]).minimize(loss, global_step=v1.train.get_global_step())
    metrics = {"rows": v1.metrics.mean(tf.cast(table.size(), tf.float32))}
    v1.summary.scalar("size", table.size())
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train, eval_metric_ops=metrics)


class _Together(v1.train.SessionRunHook):
    """Counts steps. The worker makes five, and the chief's tenth waits for them: it makes the last steps."""

    def __init__(self, folder, kind, waits):
        self.steps = 0
        self._kind, self._file, self._waits = kind, folder / "worker_has_trained", waits

    def after_run(self, run_context, run_values):
        del run_values
        self.steps += 1
        if self._kind == "worker" and self.steps == 5:
            run_context.request_stop()
        while self._kind == "chief" and self._waits and self.steps == 10 and not self._file.exists():
            time.sleep(0.05)

    def end(self, session):
        del session
        if self._kind == "worker":
            self._file.touch()


def receiver():
    features = {"user": v1.placeholder(tf.int64, [None])}
    return tf.estimator.export.ServingInputReceiver(features, features)


def train_and_evaluate(folder, steps, rate, warm_start_from):
    """The program of all tasks."""
    task = json.loads(os.environ["TF_CONFIG"])
    kind, waits = task["task"]["type"], "worker" in task["cluster"]
    config = tf.estimator.RunConfig(tf_random_seed=1, save_checkpoints_steps=10, save_summary_steps=5)
    config = config.replace(experimental_max_worker_delay_secs=0)
    estimator = tf.estimator.Estimator(
        model_fn,
        model_dir=str(folder / "model"),
        config=config,
        params={"rate": rate},
        warm_start_from=warm_start_from,
    )
    hook = _Together(folder, kind, waits)
    exporters = [
        tf.estimator.FinalExporter("final", receiver),
        tf.estimator.LatestExporter("latest", receiver),
    ]
    tf.estimator.train_and_evaluate(
        estimator,
        tf.estimator.TrainSpec(lambda: clicks(None), max_steps=steps, hooks=[hook]),
        tf.estimator.EvalSpec(
            lambda: clicks(1), steps=None, start_delay_secs=0, throttle_secs=1, exporters=exporters
        ),
    )
    result = {"steps": hook.steps}
    if kind == "chief":
        found = estimator.predict(lambda: clicks(1), yield_single_examples=False)
        result["logits"] = np.concatenate([batch["logits"] for batch in found]).tolist()
        result["rows"] = float(estimator.evaluate(lambda: clicks(1))["rows"])
        result["exported"] = estimator.export_saved_model(str(folder / "exported"), receiver).decode()
    (folder / f"{kind}.json").write_text(json.dumps(result))


def run(folder, tasks, steps=STEPS, rate=0.05, warm_start_from=None):
    """Runs the tasks until all but the servers have ended; returns their results by kind."""
    arguments = json.dumps([str(folder), steps, rate, warm_start_from])
    local_cluster.run_tasks(tasks, folder, folder / "model", __file__, arguments)
    return {path.stem: json.loads(path.read_text()) for path in folder.glob("*.json")}


def served(exported):
    """The logits of an exported model, in a process without a cluster."""
    return harness.served(exported, user=IDS)["logits"]


def steps_of(results):
    return results["chief"]["steps"] + results["worker"]["steps"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained")
    tasks = [("ps", 0), ("ps", 1), ("chief", 0), ("evaluator", 0), ("worker", 0)]
    return folder, run(folder, tasks)


def test_chief_and_worker_train_the_same_tables_which_are_on_servers(trained):
    folder, results = trained
    assert results["worker"]["steps"] == 5
    prefix = tf.train.latest_checkpoint(str(folder / "model"))
    assert steps_of(results) == STEPS
    assert v1.train.load_variable(prefix, "global_step") == STEPS
    (table,) = open_checkpoint(prefix).tables
    assert (
        table.name == "users" and table.open().last.rows == len(set(IDS.tolist())) == results["chief"]["rows"]
    )


def test_chief_and_evaluator_export_what_the_chief_predicts(trained):
    folder, results = trained
    expected = results["chief"]["logits"]
    np.testing.assert_array_equal(served(results["chief"]["exported"]), expected)
    for name in ("final", "latest"):
        newest = max(map(str, (folder / "model" / "export" / name).iterdir()))
        np.testing.assert_array_equal(served(newest), expected)


def test_another_number_of_servers_goes_on_after_the_end_of_all(trained):
    folder, results = trained
    tasks = [("ps", 0), ("ps", 1), ("ps", 2), ("chief", 0)]
    # The same rows: their gradient has no effect.
    again = run(folder, tasks, steps=STEPS + 5, rate=0.0)
    assert again["chief"]["steps"] == 5
    assert again["chief"]["logits"] == results["chief"]["logits"]


def test_a_warm_start_fills_the_tables_of_servers(trained, tmp_path):
    folder, results = trained
    again = run(
        tmp_path / "warm", [("ps", 0), ("chief", 0)], steps=2, rate=0.0, warm_start_from=str(folder / "model")
    )
    assert again["chief"]["steps"] == 2
    assert again["chief"]["logits"] == results["chief"]["logits"]


if __name__ == "__main__":
    folder_, *arguments_ = json.loads(sys.argv[1])
    train_and_evaluate(pathlib.Path(folder_), *arguments_)
