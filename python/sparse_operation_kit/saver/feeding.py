"""Sessions that feed some tensors in every run."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from sparse_operation_kit.compat.internals import session as tf_session


class Feeding(tf_session.SessionInterface):
    """A session that feeds some tensors in every run."""

    def __init__(self, session: Any, feed: dict[tf.Tensor, Any]) -> None:
        self._session = session
        self._feed = feed

    @property
    def graph(self) -> tf.Graph:
        """The session's graph."""
        return self._session.graph

    @property
    def sess_str(self) -> str:
        """The session's target."""
        return self._session.sess_str

    def run(self, fetches: Any, feed_dict: Any = None, options: Any = None, run_metadata: Any = None) -> Any:
        """Runs the session with the tensors."""
        return self._session.run(fetches, {**self._feed, **(feed_dict or {})}, options, run_metadata)
