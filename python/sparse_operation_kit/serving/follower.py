"""Follower: keeps a serving session at the latest checkpoint of a training job."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import tensorflow as tf

from sparse_operation_kit import native
from sparse_operation_kit.checkpoint import reader
from sparse_operation_kit.checkpoint.errors import CheckpointError
from sparse_operation_kit.graphs import graph_ops
from sparse_operation_kit.ranks.communicator import communicator
from sparse_operation_kit.tables.embedding_variable import is_embedding_variable

_log = logging.getLogger(__name__)


class Follower:
    """Loads each new checkpoint of a directory into a session that serves, between requests.

    The first one is loaded whole. Of an incremental one that builds on what the session has, only the rows
    that changed are: lookups see all of its changes or none. Any other, such as the next full one, replaces
    everything, and requests wait while it is loaded::

        follower = sok.serving.Follower(session, "checkpoints")
        follower.update()
        follower.start(seconds=1)
        ...
        with follower.reading():  # in each thread that answers requests
            session.run(outputs, feed)

    Memory beyond the session's: a few MiB, and the largest ordinary variable. Thread-safe.
    """

    def __init__(
        self, session: tf.compat.v1.Session, checkpoint_dir: str | os.PathLike, var_list: Sequence[Any] = ()
    ) -> None:
        """Adds ops to the session's graph, and loads nothing yet.

        Args:
          session: A session whose graph trains no table, for example of a SavedModel with this library's ops.
          checkpoint_dir: The directory in which the training job saves, full and incremental checkpoints.
          var_list: The variables to follow; none: all global variables of the graph.

        Raises:
          ValueError: The graph trains tables, has none, or is that of one of several ranks.
        """
        graph = session.graph
        variables = list(var_list) or graph.get_collection(tf.compat.v1.GraphKeys.GLOBAL_VARIABLES)
        tables = [one for one in variables if is_embedding_variable(one)]
        if not tables:
            raise ValueError("sok.serving.Follower: there is no embedding variable in the graph to follow")
        if communicator().size > 1 or tables[0].servers.devices:
            raise ValueError(
                "sok.serving.Follower follows with all rows in one process, not over ranks or servers"
            )
        if graph_ops.trains_tables(graph):
            raise ValueError("sok.serving.Follower: the session's graph trains tables; serve in another one")
        self._session, self._directory = session, os.fspath(checkpoint_dir)
        self._tables = [one.m_var_name for one in tables]
        others = [one for one in variables if not is_embedding_variable(one)]
        with graph.as_default():
            self._everything = tf.compat.v1.train.Saver(variables, max_to_keep=0)
            self._others = tf.compat.v1.train.Saver(others, max_to_keep=0) if others else None
            self._prefix = tf.compat.v1.placeholder(tf.string, [])
            self._since = tf.compat.v1.placeholder(tf.string, [])
            self._follow = native.ops.sok_follow_checkpoint(
                [one.handle for one in tables], self._prefix, self._since, names=self._tables
            )
        self._updating = threading.Lock()
        self._requests = _Requests()
        self._loaded: tuple[str, str] | None = None  # the prefix and the save's id
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._error: Exception | None = None

    @property
    def prefix(self) -> str | None:
        """The prefix of the checkpoint that the session has; None before the first."""
        return self._loaded[0] if self._loaded else None

    @property
    def error(self) -> Exception | None:
        """Why the last update has failed; None if it has not."""
        return self._error

    @contextlib.contextmanager
    def reading(self) -> Iterator[None]:
        """Returns a context for a request, in which no checkpoint is loaded."""
        self._requests.begin()
        try:
            yield
        finally:
            self._requests.end()

    def update(self) -> str | None:
        """Loads the latest checkpoint, if the session does not have it.

        Returns:
          Its prefix; None if there is nothing new.

        Raises:
          CheckpointError or tf.errors.OpError: It is damaged, incomplete or gone. The session stays as it
            was, and `error` has the error too.
        """
        with self._updating:
            try:
                loaded = self._update()
                self._error = None
                return loaded
            except (CheckpointError, tf.errors.OpError) as error:
                self._error = error
                raise

    def start(self, seconds: float = 1.0) -> None:
        """Starts a thread that updates every so many seconds. It logs errors, and tries again."""
        if self._thread is not None:
            raise RuntimeError("sok.serving.Follower: start was called before")
        self._stop.clear()
        self._thread = threading.Thread(target=self._run, args=(seconds,), name="sok-follower", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Ends the thread, after the update that it makes."""
        if self._thread is not None:
            self._stop.set()
            self._thread.join()
            self._thread = None

    def _run(self, seconds: float) -> None:
        reported = None
        while not self._stop.wait(seconds):
            try:
                self.update()
                reported = None
            except (CheckpointError, tf.errors.OpError) as error:
                if str(error) != reported:
                    _log.warning("The session stays at %s: %s", self.prefix, error)
                reported = str(error)

    def _update(self) -> str | None:
        prefix = tf.train.latest_checkpoint(self._directory)
        saved = reader.open_saved(prefix) if prefix else None
        if saved is None or (self._loaded and saved.facts and saved.facts.id == self._loaded[1]):
            return None
        assert prefix
        if saved.facts is None:
            raise CheckpointError(prefix, "has no embedding table")
        if self._builds_on_what_is_loaded(saved):
            self._apply(prefix)
        else:
            with self._requests.paused(), self._session.graph.as_default():
                self._everything.restore(self._session, prefix)
        self._loaded = prefix, saved.facts.id
        return prefix

    def _builds_on_what_is_loaded(self, saved: reader.SavedCheckpoint) -> bool:
        if self._loaded is None:
            return False
        chains = [saved.open_table(name).links for name in self._tables]
        return all(
            self._loaded[1] in [link["id"] for link in links]
            and (links[-1]["table"]["optimizer"] or {}).get("history") is None
            for links in chains
        )

    def _apply(self, prefix: str) -> None:
        assert self._loaded
        if self._others is not None:
            # They are assigned after the tables have changed, so a damaged one must be found before.
            entries = tf.train.load_checkpoint(prefix)
            for name in entries.get_variable_to_shape_map():
                if not name.startswith("#") and name.split("#")[0] not in self._tables:
                    entries.get_tensor(name)
        with self._requests.paused(), self._session.graph.as_default():
            self._session.run(self._follow, {self._prefix: prefix, self._since: self._loaded[1]})
            if self._others is not None:
                self._others.restore(self._session, prefix)


class _Requests:
    """Counts requests, and lets an update wait for their end while new ones wait for the update."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._running = 0
        self._is_paused = False

    def begin(self) -> None:
        with self._changed:
            while self._is_paused:
                self._changed.wait()
            self._running += 1

    def end(self) -> None:
        with self._changed:
            self._running -= 1
            self._changed.notify_all()

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        with self._changed:
            self._is_paused = True
            while self._running:
                self._changed.wait()
        try:
            yield
        finally:
            with self._changed:
                self._is_paused = False
                self._changed.notify_all()
