"""DeepRec's WorkQueue: works, such as file names, each of which is taken by one rank or worker.

The queue is the list of works that nobody has taken, in the order of epochs, and each rank's position in its
share: rank r of n has the works r, r + n, r + 2n and so on. So taking a work needs no communication. A
checkpoint has the list of the remaining works, which any number of ranks can share after a restore.

With parameter servers the list and the one position are on the first server, and a worker takes the next work
when it needs one.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import zlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from sparse_operation_kit.compat import internals
from sparse_operation_kit.compat.internals import Defun, resource_variable_ops, saveable_object
from sparse_operation_kit.ranks.communicator import Communicator, communicator
from sparse_operation_kit.tables.table_device import first_server, on_device

_logger = logging.getLogger(__name__)


class WorkQueue(saveable_object.SaveableObject):
    """Works of several epochs, each of which is taken once, by one rank or worker.

    Savers that save everything save the remaining works, and restore them on any number of ranks or workers.
    A work that was taken is not given again, even if it was not read to its end. If the works are not those
    of the checkpoint, the queue starts over.

    `tf.local_variables_initializer()` initializes the queue, unless it was restored. With parameter servers
    (in the scope of `replica_device_setter`, or with servers in `TF_CONFIG`) all workers share one queue,
    which is a global variable: the chief initializes or restores it, with all others.
    """

    def __init__(
        self,
        works: Sequence[str | bytes],
        num_epochs: int = 1,
        shuffle: bool = True,
        seed: int | None = None,
        prefix: str | None = None,
        num_slices: int | None = None,
        num_clients: int = 1,
        name: str | None = None,
        local_work_mgr: Any = None,
    ) -> None:
        """Adds the queue to the default graph. All ranks or workers must create the same queue.

        Args:
          works: names of files.
          num_epochs: how often each work is given.
          shuffle: whether each epoch has the works in a random order.
          seed: determines the order; by default the graph's seed, or if it has none a hash of the works.
          prefix: is prepended to each work that is taken.
          num_slices: accepted without effect, because works are not tables.
          num_clients: accepted without effect.
          name: name of the queue; by default "work_queue".
          local_work_mgr: must be None.

        Raises:
          ValueError: `works` is not a list of texts, or empty; or another argument is out of range.
          RuntimeError: execution is eager.
        """
        if tf.executing_eagerly():
            raise RuntimeError("WorkQueue works in graphs with sessions, not eagerly")
        if not isinstance(works, (list, tuple)) or not works:
            raise ValueError(f"WorkQueue: works must be a list of at least one name, not {works!r}")
        if not all(isinstance(work, (str, bytes)) for work in works):
            raise ValueError(f"WorkQueue: works must be texts, not {works!r}")
        if num_epochs < 1:
            raise ValueError(f"WorkQueue: num_epochs must be at least 1, but is {num_epochs}")
        if local_work_mgr is not None:
            raise ValueError("WorkQueue: local_work_mgr is not supported; checkpoints have what is left")
        if num_slices is not None:
            _logger.info("WorkQueue: num_slices has no effect on files")
        del num_clients
        self._works = [tf.compat.as_bytes(work).strip() for work in works]
        self._prefix = prefix
        name = tf.compat.v1.get_default_graph().unique_name(name or "work_queue")
        self._server = first_server()
        ranks = Communicator() if self._server else communicator()
        self._rank, self._ranks = ranks.rank, ranks.size
        self._order = _order(self._works, num_epochs, shuffle, seed)
        # The position counts up to the limit, where the rank's share ends.
        self._limit = len(self._order)
        with self._at_home(), tf.name_scope(name + "/"):
            first = np.int64(self._limit - self._share(self._limit))
            if self._server:
                self._position = _shared_variable("position", first)
                self._known = _shared_variable("works", self._identity())
                self._left = _SharedWorks(self, self._order, [self._position, self._known])
            else:
                self._left = _local_variable("left", self._order)
                self._position = _local_variable("position", first)
            self._digest = tf.constant(b",".join(self._works), name="digest")
            specs = self._specs(name, tf.fill([self._ranks], self._taken()))
        super().__init__(self, specs, name)
        if not self._server:
            tf.compat.v1.add_to_collection(tf.compat.v1.GraphKeys.SAVEABLE_OBJECTS, self)

    def __len__(self) -> int:
        """The number of works of all epochs."""
        return self._limit

    @property
    def works(self) -> list[bytes]:
        """The works of an epoch."""
        return list(self._works)

    def take(self) -> tf.Tensor:
        """Returns a scalar string: a different work in each run, and OutOfRangeError after the last one."""
        with self._at_home(), tf.name_scope(self.name + "/take/"):
            return self._take(lambda variable: variable.handle)

    def input_producer(self) -> tf.queue.FIFOQueue:
        """Returns a queue of works for readers, which a queue runner fills."""
        with tf.device("/device:CPU:0"), tf.name_scope(self.name + "/proxy/"):
            queue = tf.queue.FIFOQueue(1, [tf.string], [[]], name="queue")
            put = queue.enqueue([self.take()])
        with internals.silenced():
            tf.compat.v1.train.add_queue_runner(tf.compat.v1.train.QueueRunner(queue, [put]))
        return queue

    def input_dataset(self) -> tf.data.Dataset:
        """Returns a dataset that takes works until there are none. Its iterator must be initializable.

        Its attribute `first_work` is the first name, with the prefix. A `ParquetDataset` over the dataset
        reads its columns from that file.
        """
        works = tf.compat.v1.data.Dataset.from_tensors(0).repeat().map(self._take_for)
        options = tf.data.Options()
        if hasattr(options.experimental_optimization, "inject_prefetch"):
            # A prefetch takes a work too early; a checkpoint then lacks it.
            options.experimental_optimization.inject_prefetch = False
        dataset = works.with_options(options)
        dataset.first_work = os.fsdecode(tf.compat.as_bytes(self._prefix or "") + self._works[0])
        return dataset

    @tf.autograph.experimental.do_not_convert
    def _take_for(self, element: tf.Tensor) -> tf.Tensor:
        if not self._server:
            return self.take()

        # A dataset's functions run in the worker's process, where the server's variables have no handles.
        @Defun(element.dtype)
        def take_on_server(element: tf.Tensor) -> tf.Tensor:
            del element
            return self._take(_handle_by_name)

        target = tf.DeviceSpec.from_string(self._server).replace(replica=0).to_string()
        return tf.raw_ops.RemoteCall(target=target, args=[element], Tout=[tf.string], f=take_on_server)[0]

    def _take(self, handle_of: Callable[[tf.Variable], tf.Tensor]) -> tf.Tensor:
        """The next work. `handle_of` gives the handle of a variable where the ops run."""
        checked = []
        if self._server:
            known = tf.raw_ops.ReadVariableOp(resource=handle_of(self._known), dtype=tf.string)
            checked.append(self._check(known))
        with tf.control_dependencies(checked):
            # Counts atomically, so that concurrent runs take different works.
            position = tf.raw_ops.ResourceCountUpTo(
                resource=handle_of(self._position), limit=self._limit, T=tf.int64
            )
        left = tf.raw_ops.ReadVariableOp(resource=handle_of(self._left), dtype=tf.int64)
        number = position - self._start(left)
        work = tf.gather(tf.constant(self._works), left[number * self._ranks + self._rank])
        return work if self._prefix is None else tf.strings.join([self._prefix, work])

    def _identity(self) -> bytes:
        """A short text that differs if the works or their number do."""
        return f"{self._limit} {hashlib.sha256(b','.join(self._works)).hexdigest()}".encode()

    def _check(self, known: tf.Tensor) -> tf.Operation:
        """Returns an op that fails if the works on the server are not those of this worker."""
        problem = (
            f"WorkQueue '{self.name}': the queue on the parameter servers has other works than this "
            f"worker's, {len(self._works)} from {self._works[0]!r} to {self._works[-1]!r}, {self._limit} in "
            "all epochs; all workers must give the same works in the same order, and as many epochs"
        )
        return tf.raw_ops.Assert(condition=tf.equal(known, self._identity()), data=[problem])

    def _at_home(self) -> contextlib.AbstractContextManager[None]:
        """A scope for ops on the queue's state."""
        return on_device(self._server) if self._server else tf.device("/device:CPU:0")

    def add_summary(self) -> None:
        """Adds a summary of the fraction of works that remain in this rank's share."""
        left = tf.cast(self._limit - self._position.read_value(), tf.float32)
        share = max(1, self._share(self._limit))
        tf.compat.v1.summary.scalar(f"{self.name}/fraction_of_{share}_full", left / share)

    def of_all_ranks(self) -> saveable_object.SaveableObject:
        """Returns what one rank saves for all. All ranks must run its tensors."""
        with tf.device("/device:CPU:0"), tf.name_scope(self.name + "/of_all_ranks/"):
            taken = communicator().allgather(self._taken()[tf.newaxis], f"{self.name}: taken")
            specs = self._specs(self.name, taken)
        return saveable_object.SaveableObject(self, specs, self.name)

    def restore(self, restored_tensors: Sequence[tf.Tensor], restored_shapes: Any) -> tf.Operation:
        """Returns an op that restores the remaining works, or starts over if the works differ."""
        del restored_shapes
        digest, left = restored_tensors

        def anew() -> tf.Tensor:
            told = tf.print(f"{self.name}: the checkpoint has other works; the queue begins anew")
            with tf.control_dependencies([told]):
                return tf.constant(self._order)

        with self._at_home(), tf.name_scope(self.name + "/restore/"):
            left = tf.cond(tf.equal(digest, self._digest), lambda: left, anew)
            others = [self._position.assign(self._start(left), read_value=False)]
            if self._server:
                others.append(self._known.assign(self._identity(), read_value=False))
            with tf.control_dependencies(others):
                return self._left.assign(left, read_value=False)

    def _share(self, works: Any) -> Any:
        """How many of `works` works belong to this rank."""
        return (works - self._rank + self._ranks - 1) // self._ranks

    def _start(self, left: tf.Tensor) -> tf.Tensor:
        """The position at which this rank has taken none of `left`."""
        return self._limit - self._share(tf.size(left, out_type=tf.int64))

    def _taken(self) -> tf.Tensor:
        """How many of the remaining works this rank has taken."""
        return self._position.read_value() - self._start(self._left.read_value())

    def _specs(self, name: str, taken: tf.Tensor) -> list[saveable_object.SaveSpec]:
        """What to save, given the number of works that each rank has taken."""
        left = self._left.read_value()
        numbers = tf.range(tf.size(left, out_type=tf.int64))
        is_left = numbers // self._ranks >= tf.gather(taken, numbers % self._ranks)
        return [
            saveable_object.SaveSpec(self._digest, "", f"{name}_digest"),
            saveable_object.SaveSpec(tf.boolean_mask(left, is_left), "", f"{name}_works"),
        ]


def _order(works: Sequence[bytes], num_epochs: int, shuffle: bool, seed: int | None) -> np.ndarray:
    """The numbers of the works in the order in which they are given out."""
    if seed is None:
        seed = tf.compat.v1.get_default_graph().seed
    if seed is None:
        seed = zlib.crc32(b",".join(works))  # the same on all ranks
    random = np.random.RandomState(seed % 2**32)
    epochs = []
    for _ in range(num_epochs):
        epochs.append(random.permutation(len(works)) if shuffle else np.arange(len(works)))
    return np.concatenate(epochs).astype(np.int64)


class _SharedWorks(resource_variable_ops.ResourceVariable, saveable_object.SaveableObject):
    """The works that nobody has taken, on a server. Initializing or saving them does so for the queue."""

    optional_restore = False

    def __init__(self, queue: WorkQueue, value: np.ndarray, others: Sequence[tf.Variable]) -> None:
        """Creates the variable in the default graph; it is initialized after `others`."""
        self._queue = queue
        # Without SaveableObject's __init__, which would set what is a property here.
        resource_variable_ops.ResourceVariable.__init__(
            self,
            initial_value=_of_any_length(value),
            trainable=False,
            collections=[tf.compat.v1.GraphKeys.GLOBAL_VARIABLES],
            validate_shape=False,
            name="left",
        )
        with tf.control_dependencies([other.initializer for other in others]):
            self._initializer_op = self.assign(self._initial_value, read_value=False)

    @property
    def specs(self) -> list[saveable_object.SaveSpec]:
        """What Savers save."""
        return self._queue.specs

    def restore(self, restored_tensors: Sequence[tf.Tensor], restored_shapes: Any) -> tf.Operation:
        """Returns an op that restores the queue."""
        return self._queue.restore(restored_tensors, restored_shapes)


def _shared_variable(name: str, value: Any) -> tf.Variable:
    """A variable in no collection."""
    return tf.compat.v1.Variable(
        tf.constant(value), trainable=False, collections=[], use_resource=True, name=name
    )


def _handle_by_name(variable: tf.Variable) -> tf.Tensor:
    """A variable's handle in a function that runs in the process of the variable."""
    handle = variable.handle.op
    return tf.raw_ops.VarHandleOp(
        dtype=variable.dtype.base_dtype,
        shape=variable.shape,
        shared_name=handle.get_attr("shared_name").decode(),
        container=handle.get_attr("container").decode(),
    )


def _of_any_length(value: Any) -> tf.Tensor:
    # Of unknown shape: a restored value may be longer or shorter.
    return tf.compat.v1.placeholder_with_default(value, [None] * np.ndim(value))


def _local_variable(name: str, value: Any) -> tf.Variable:
    """A variable whose initializer leaves a restored value as it is."""
    initial = _of_any_length(value)
    variable = tf.compat.v1.Variable(
        initial,
        trainable=False,
        collections=[tf.compat.v1.GraphKeys.LOCAL_VARIABLES],
        validate_shape=False,
        use_resource=True,
        name=name,
    )
    initialize = tf.cond(
        tf.compat.v1.is_variable_initialized(variable),
        lambda: tf.constant(False),
        lambda: _after(variable.assign(initial, read_value=False)),
    )
    variable._initializer_op = initialize.op
    return variable


def _after(op: tf.Operation) -> tf.Tensor:
    with tf.control_dependencies([op]):
        return tf.constant(True)
