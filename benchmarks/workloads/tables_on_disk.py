"""Steps of the bare engine on tables of which a share is in memory, and the rest in files."""

from __future__ import annotations

import argparse
import contextlib
import pathlib
import tempfile

from bench import flags, jobs, processes
from bench.report import Result
from workloads.row_types import result_of

FLAGS = {
    **dict(threads=(2,), table_mb=(1333.0,), rows=None, features=(26,), batch=(4096,), zipf=(1.05,)),
    **dict(dim=(64,), hotness=(1,), batches=200, rounds=7, seed=1),
    "share": flags.Flag(float, "shares of the records that are in memory", (0.5, 0.2, 0.1, 0.05)),
    "folder": flags.Flag(str, "where the files are", tempfile.gettempdir()),
    "what": flags.Flag(flags.one_of("name", ("forward", "step")), "forward or step", ("step",)),
}
TOGETHER = ("what", "share")


def measure(point: argparse.Namespace) -> list[Result]:
    """Measures one set of tables, with each share in a process of its own, in turns."""
    job = jobs.Job.of(point, optimizer="lazy_adam")
    program = processes.find_program("group_benchmark")
    if program is None:
        return []
    batches = job.make_batches()
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        job = job.write_ids(batches, pathlib.Path(name) / "ids")
        command = processes.engine_command(program, job)
        running = {"all in memory": stack.enter_context(processes.MeasuringProcess("memory", command))}
        record = 3 * job.dim * 4  # LazyAdam's: weights and two moments
        for share in point.share:
            memory = ["--memory", str(max(int(job.rows * share), 1) * record), "--folder", point.folder]
            process = processes.MeasuringProcess(f"{share:g} in memory", command + memory)
            running[process.name] = stack.enter_context(process)
        for process in running.values():
            process.wait_until_ready()
            # The rows that are used often come to memory. No batch comes twice: rows that came up together
            # are neighbors, so a batch that returned would find its rows faster than any other.
            process.ask(f"0 step {max(len(batches) * 3 // 4, 1)}")
        return [result_of(job, batches, what, point.rounds, running, rows=job.rows) for what in point.what]
