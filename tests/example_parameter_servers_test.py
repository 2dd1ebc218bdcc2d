"""A program of examples/deeprec/zoo under TF_CONFIG: two servers, a chief and a worker."""

from __future__ import annotations

import importlib
import json
import os
import pathlib
import sys
import time

import numpy as np
import pytest
import tensorflow as tf

import local_cluster
from example_support import EXAMPLES
from harness import without_optimizations
from sparse_operation_kit.checkpoint import open_checkpoint

if not hasattr(tf.compat.v1, "estimator"):
    pytest.skip(f"TensorFlow {tf.__version__} has no Estimator", allow_module_level=True)

sys.path.insert(0, str(EXAMPLES / "deeprec" / "zoo"))

STEPS = 40
FLAGS = [
    "--samples",
    "800",
    "--batch_size",
    "64",
    "--embedding_dim",
    "8",
    "--save_steps",
    "10",
]
FLAGS += ["--ev_filter", "counter", "--ev_elimination", "gstep"]


def program(folder, steps, flags):
    """din.py; the chief goes on from its first checkpoint when the worker trains."""
    run = importlib.import_module("zoo_run")
    own = run.session_config
    run.session_config = lambda flags: without_optimizations(own(flags))
    is_chief = json.loads(os.environ["TF_CONFIG"])["task"]["type"] == "chief"
    marker = pathlib.Path(folder, "worker_trains")

    class Together(tf.compat.v1.train.StopAtStepHook):
        made = 0

        def after_run(self, run_context, run_values):
            super().after_run(run_context, run_values)
            self.made += 1
            if not is_chief:
                marker.touch()
            while is_chief and self.made == 15 and not marker.exists():
                time.sleep(0.05)

    run.tf.train.StopAtStepHook = Together
    arguments = [*FLAGS, "--steps", str(steps), "--checkpoint", os.path.join(folder, "model"), *flags]
    results = importlib.import_module("din").main(arguments)
    results["losses"] = [float(loss) for loss in results["losses"]]
    results["loss"] = float(results["loss"])
    pathlib.Path(folder, "chief.json" if is_chief else "worker.json").write_text(json.dumps(results))


def test_chief_and_worker_train_on_servers_and_any_number_goes_on(tmp_path):
    model = tmp_path / "model"
    tasks = [("ps", 0), ("ps", 1), ("chief", 0), ("worker", 0)]
    local_cluster.run_tasks(tasks, tmp_path, model, __file__, json.dumps([str(tmp_path), STEPS, []]))
    chief, worker = (json.loads((tmp_path / f"{kind}.json").read_text()) for kind in ("chief", "worker"))
    steps = len(chief["losses"]) + len(worker["losses"])
    assert STEPS <= steps <= STEPS + 1 and np.isfinite([*chief["losses"], *worker["losses"]]).all()
    assert len(worker["losses"]) > 0 and 0 <= chief["auc"]["liked"] <= 1 and not worker["auc"]
    checkpoint = open_checkpoint(tf.train.latest_checkpoint(str(model)))
    for entry in checkpoint.tables:
        table = entry.open().last
        assert len(table.shards) == 2 and all(shard.table_rows > 0 for shard in table.shards)
    # One process, without a cluster.
    again = importlib.import_module("din").main(
        [*FLAGS, "--steps", str(steps + 1), "--checkpoint", str(model)]
    )
    # The worker's last step may have come after the chief's last checkpoint.
    assert len(again["losses"]) in (1, 2) and again["checkpoint"].endswith(f"-{steps + 1}")


if __name__ == "__main__":
    program(*json.loads(sys.argv[1]))
