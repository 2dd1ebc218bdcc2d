# Not on GPUs: a program; the tests gpu_* have one
"""Tasks of a cluster that are killed: training goes on, from what was saved, and no row is half new.

Each role is killed once. With SOK_TEST_SERVER_KILL_SECONDS, tasks are then killed at random for as long: one
or two at once, at any moment, while others recover too. SOK_TEST_SERVER_KILL_SEED chooses which.

As a program it is such a task, which trains until it is told to stop: parameter_server_kills_test.py FOLDER.
`TF_CONFIG` has the cluster and the task. A step adds 1 to every column of the rows of ids 0 to 7, with SGD;
the task writes its number of steps to FOLDER/<job><number>.steps, and ends when FOLDER/stop is there.
"""

from __future__ import annotations

import collections
import functools
import json
import os
import pathlib
import random
import subprocess
import sys
import time

import numpy as np
import tensorflow as tf

import forked
import local_cluster
import sparse_operation_kit as sok

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


v1 = tf.compat.v1

PATIENCE_SECONDS = 240
SECONDS_OF_RANDOM_KILLS = float(os.environ.get("SOK_TEST_SERVER_KILL_SECONDS", "0"))
SEED = int(os.environ.get("SOK_TEST_SERVER_KILL_SEED", "1"))

JOBS = [("ps", 0), ("ps", 1), ("chief", 0), ("worker", 0)]


class Tasks:
    """The processes of a cluster with two servers, a chief and a worker."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        self._cluster = {"ps": [], "chief": [], "worker": []}
        for (job, _), port in zip(JOBS, local_cluster.free_ports(len(JOBS))):
            self._cluster[job].append(f"127.0.0.1:{port}")
        self._running: dict[tuple[str, int], forked.Process | subprocess.Popen] = {}
        self.kills: collections.Counter = collections.Counter()
        for task in JOBS:
            self.start(*task)

    def start(self, job: str, number: int) -> None:
        config = json.dumps({"cluster": self._cluster, "task": {"type": job, "index": number}})
        log = self.folder / f"{job}{number}.log"
        self._running[job, number] = forked.start(
            __file__, str(self.folder), output=log, env={**os.environ, "TF_CONFIG": config}
        )

    def kill(self, job: str, number: int) -> None:
        process = self._running.pop((job, number))
        self.kills[job] += 1
        process.kill()
        process.wait()

    def wait_for_steps(self, more: int) -> None:
        """Waits until both workers have made `more` steps from now on, in one session or a new one."""
        before = {name: self._steps(name) for name in ("chief0", "worker0")}
        self._wait(
            lambda: self._all_run() and all(self._has_gone_on(name, before[name], more) for name in before)
        )

    def wait_for_end(self) -> None:
        (self.folder / "stop").touch()
        workers = [self._running["chief", 0], self._running["worker", 0]]
        self._wait(lambda: all(process.poll() is not None for process in workers))
        assert [process.returncode for process in workers] == [0, 0], self.logs()

    def stop(self) -> None:
        for job, number in list(self._running):
            self.kill(job, number)

    def logs(self) -> str:
        return "\n".join(log.read_text()[-3000:] for log in sorted(self.folder.glob("*.log")))

    def _all_run(self) -> bool:
        assert all(process.poll() is None for process in self._running.values()), self.logs()
        return True

    def _steps(self, name: str) -> int:
        file = self.folder / f"{name}.steps"
        return int(file.read_text()) if file.exists() else 0

    def _has_gone_on(self, name: str, before: int, more: int) -> bool:
        steps = self._steps(name)
        # A restarted task counts from 0.
        return steps >= before + more or more <= steps < before

    def _wait(self, is_done) -> None:
        end = time.monotonic() + PATIENCE_SECONDS
        while not is_done():
            assert time.monotonic() < end, self.logs()
            time.sleep(0.05)


def rows_of_checkpoint(prefix: str) -> tuple[int, np.ndarray]:
    """The global step of a checkpoint and the rows of all ids."""
    with tf.Graph().as_default() as graph:
        table = sok.get_embedding_variable("rows", DIM, initializer=v1.zeros_initializer())
        rows = tf.nn.embedding_lookup(table, tf.constant(IDS, tf.int64))
        step = v1.train.get_or_create_global_step()
        saver = v1.train.Saver()
    with v1.Session(graph=graph) as session:
        saver.restore(session, prefix)
        return session.run([step, rows])


def check_rows(rows: np.ndarray) -> None:
    assert (rows == rows[:, :1]).all(), f"a row is half new: {rows}"
    counts = rows[:, 0]
    # A push is applied whole on each server.
    for server in (0, 1):
        assert len(set(counts[server::2])) == 1, counts


class Saved:
    """What the tasks have saved: it never goes back."""

    def __init__(self, folder: pathlib.Path) -> None:
        self._folder = str(folder / "model")
        self.step = 0

    def check(self) -> None:
        step, rows = rows_of_checkpoint(tf.train.latest_checkpoint(self._folder))
        check_rows(rows)
        assert step >= self.step, "a saved step is lost"
        self.step = step


def kill_at_random(tasks: Tasks, saved: Saved) -> None:
    """Kills tasks until the time is over; all go on after at most three times."""
    draw = random.Random(SEED)
    end = time.monotonic() + SECONDS_OF_RANDOM_KILLS
    while time.monotonic() < end:
        for _ in range(draw.randint(1, 3)):
            killed = draw.sample(JOBS, draw.choice([1, 1, 2]))
            time.sleep(draw.uniform(0, 3))
            for task in killed:
                tasks.kill(*task)
            saved.check()
            for task in killed:
                time.sleep(draw.choice([0, draw.uniform(0, 3)]))
                tasks.start(*task)
        tasks.wait_for_steps(draw.randint(1, 15))
        saved.check()


def test_every_role_may_be_killed(tmp_path):
    tasks, saved = Tasks(tmp_path), Saved(tmp_path)
    try:
        tasks.wait_for_steps(15)
        for task in [("worker", 0), ("ps", 1), ("chief", 0), ("ps", 0)]:
            saved.check()
            tasks.kill(*task)
            tasks.start(*task)
            tasks.wait_for_steps(15)
        kill_at_random(tasks, saved)
        tasks.wait_for_end()
    finally:
        print(f"seed {SEED}: {dict(tasks.kills)} killed, {saved.step} steps saved")
        tasks.stop()
    before = saved.step
    saved.check()
    assert saved.step > before


if __name__ == "__main__":
    main()
