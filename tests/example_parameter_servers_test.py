# Tags: slow, old_version
# Not on GPUs: a program; the tests gpu_* have one
"""Programs of examples/deeprec/zoo under TF_CONFIG: two servers, a chief and a worker."""

from __future__ import annotations

import collections
import importlib
import json
import os
import pathlib
import sys
import time
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.training import training

import local_cluster
import ranks
from example_support import EXAMPLES
from harness import without_optimizations
from sparse_operation_kit.checkpoint import open_checkpoint, row_blocks, waiting_ids
from sparse_operation_kit.checkpoint.rows import columns_of

if not hasattr(tf.compat.v1, "estimator"):
    pytest.skip(f"TensorFlow {tf.__version__} has no Estimator", allow_module_level=True)

sys.path.insert(0, str(EXAMPLES / "deeprec" / "zoo"))

v1 = tf.compat.v1
TASKS = [("ps", 0), ("ps", 1), ("chief", 0), ("worker", 0)]
# Files of 40 samples, so three steps, each of which is a work.
FILES = 24
STEPS = 3 * FILES
STEPS_TO_LIVE = 10
FLAGS = ["--samples", str(FILES * 50), "--batch_size", "16", "--embedding_dim", "8", "--save_steps", "20"]
FLAGS += ["--keep_checkpoint_max", "9", "--workqueue", "--ev_elimination", "gstep"]
PROGRAMS = {"din": ["--ev_filter", "counter"], "esmm": ["--ev_filter", "cbf"]}


def set_up(taken):
    """Changes the programs for this test; the works that this task takes are added to the list."""
    modules: list[Any] = [importlib.import_module(f"zoo_{name}") for name in ("run", "data", "layers")]
    run, data, layers = modules
    data.PARTS = FILES
    own = run.session_config
    run.session_config = lambda flags: without_optimizations(own(flags))
    evict = layers.tf.GlobalStepEvict
    layers.tf.GlobalStepEvict = lambda steps_to_live: evict(STEPS_TO_LIVE)

    def note(work):
        taken.append(os.path.basename(work.decode()))
        return work

    class Queue(run.WorkQueue):
        """An epoch of the works."""

        def __init__(self, works, num_epochs, seed):
            super().__init__(works, 1, seed=seed)

        def input_dataset(self):
            works = super().input_dataset()
            noted = works.map(lambda work: tf.ensure_shape(tf.numpy_function(note, [work], tf.string), []))
            noted.first_work = works.first_work
            return noted

    run.WorkQueue = Queue
    return run


def program(folder, name, steps):
    """A task; the chief goes on from its first checkpoint when the worker trains."""
    taken, devices = [], set()
    run = set_up(taken)
    is_chief = json.loads(os.environ["TF_CONFIG"])["task"]["type"] == "chief"
    marker = pathlib.Path(folder, "worker_trains")

    class Together(v1.train.StopAtStepHook):
        made = 0

        def begin(self):
            super().begin()
            for variable in v1.global_variables():
                devices.update(one.device for one in getattr(variable, "handles", [variable]))

        def after_run(self, run_context, run_values):
            super().after_run(run_context, run_values)
            self.made += 1
            if not is_chief:
                marker.touch()
            while is_chief and self.made == 15 and not marker.exists():
                time.sleep(0.05)

    # Version 1.15's Estimator has the hook from its private module.
    run.tf.train.StopAtStepHook = training.StopAtStepHook = Together
    # Batches that are prepared far ahead would be all that there are.
    flags = [*FLAGS, *PROGRAMS[name], "--smartstaged", "False", "--steps", str(steps)]
    results = importlib.import_module(name).main([*flags, "--checkpoint", os.path.join(folder, "model")])
    results["losses"] = [float(loss) for loss in results["losses"]]
    results["loss"] = float(results["loss"])
    results.update(taken=taken, devices=sorted(devices))
    pathlib.Path(folder, "chief.json" if is_chief else "worker.json").write_text(json.dumps(results))


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """What a program leaves, by name: its folder, the chief's results and the worker's."""
    done = {}

    def train(name):
        if name not in done:
            folder = tmp_path_factory.mktemp(name)
            arguments = json.dumps([str(folder), name, 10 * STEPS])
            local_cluster.run_tasks(TASKS, folder, folder / "model", __file__, arguments)
            results = (json.loads((folder / f"{kind}.json").read_text()) for kind in ("chief", "worker"))
            done[name] = (folder, *results)
        return done[name]

    return train


def tables_of(prefix):
    return {entry.name: entry.open() for entry in open_checkpoint(prefix).tables}


@pytest.mark.parametrize("name", PROGRAMS)
def test_chief_and_worker_train_on_each_work_once(trained, name):
    _, chief, worker = trained(name)
    taken = collections.Counter(chief["taken"] + worker["taken"])
    assert taken == {f"train-{number}.parquet": 1 for number in range(FILES)}
    assert len(chief["losses"]) + len(worker["losses"]) == STEPS
    assert min(len(chief["losses"]), len(worker["losses"])) > 0
    assert np.isfinite([*chief["losses"], *worker["losses"]]).all()
    assert chief["auc"] and all(0 <= auc <= 1 for auc in chief["auc"].values()) and not worker["auc"]


@pytest.mark.parametrize("name", PROGRAMS)
def test_tables_and_variables_are_on_servers_only(trained, name):
    _, chief, worker = trained(name)
    for task in (chief, worker):
        assert {tf.DeviceSpec.from_string(device).job for device in task["devices"]} == {"ps"}
        assert {tf.DeviceSpec.from_string(device).task for device in task["devices"]} == {0, 1}
    shards = [table.last.shards for table in tables_of(chief["checkpoint"]).values()]
    assert {len(one) for one in shards} == {2}
    # A table of few ids may have them on one server.
    assert all(any(shard.table_rows for shard in server) for server in zip(*shards))


def test_rare_ids_wait_and_old_rows_are_evicted(trained):
    _, chief, _ = trained("din")
    step = int(chief["checkpoint"].rpartition("-")[2])
    assert abs(step - STEPS) <= 3  # the worker's last steps may come after the chief's last checkpoint
    waiting = 0
    for name, table in tables_of(chief["checkpoint"]).items():
        for block in row_blocks(table, ["frequency", "last_step"]):
            assert block.columns["frequency"].min() >= 3, name
            assert block.columns["last_step"].min() >= step - STEPS_TO_LIVE - 3, name
        _, counts, _ = waiting_ids(table)
        waiting += len(counts)
        assert (counts < 3).all(), name
    assert waiting


def contents(prefix):
    """Everything in a checkpoint that does not depend on the number of servers, but rows that are too old.

    Workers go on while servers save, so the global step may be saved after the rows that it makes too old.
    """
    found = {}
    variables = tf.train.load_checkpoint(prefix)
    oldest = variables.get_tensor("global_step") - STEPS_TO_LIVE
    for name, table in tables_of(prefix).items():
        columns = columns_of(table)
        for block in row_blocks(table, columns):
            for row, key in enumerate(block.keys):
                if block.columns["last_step"][row] >= oldest:
                    found[name, int(key)] = [block.columns[column][row].tolist() for column in columns]
        for waiting in zip(*waiting_ids(table)):
            if waiting[2] >= oldest:
                found[name, "waits", int(waiting[0])] = [int(number) for number in waiting]
    for name in variables.get_variable_to_shape_map():
        if name.startswith(("network/", "attention/", "global_step", "work_queue_works", "beta")):
            found[name] = variables.get_tensor(name).tolist()
    return found


def assert_same_contents(again, prefix):
    found, expected = contents(again), contents(prefix)
    differing = [key for key in {**found, **expected} if found.get(key) != expected.get(key)]
    assert not differing, [(key, found.get(key), expected.get(key)) for key in differing[:3]]


def restored_and_saved(prefix, folder, servers):
    """Restores a checkpoint of din.py and saves what was restored; returns the new prefix."""
    run = set_up([])
    run.tf.disable_eager_execution()
    run.tf.config.experimental.enable_distributed_strategy("collective")
    arguments = [*FLAGS, *PROGRAMS["din"]]
    flags = run.parse(None, arguments, optimizer="adam")
    works = [f"{os.path.dirname(prefix)}/samples/train-{number}.parquet" for number in range(FILES)]
    with local_cluster.graph_on(servers) as graph:
        step = v1.train.create_global_step()
        run.WorkQueue(works, 1, flags.seed)
        features = {"user": tf.constant(["1"]), "item": tf.constant([1], tf.int64)}
        features["history"] = tf.SparseTensor([[0, 0]], tf.constant([1], tf.int64), [1, 1])
        model = importlib.import_module("din").build(features, {"liked": tf.constant([1.0])}, flags)
        run._minimize(model.loss, flags, step)
        saver = v1.train.Saver(sharded=True)
    with local_cluster.session(graph) as session:
        saver.restore(session, prefix)
        return saver.save(session, os.path.join(folder, "again"))


def checkpoint_with_works(trained):
    """A checkpoint of din.py with rows and with works that are left."""
    prefix = v1.train.get_checkpoint_state(str(trained("din")[0] / "model")).all_model_checkpoint_paths[1]
    assert contents(prefix)["work_queue_works"]
    return prefix


@pytest.mark.parametrize("servers", [1, 3])
def test_other_numbers_of_servers_restore_the_checkpoint(trained, tmp_path, servers):
    prefix = checkpoint_with_works(trained)
    again = restored_and_saved(prefix, str(tmp_path), servers)
    assert_same_contents(again, prefix)
    assert {len(table.last.shards) for table in tables_of(again).values()} == {servers}


@pytest.mark.skipif(tf.__version__.startswith("1."), reason="TensorFlow 1.15 is tested without Horovod")
def test_ranks_restore_the_checkpoint(trained, tmp_path):
    prefix = checkpoint_with_works(trained)
    again = ranks.run(restored_and_saved, prefix, str(tmp_path), 0, ranks=2)[0]
    assert_same_contents(again, prefix)
    assert {len(table.last.shards) for table in tables_of(again).values()} == {2}


if __name__ == "__main__":
    program(*json.loads(sys.argv[1]))
