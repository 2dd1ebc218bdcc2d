"""The time that ops take in a session's steps, from TensorFlow's traces."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import tensorflow as tf


@dataclasses.dataclass(frozen=True)
class OpType:
    """The ops of one type in a step.

    Attributes:
      nodes: how many.
      milliseconds: the sum of each op's time in the fastest of the traced steps. Ops that wait for other
        ranks, such as exchanges, are counted with the time that they wait.
    """

    nodes: int
    milliseconds: float


def profile(session: tf.compat.v1.Session, targets: Sequence[tf.Operation], steps: int) -> dict[str, OpType]:
    """Traces steps; returns the time of the ops of each type. All ranks trace the same steps in one order."""
    fastest: dict[str, float] = {}  # by name of a node
    kinds: dict[str, str] = {}
    options = tf.compat.v1.RunOptions(trace_level=tf.compat.v1.RunOptions.SOFTWARE_TRACE)
    session.run(targets)
    for _ in range(steps):
        metadata = tf.compat.v1.RunMetadata()
        session.run(targets, options=options, run_metadata=metadata)
        for device in metadata.step_stats.dev_stats:
            for node in device.node_stats:
                took = (node.op_end_rel_micros - node.op_start_rel_micros) / 1e3
                fastest[node.node_name] = min(took, fastest.get(node.node_name, took))
                # "name = Type(inputs)"
                kinds[node.node_name] = node.timeline_label.partition(" = ")[2].partition("(")[0]
    by_kind: dict[str, list[float]] = {}
    for name, took in fastest.items():
        by_kind.setdefault(kinds[name] or name, []).append(took)
    return {kind: OpType(len(times), sum(times)) for kind, times in by_kind.items()}
