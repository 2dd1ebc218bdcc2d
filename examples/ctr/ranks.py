"""The ranks that train together: processes that a launcher starts with the same command line."""

from __future__ import annotations

import contextlib
import json
import os
from typing import Any

import tensorflow as tf

from ctr.batches import Share

# Environment variables with the number of processes: of horovodrun, Open MPI's mpirun, and other mpiexec.
_COUNTS = ("HOROVOD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE")


class Ranks:
    """A single rank, which exchanges nothing.

    In HorovodRanks, the methods that make ops make collectives: an op finishes when all ranks run it.
    """

    rank = 0
    size = 1
    local_rank = 0  # among the ranks of this machine
    apart = False  # whether each rank makes steps of its own and waits for no other: see ctr.servers

    @property
    def first(self) -> bool:
        """Whether this is the rank that prints and writes files."""
        return self.rank == 0

    @property
    def share(self) -> Share:
        """The part of the data that this rank reads."""
        return Share(self.rank, self.size)

    def sizes(self) -> dict[str, int]:
        """How many processes there are, by what they are called."""
        return {"ranks": self.size}

    def start(self, config: tf.compat.v1.ConfigProto) -> str:
        """Starts what sessions with this configuration need; returns their target."""
        return ""

    def scope(self) -> contextlib.AbstractContextManager:
        """The scope in which to make the model."""
        return contextlib.nullcontext()

    def sum(self, tensor: tf.Tensor, name: str) -> tf.Tensor:
        """An op: the sum of the ranks' tensors, which have the same shape. `name` must be unique."""
        return tensor

    def concat(self, tensor: tf.Tensor, name: str) -> tf.Tensor:
        """An op: the ranks' tensors, concatenated. First dimensions may differ; `name` must be unique."""
        return tensor

    def broadcast(self, variables: list[tf.Variable]) -> tf.Operation:
        """An op that sets the variables on all ranks to the values on the first rank."""
        return tf.no_op()

    def objects(self, value: Any) -> list[Any]:
        """The `value` of each rank, which must be picklable. All ranks must call this."""
        return [value]


class HorovodRanks(Ranks):
    """Several ranks with Horovod."""

    def __init__(self, horovod: Any) -> None:
        """`horovod` is the initialized module horovod.tensorflow."""
        self._horovod = horovod
        self.rank, self.size, self.local_rank = horovod.rank(), horovod.size(), horovod.local_rank()

    def sum(self, tensor: tf.Tensor, name: str) -> tf.Tensor:
        """See Ranks.sum."""
        return self._horovod.allreduce(tensor, op=self._horovod.Sum, name=name)

    def concat(self, tensor: tf.Tensor, name: str) -> tf.Tensor:
        """See Ranks.concat."""
        return self._horovod.allgather(tensor, name=name)

    def broadcast(self, variables: list[tf.Variable]) -> tf.Operation:
        """See Ranks.broadcast."""
        return self._horovod.broadcast_variables(variables, root_rank=0)

    def objects(self, value: Any) -> list[Any]:
        """See Ranks.objects."""
        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            return self._horovod.allgather_object(value, session=session, name="objects")


def start_ranks() -> Ranks:
    """The ranks of this run. Without a launcher there is one rank, which does not need Horovod.

    With parameter servers in `TF_CONFIG` they are the workers; a server does not return.
    """
    config = json.loads(os.environ.get("TF_CONFIG") or "{}")
    if config.get("cluster", {}).get("ps"):
        from ctr.servers import start_task

        return start_task(config)
    if all(os.environ.get(count, "1") == "1" for count in _COUNTS):
        return Ranks()
    import horovod.tensorflow as horovod

    horovod.init()
    return HorovodRanks(horovod)
