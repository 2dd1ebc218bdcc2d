"""The task of this process in a cluster with parameter servers, from `TF_CONFIG`."""

from __future__ import annotations

import contextlib
import json
import os
from typing import Any

import tensorflow.compat.v1 as tf


class Cluster:
    """A process's part in a cluster; without parameter servers in `TF_CONFIG`, a process of its own.

    Attributes:
      servers: How many parameter servers there are.
      workers: How many tasks train: the chief and the workers.
      worker: This task's number among them; the chief's is 0.
      is_chief: Whether the task initializes, saves and evaluates.
    """

    def __init__(self) -> None:
        config = json.loads(os.environ.get("TF_CONFIG") or "{}")
        self._jobs = config.get("cluster", {})
        self.servers = len(self._jobs.get("ps", []))
        task = config.get("task", {}) if self.servers else {}
        self._job, self._index = task.get("type", "chief"), int(task.get("index", 0))
        chiefs = len(self._jobs.get("chief", [])) if self.servers else 1
        self.workers = chiefs + (len(self._jobs.get("worker", [])) if self.servers else 0)
        self.worker = self._index + (chiefs if self._job == "worker" else 0)
        self.is_chief = self.worker == 0

    def start(self) -> str:
        """Starts this task's server and returns the target of its sessions. A parameter server never ends."""
        if not self.servers:
            return ""
        server = tf.distribute.Server(self._jobs, job_name=self._job, task_index=self._index)
        if self._job == "ps":
            server.join()
        return server.target

    def scope(self) -> Any:
        """The scope of the model: variables, and parts of tables, are on the servers."""
        if not self.servers:
            return contextlib.nullcontext()
        device = f"/job:{self._job}/task:{self._index}"
        return tf.device(tf.train.replica_device_setter(cluster=self._jobs, worker_device=device))

    def configure(self, config: tf.ConfigProto) -> tf.ConfigProto:
        """Returns the configuration of a session that does not wait for other workers."""
        if self.servers:
            config.device_filters[:] = ["/job:ps", f"/job:{self._job}/task:{self._index}"]
        return config
