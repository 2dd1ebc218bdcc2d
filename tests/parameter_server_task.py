"""A task of a cluster that trains until it is told to stop: python parameter_server_task.py FOLDER.

`TF_CONFIG` has the cluster and the task. A step adds 1 to every column of the rows of ids 0 to 7, with SGD;
the task writes its number of steps to FOLDER/<job><number>.steps, and ends when FOLDER/stop is there.
"""

from __future__ import annotations

import functools
import json
import os
import pathlib
import sys

import tensorflow as tf

import sparse_operation_kit as sok

v1 = tf.compat.v1

DIM = 16
IDS = list(range(8))


def train(cluster: v1.train.ClusterSpec, job: str, number: int, folder: pathlib.Path) -> None:
    """Trains as a worker, or as the chief."""
    # Half a minute by default.
    v1.train.SessionManager.__init__ = functools.partialmethod(
        v1.train.SessionManager.__init__, recovery_wait_secs=1
    )
    config = v1.ConfigProto(device_filters=["/job:ps", f"/job:{job}/task:{number}"])
    server = v1.train.Server(cluster, job_name=job, task_index=number, config=config)
    device = f"/job:{job}/task:{number}"
    with v1.device(v1.train.replica_device_setter(cluster=cluster, worker_device=device)):
        table = sok.get_embedding_variable("rows", DIM, initializer=v1.zeros_initializer())
        rows = tf.nn.embedding_lookup(table, tf.constant(IDS, tf.int64))
        step = v1.train.get_or_create_global_step()
        train_op = v1.train.GradientDescentOptimizer(1.0).minimize(-tf.reduce_sum(rows), global_step=step)
        # The test reads a checkpoint while others follow.
        scaffold = v1.train.Scaffold(saver=v1.train.Saver(sharded=True, max_to_keep=None))
    with v1.train.MonitoredTrainingSession(
        master=server.target,
        is_chief=job == "chief",
        scaffold=scaffold,
        checkpoint_dir=str(folder / "model"),
        save_checkpoint_steps=10,
        log_step_count_steps=None,
        config=config,
    ) as session:
        steps = 0
        while not (folder / "stop").exists():
            session.run(train_op)
            steps += 1
            written = folder / f"{job}{number}.steps.new"
            written.write_text(str(steps))
            written.replace(folder / f"{job}{number}.steps")


def main() -> None:
    """Runs the task of `TF_CONFIG`."""
    v1.disable_eager_execution()
    config = json.loads(os.environ["TF_CONFIG"])
    cluster = v1.train.ClusterSpec(config["cluster"])
    job, number = config["task"]["type"], config["task"]["index"]
    if job == "ps":
        v1.train.Server(cluster, job_name=job, task_index=number).join()
    train(cluster, job, number, pathlib.Path(sys.argv[1]))


if __name__ == "__main__":
    main()
