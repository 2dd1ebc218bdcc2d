"""A session hook that writes table statistics as summaries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from sparse_operation_kit.arguments import whole_number
from sparse_operation_kit.ranks.communicator import communicator
from sparse_operation_kit.tables.embedding_variable import EmbeddingVariable
from sparse_operation_kit.tables.table_statistics import (
    TableStatistics,
    summed_statistics,
    tables_by_name,
)

v1 = tf.compat.v1


class TableSummaryHook(v1.train.SessionRunHook):
    """Writes scalar summaries for TensorBoard, for each table and every `save_steps` steps.

    | tag | |
    |---|---|
    | `embedding/TABLE/rows` | rows in the table |
    | `embedding/TABLE/admitted_ids_per_step` | new rows |
    | `embedding/TABLE/filtered_ids_per_step` | distinct ids that the admission filter left without a row |
    | `embedding/TABLE/exchange_bytes_per_step` | bytes that ranks, or servers and workers, sent each other |
    | `embedding/TABLE/unique_ratio` | distinct ids / ids, if there were any |
    | `embedding/TABLE/memory_hit_ratio` | with tiers: the share of rows that were in memory when needed |
    | `embedding/TABLE/bytes_up_per_step`, `…/bytes_down_per_step` | with tiers: bytes of rows that moved |
    | `embedding/TABLE/disk_rows_per_step` | with rows on disk: rows that were read from there |

    The values are over all ranks and, except `rows`, averages over the steps since the last summary. See
    `TableStatistics` for the exact counts.

    Use it with a `MonitoredTrainingSession` or an `Estimator`. Every rank needs the hook, with the same
    `save_steps` and variables; only rank 0 writes. With several ranks the hook reads the global step after
    each run, and exchanges statistics whenever the global step has passed a multiple of `save_steps`; ranks
    that train together pass it together. On parameter servers one worker, such as the chief, has the hook.
    """

    def __init__(
        self,
        output_dir: str | None = None,
        *,
        save_steps: int = 100,
        summary_writer: v1.summary.FileWriter | None = None,
        variables: Sequence[EmbeddingVariable] | None = None,
    ) -> None:
        """Creates the hook. Give either `output_dir` or `summary_writer`.

        Args:
          output_dir: The directory of the event files.
          save_steps: Steps between two summaries.
          summary_writer: The writer of the event files.
          variables: The embedding variables; None means all of the graph.

        Raises:
          ValueError: Both or none of `output_dir` and `summary_writer` are given, or `save_steps` is below 1.
          TypeError: `save_steps` is not an int.
        """
        if (output_dir is None) == (summary_writer is None):
            raise ValueError("A TableSummaryHook needs either output_dir or summary_writer")
        self._output_dir = output_dir
        self._writer = summary_writer
        self._save_steps = whole_number(save_steps, "save_steps")
        self._variables = variables

    def begin(self) -> None:
        """Adds the ops that read the statistics to the graph.

        Raises:
          ValueError: The graph has no embedding variable, or they are on different devices.
          TypeError: One of the given variables is not an embedding variable.
          RuntimeError: The graph has no global step.
        """
        tables = tables_by_name(self._variables)
        self._global_step = v1.train.get_global_step()
        if self._global_step is None:
            raise RuntimeError(
                "A TableSummaryHook needs a global step; call tf.compat.v1.train.create_global_step"
            )
        self._names = [table.m_var_name for table in tables]
        self._numbers = summed_statistics(tables)
        self._known = communicator()
        if self._writer is None and self._known.rank == 0:
            self._writer = v1.summary.FileWriterCache.get(self._output_dir)

    def after_create_session(self, session: v1.Session, coord: Any) -> None:
        """Starts counting steps from the current global step."""
        del coord
        self._last_step = int(session.run(self._global_step))
        self._last_numbers = np.zeros([len(self._names), len(TableStatistics._fields) - 1], np.int64)

    def before_run(self, run_context: v1.train.SessionRunContext) -> v1.train.SessionRunArgs:
        """Fetches the global step with the run."""
        del run_context
        return v1.train.SessionRunArgs(self._global_step)

    def after_run(
        self, run_context: v1.train.SessionRunContext, run_values: v1.train.SessionRunValues
    ) -> None:
        """Writes summaries when they are due."""
        due = (self._last_step // self._save_steps + 1) * self._save_steps
        # The fetched global step may be the one before or after the step, which can differ between ranks. All
        # ranks have to decide alike, so with several ranks the step is always read again.
        if self._known.size == 1 and run_values.results + 1 < due:
            return
        step = int(run_context.session.run(self._global_step))
        if step < due:
            return
        numbers = run_context.session.run(self._numbers)
        if self._writer is not None and self._known.rank == 0:
            self._writer.add_summary(self._summary(numbers, step - self._last_step), step)
        self._last_step, self._last_numbers = step, numbers

    def end(self, session: v1.Session) -> None:
        """Flushes the summaries to the file."""
        del session
        if self._writer is not None and self._known.rank == 0:
            self._writer.flush()

    def _summary(self, numbers: np.ndarray, steps: int) -> v1.Summary:
        # A restore during a session creates new tables, whose counts start at 0.
        since_last = np.where(numbers >= self._last_numbers, numbers - self._last_numbers, numbers)
        summary = v1.Summary()
        for name, now, change in zip(self._names, numbers, since_last):
            change = TableStatistics._make([*change, None])
            values = {
                "rows": TableStatistics._make([*now, None]).rows,
                "admitted_ids_per_step": change.admitted_ids / steps,
                "filtered_ids_per_step": change.filtered_ids / steps,
                "exchange_bytes_per_step": change.exchange_bytes / steps,
            }
            if change.ids:
                values["unique_ratio"] = change.distinct_ids / change.ids
            if change.memory_hits + change.memory_misses:
                needed = change.memory_hits + change.memory_misses
                values["memory_hit_ratio"] = change.memory_hits / needed
                values["bytes_up_per_step"] = change.bytes_up / steps
                values["bytes_down_per_step"] = change.bytes_down / steps
            if now[TableStatistics._fields.index("disk_bytes")]:
                values["disk_rows_per_step"] = change.disk_rows / steps
            for what, value in values.items():
                summary.value.add(tag=f"embedding/{name}/{what}", simple_value=float(value))
        return summary
