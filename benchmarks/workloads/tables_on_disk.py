"""Steps of the bare engine on tables of which a share is in memory, and the rest in files."""

from __future__ import annotations

import argparse
import pathlib
import tempfile
from collections.abc import Sequence

from bench import flags, jobs, plots
from bench.report import Result
from workloads.row_types import compare_kinds

FLAGS = {
    **dict(threads=(2,), table_mb=(1333.0,), rows=None, features=(26,), batch=(4096,), zipf=(1.05,)),
    **dict(dim=(64,), hotness=(1,), batches=600, rounds=7, seed=1),
    "share": flags.Flag(float, "shares of the records that are in memory", (0.5, 0.2, 0.1, 0.05)),
    "folder": flags.Flag(str, "where the files are", tempfile.gettempdir()),
    "what": flags.Flag(flags.one_of("name", ("forward", "step")), "forward or step", ("step",)),
}
TOGETHER = ("what",)
_IN_MEMORY, _IN_PART = "all in memory", "in memory in part"


def measure(point: argparse.Namespace) -> list[Result]:
    """Measures tables with a share in memory, in turns with tables in memory.

    Only these two at once: they must leave memory for the pages of the files.
    """
    job = jobs.Job.of(point)
    record = 3 * job.dim * 4  # LazyAdam's: weights and two moments
    memory = max(int(job.rows * point.share), 1) * record
    kinds = {
        _IN_MEMORY: ("lazy_adam",),
        _IN_PART: ("lazy_adam", "--memory", str(memory), "--folder", point.folder),
    }
    # The rows that are used often come to memory, and the files get as large as they will be: until then, all
    # that is written to them needs new pages. No batch comes twice: rows that came up together are neighbors,
    # so a batch that returned would find its rows faster than any other.
    steps = max(job.batches * 5 // 6, 1)
    return compare_kinds(point, job, kinds, {"rows": job.rows, "share": point.share}, steps)


def draw(path: pathlib.Path, results: Sequence[Result]) -> None:
    """Draws times divided by those of tables in memory, over the share in memory."""
    panels: dict[str, dict[str, dict[float, float]]] = {}
    for result in results:
        part, whole = result.timings[_IN_PART], result.timings[_IN_MEMORY]
        lines = panels.setdefault(f"{result.question['what']}, divided by that in memory", {})
        for line, value in [
            ("time", part.median / whole.median),
            ("processor time", part.median_cpu / whole.median_cpu),
        ]:
            lines.setdefault(line, {})[result.question["share"]] = value
    plots.lines(path, "Tables on disk", panels, "share of the rows in memory", "times as long")
