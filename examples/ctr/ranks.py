"""The processes that train together, Horovod's ranks: a launcher starts them with one command line."""

from __future__ import annotations

import os
from typing import Any

import tensorflow as tf

from ctr.share import Share

# Where horovodrun, Open MPI's mpirun and others' mpiexec say how many processes they have started.
_COUNTS = ("HOROVOD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE")


class Ranks:
    """One process alone, for which nothing has to be sent.

    The methods that make ops make collectives: a run of the op ends when every rank runs it.
    """

    rank = 0
    size = 1

    @property
    def first(self) -> bool:
        """Whether this is the rank that prints and writes files."""
        return self.rank == 0

    @property
    def share(self) -> Share:
        """The part of the data that this rank reads."""
        return Share(self.rank, self.size)

    def sum(self, tensor: tf.Tensor, name: str) -> tf.Tensor:
        """An op: the sum of the ranks' tensors of one shape. `name` must be the op's own."""
        return tensor

    def concat(self, tensor: tf.Tensor, name: str) -> tf.Tensor:
        """An op: the ranks' tensors one after another; their first dimensions may differ."""
        return tensor

    def broadcast(self, variables: list[tf.Variable]) -> tf.Operation:
        """An op that gives all ranks the first one's values."""
        return tf.no_op()

    def objects(self, value: Any) -> list[Any]:
        """The `value` of every rank, anything that can be pickled; all ranks must call it."""
        return [value]


class HorovodRanks(Ranks):
    """Several processes with Horovod between them."""

    def __init__(self, horovod: Any) -> None:
        """`horovod` is the module horovod.tensorflow, initialized."""
        self._horovod = horovod
        self.rank, self.size = horovod.rank(), horovod.size()

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
    """The ranks that this process is one of; without a launcher it is alone, and needs no Horovod."""
    if all(os.environ.get(count, "1") == "1" for count in _COUNTS):
        return Ranks()
    import horovod.tensorflow as horovod

    horovod.init()
    return HorovodRanks(horovod)
