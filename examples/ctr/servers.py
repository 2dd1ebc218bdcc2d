"""Training on parameter servers, in a cluster that `TF_CONFIG` describes.

The chief and the workers are ranks that do not wait for each other: each trains on its own share of the
samples, and its steps change variables and tables on the servers.
"""

from __future__ import annotations

import contextlib
from typing import Any

import tensorflow as tf

from ctr.ranks import Ranks


class Workers(Ranks):
    """The chief and the workers of a cluster. The chief, or else worker 0, is the first.

    Collectives give each worker its own tensor back.
    """

    apart = True

    def __init__(self, jobs: dict[str, list[str]], job: str, index: int) -> None:
        """`jobs` has the addresses of each job; this process is task `index` of `job`."""
        chiefs = len(jobs.get("chief", []))
        self.rank = self.local_rank = index + (chiefs if job == "worker" else 0)
        self.size = chiefs + len(jobs.get("worker", []))
        self._jobs, self._job, self._index = jobs, job, index
        self._device = f"/job:{job}/task:{index}"

    def sizes(self) -> dict[str, int]:
        """See Ranks.sizes."""
        return {"servers": len(self._jobs["ps"]), "workers": self.size}

    def start(self, config: tf.compat.v1.ConfigProto) -> str:
        """See Ranks.start."""
        # Sessions do not wait for other workers.
        config.device_filters[:] = ["/job:ps", self._device]
        self._server = tf.compat.v1.train.Server(self._jobs, self._job, self._index, config=config)
        return self._server.target

    def scope(self) -> contextlib.AbstractContextManager:
        """See Ranks.scope: variables, and parts of tables, are on the servers."""
        setter = tf.compat.v1.train.replica_device_setter(cluster=self._jobs, worker_device=self._device)
        return tf.compat.v1.device(setter)


def start_task(config: dict[str, Any]) -> Ranks:
    """This process's part in the cluster of `TF_CONFIG`. A parameter server does not return."""
    jobs, task = config["cluster"], config.get("task", {})
    job, index = task.get("type"), task.get("index")
    if job == "ps":
        from sparse_operation_kit import server

        server.main([])
    if job not in ("chief", "worker") or index not in range(len(jobs.get(job, []))):
        raise SystemExit(f"error: TF_CONFIG: its task is {task}, which is no chief or worker of {jobs}")
    return Workers(jobs, job, index)
