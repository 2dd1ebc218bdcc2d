"""DeepRec's protocols of servers, `grpc++` and `star_server`, are TensorFlow's grpc."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import Any

from sparse_operation_kit.changes import replacements

_logger = logging.getLogger(__name__)
_OF_DEEPREC = ("grpc++", "star_server")
_told: set[str] = set()


@replacements.implements("tf.compat.v1.train.Server.__init__")
def _with_grpc(original: Callable) -> Callable:
    @functools.wraps(original)
    def init(
        self: Any,
        server_or_cluster_def: Any,
        job_name: str | None = None,
        task_index: int | None = None,
        protocol: str | None = None,
        *args: Any,
        **kwargs: Any,
    ) -> None:
        chosen = protocol or getattr(server_or_cluster_def, "protocol", None)
        if chosen in _OF_DEEPREC:
            _tell(chosen)
            protocol = "grpc"
        original(self, server_or_cluster_def, job_name, task_index, protocol, *args, **kwargs)

    return init


def _tell(protocol: str) -> None:
    if protocol not in _told:
        _told.add(protocol)
        _logger.warning(
            "DeepRec's protocol '%s' of servers is grpc here: TensorFlow has no other, and all processes of "
            "the cluster must run this library",
            protocol,
        )
