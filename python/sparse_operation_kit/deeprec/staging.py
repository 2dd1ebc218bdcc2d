"""DeepRec's `tf.staged`: tensors that a thread computes ahead of the steps which need them.

A queue holds them in between. Its thread is a queue runner of the graph, so `MonitoredTrainingSession`,
`Estimator` and `tf.train.start_queue_runners` start it, and stop it with the other threads.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from sparse_operation_kit.compat import internals
from sparse_operation_kit.graphs import graph_ops

_logger = logging.getLogger(__name__)
_told: set[str] = set()
# The errors that end the data by default, as in DeepRec.
_CLOSED: tuple = (tf.errors.OutOfRangeError, StopIteration)
# How long a session without PrefetchHook may take to initialize iterators, and how often that is tried.
_PATIENCE_SECONDS = 60.0
_RETRY_SECONDS = 0.05


def staged(
    features: Any,
    feed_dict: Mapping[Any, Any] | None = None,
    capacity: int = 1,
    num_threads: int = 1,
    num_clients: int = 1,
    timeout_millis: int = 300000,
    closed_exception_types: Iterable[Any] | None = None,
    ignored_exception_types: Iterable[Any] = (),
    use_stage_subgraph_thread_pool: bool = False,
    stage_subgraph_thread_pool_id: int = 0,
    stage_subgraph_stream_id: int = 0,
    name: str | None = None,
    feed_list: Sequence[Any] | None = None,
    feed_generator: Callable[[tf.compat.v1.Session], Any] | Any = None,
) -> Any:
    """Returns tensors like `features`, which a thread computes ahead and a queue holds.

    One thread computes them, one batch after the other, so that batches keep their order. In a session
    without threads, a plain `tf.Session` without `tf.train.start_queue_runners`, steps would wait forever.

    If `features` depend on lookups in embedding variables, they are returned unchanged: lookups that ran
    ahead would read rows from before an update, and over ranks would change the order of exchanges.

    Args:
      features: any structure of tensors, sparse and ragged tensors. None in it stays None.
      feed_dict: placeholders on which `features` depend, and tensors with their values.
      capacity: how many batches are held.
      num_threads, num_clients, timeout_millis, use_stage_subgraph_thread_pool,
        stage_subgraph_thread_pool_id, stage_subgraph_stream_id: accepted without effect.
      closed_exception_types: errors, or codes of errors, that end the data, besides OutOfRangeError and
        StopIteration.
      ignored_exception_types: errors, or codes of errors, after which the next batch is computed.
      name: name of the queue.
      feed_list: placeholders on which `features` depend.
      feed_generator: a generator of their values, or a function of the session that returns one.

    Raises:
      ValueError: `capacity` or `num_threads` is less than 1; `features` has no tensor; or only one of
        `feed_list` and `feed_generator` is given.
      TypeError: a value of `feed_dict` is not a tensor; or a type of exceptions is neither a class nor a
        code.
    """
    del num_clients, timeout_millis, use_stage_subgraph_thread_pool
    del stage_subgraph_thread_pool_id, stage_subgraph_stream_id
    if capacity < 1 or num_threads < 1:
        raise ValueError(
            f"staged: capacity and num_threads must be at least 1, but are {capacity} and {num_threads}"
        )
    if (feed_list is None) != (feed_generator is None):
        raise ValueError("staged: feed_list and feed_generator need each other")
    closed = _CLOSED + _exception_types(closed_exception_types or ())
    ignored = _exception_types(ignored_exception_types)
    flat = tf.nest.flatten(features, expand_composites=True)
    tensors = [tf.convert_to_tensor(value) for value in flat if value is not None]
    if not tensors:
        raise ValueError("staged: features has no tensor")
    table = _looked_up(tensors)
    if table is not None:
        _tell(
            "lookups",
            f"tf.staged leaves lookups in embedding variables ({table}) in the step; sok.LookupPrefetch "
            "prepares them a step ahead",
        )
        return features
    if num_threads > 1:
        _tell(
            "num_threads", f"tf.staged uses one thread, not {num_threads}, so that batches keep their order"
        )
    taken, queue, put, close, cancel = _queue_of(tensors, capacity, name or "prefetch")
    feeds = _checked_feeds(feed_dict)
    with internals.silenced():
        runner = _Runner(queue, put, close, cancel, closed, ignored, feeds, feed_list, feed_generator)
        tf.compat.v1.train.add_queue_runner(runner)
    left = iter(taken)
    return tf.nest.pack_sequence_as(
        features, [None if value is None else next(left) for value in flat], expand_composites=True
    )


def _queue_of(
    tensors: Sequence[tf.Tensor], capacity: int, name: str
) -> tuple[list[tf.Tensor], Any, tf.Operation, tf.Operation, tf.Operation]:
    """Makes a queue of batches; returns a batch from it, the queue, and ops that put, close and cancel."""
    with tf.name_scope(name), tf.device("/device:CPU:0"):
        queue = tf.queue.FIFOQueue(capacity, [tensor.dtype for tensor in tensors], name="batches")
        put = queue.enqueue(tensors, name="put")
        taken = tf.nest.flatten(queue.dequeue(name="take"))
        close = queue.close(name="close")
        cancel = queue.close(cancel_pending_enqueues=True, name="cancel")
    for value, tensor in zip(taken, tensors):
        value.set_shape(tensor.shape)
    return taken, queue, put, close, cancel


def _checked_feeds(feed_dict: Mapping[Any, Any] | None) -> dict[Any, tf.Tensor]:
    feeds = {} if feed_dict is None else dict(feed_dict)
    for tensor, value in feeds.items():
        if not isinstance(value, tf.Tensor):
            raise TypeError(f"staged: the value of {tensor} in feed_dict must be a tensor, not {value!r}")
    return feeds


def mark_target_node(nodes: Any) -> None:
    """Does nothing: DeepRec's SmartStage asks for the tensors that a program fetches."""
    del nodes


def make_prefetch_hook() -> tf.compat.v1.train.SessionRunHook:
    """Returns a session hook for sessions with `staged`: their threads begin with the session's first run."""
    return PrefetchHook()


class PrefetchHook(tf.compat.v1.train.SessionRunHook):
    """Starts the threads of `staged` with the first run, when all hooks have prepared the session."""

    def __init__(self) -> None:
        self._runners: list[_Runner] = []

    def begin(self) -> None:
        """Holds the threads back."""
        collection = tf.compat.v1.get_collection(tf.compat.v1.GraphKeys.QUEUE_RUNNERS)
        self._runners = [runner for runner in collection if isinstance(runner, _Runner)]
        for runner in self._runners:
            runner.may_begin.clear()
            runner.patience_seconds = 0.0

    def before_run(self, run_context: Any) -> None:
        """Lets the threads begin."""
        del run_context
        for runner in self._runners:
            runner.may_begin.set()

    def end(self, session: tf.compat.v1.Session) -> None:
        """Lets threads end that have not started."""
        self.before_run(session)


class _Runner(tf.compat.v1.train.QueueRunner):
    """Computes batches in the order in which they are drawn, in one thread for each session.

    Attributes:
      may_begin: set unless a hook will set it later.
      patience_seconds: how long iterators may still be uninitialized.
    """

    def __init__(
        self,
        queue: Any,
        enqueue: tf.Operation,
        close: tf.Operation,
        cancel: tf.Operation,
        closed: tuple,
        ignored: tuple,
        feeds: Mapping[Any, tf.Tensor],
        feed_list: Sequence[Any] | None,
        feed_generator: Any,
    ) -> None:
        super().__init__(queue, [enqueue], close_op=close, cancel_op=cancel)
        self.may_begin = threading.Event()
        self.may_begin.set()
        self.patience_seconds = _PATIENCE_SECONDS
        self._put = enqueue
        self._ends, self._ignored = closed, ignored
        self._feeds, self._feed_list, self._generator = feeds, feed_list, feed_generator

    def _run(self, sess: tf.compat.v1.Session, enqueue_op: Any, coord: Any = None) -> None:
        del enqueue_op
        try:
            while not self.may_begin.wait(_RETRY_SECONDS):
                if coord is not None and coord.should_stop():
                    return
            self._compute_batches(sess, coord)
        except Exception as error:  # pylint: disable=broad-except
            if coord is not None:
                coord.request_stop(error)
            else:
                self._exceptions_raised.append(error)
                _logger.error("tf.staged ends, and with it the data: %s", error)
            # Steps wait for a batch, so they must learn that none comes.
            self._run_quietly(sess, self._cancel_op)
        finally:
            with self._lock:
                self._runs_per_session[sess] -= 1

    def _compute_batches(self, session: tf.compat.v1.Session, coord: Any) -> None:
        generator = self._generator(session) if callable(self._generator) else self._generator
        deadline = time.monotonic() + self.patience_seconds
        has_begun = False
        while coord is None or not coord.should_stop():
            try:
                session.run(self._put, feed_dict=self._fed(session, generator))
                has_begun = True
            except tf.errors.CancelledError:
                return
            except self._ends:
                self._run_quietly(session, self._close_op)
                return
            except self._ignored as error:
                _logger.warning("tf.staged leaves out a batch: %s", error)
            except tf.errors.FailedPreconditionError:
                # A hook may initialize an iterator after the threads have begun.
                if has_begun or time.monotonic() > deadline:
                    raise
                time.sleep(_RETRY_SECONDS)

    def _fed(self, session: tf.compat.v1.Session, generator: Any) -> dict[Any, Any]:
        feeds: dict[Any, Any] = {}
        if self._feeds:
            values = session.run(list(self._feeds.values()))
            feeds.update(zip(self._feeds, values))
        if self._feed_list is not None:
            values = next(generator)
            if not isinstance(values, (list, tuple)) or len(values) != len(self._feed_list):
                raise ValueError(
                    f"staged: feed_generator must yield {len(self._feed_list)} values for feed_list, not "
                    f"{values!r}"
                )
            feeds.update(zip(self._feed_list, values))
        return feeds

    @staticmethod
    def _run_quietly(session: tf.compat.v1.Session, op: tf.Operation) -> None:
        try:
            session.run(op)
        except Exception:  # pylint: disable=broad-except
            _logger.debug("The session of tf.staged is closed", exc_info=True)


def _looked_up(tensors: Sequence[tf.Tensor]) -> str | None:
    """The name of an op of an embedding variable on which tensors depend; None if there is none."""
    needed = graph_ops.ops_needed_by([tensor.op for tensor in tensors])
    return next((op.name for op in needed if graph_ops.is_of_library(op)), None)


def _exception_types(types: Iterable[Any]) -> tuple:
    """Classes of errors, for classes and codes of errors."""
    found = []
    for one in types:
        if isinstance(one, int):
            one = tf.compat.v1.errors.exception_type_from_error_code(one)
        if not (isinstance(one, type) and issubclass(one, BaseException)):
            raise TypeError(f"staged: {one!r} is neither a class of exceptions nor a code of an error")
        found.append(one)
    return tuple(found)


def _tell(what: str, message: str) -> None:
    if what not in _told:
        _told.add(what)
        _logger.warning(message)
