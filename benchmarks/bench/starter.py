"""Another implementation of tables on parameter servers: a folder with the program of each task.

`sharded_ops.py` there needs a built checkout of the library that it was written for, and gets all else from
its environment. Such a cluster cannot wait for a turn, so each turn starts one.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import re
import subprocess
import tempfile
import time
from collections.abc import Iterator

from bench import servers
from bench.jobs import Job

DIM, OPTIMIZER, ZIPF = 16, "adagrad", 1.05  # its only ones
_UNTIMED = 10  # steps of a worker before those that it times
_LIMIT_S = 300
_PRINTED = re.compile(
    r"worker(\d+) loss .*ms/step median ([\d.]+) .*worker cpu ms/step ([\d.]+); .*?MB/step [^\d]*([\d.]+)"
)


def turn(
    folder: pathlib.Path, checkout: pathlib.Path, job: Job, counts: tuple[int, int], steps: int
) -> servers.Turn:
    """Runs a cluster, whose workers each time so many steps.

    Args:
      folder: The folder of the programs.
      checkout: The built checkout.
      job: Tables and ids, with DIM, OPTIMIZER and ZIPF. The programs draw ids of their own.
      counts: The numbers of servers and workers.
      steps: Of each worker.

    Raises:
      RuntimeError: A task failed, or took too long; the message has the end of its log.
    """
    with tempfile.TemporaryDirectory() as scratch, contextlib.ExitStack() as stack:
        port = servers.free_port()
        shared = pathlib.Path(scratch)
        variables = {
            **os.environ,
            **dict(SOK_BUILD="0", SCRATCH=scratch, PYTHONPATH=str(folder), PORT=str(port)),
            **dict(NPS=str(counts[0]), NW=str(counts[1]), F=str(job.features), B=str(job.batch)),
            **dict(VOCAB=str(job.rows), STEPS=str(_UNTIMED + steps), RULE=OPTIMIZER),
        }
        variables.pop("SOK_BAZEL_BIN", None)
        tasks = {
            f"{name}{task}": stack.enter_context(_task(folder, checkout, name, task, variables, shared))
            for name, count in zip(("ps", "worker"), counts)
            for task in range(count)
        }

        def wait_for(flag: str) -> list[float]:
            """Waits until all workers have written this flag; returns each server's processor seconds."""
            end = time.monotonic() + _LIMIT_S
            while not all((shared / f"done.{port}.{flag}{worker}").exists() for worker in range(counts[1])):
                failed = next((name for name, task in tasks.items() if task.poll()), None)
                if failed is not None or time.monotonic() > end:
                    log = (shared / f"{failed or 'worker0'}.log").read_text(errors="replace")
                    raise RuntimeError(f"{failed or 'worker0'} of {folder} failed:\n{log[-2000:]}")
                time.sleep(0.01)
            return [_cpu_seconds(task.pid) for name, task in tasks.items() if name.startswith("ps")]

        before = wait_for("s")
        used = [after - was for after, was in zip(wait_for("e"), before)]
        for worker in range(counts[1]):
            tasks[f"worker{worker}"].wait(_LIMIT_S)
        logs = "".join(path.read_text(errors="replace") for path in sorted(shared.glob("worker*.log")))
        printed = [tuple(map(float, found[1:])) for found in _PRINTED.findall(logs)]
        if len(printed) != counts[1]:
            raise RuntimeError(f"the workers of {folder} printed:\n{logs[-2000:]}")
        medians, cpu, megabytes = zip(*printed)
        return servers.Turn(
            [[median] for median in medians],
            sum(cpu) / len(cpu),
            [seconds / (steps * counts[1]) * 1e3 for seconds in used],
            # What is sent while a worker makes a step, by all workers.
            sum(megabytes) / counts[1] ** 2,
            sum(1e3 / median for median in medians),
        )


@contextlib.contextmanager
def _task(
    folder: pathlib.Path, checkout: pathlib.Path, name: str, task: int, variables: dict, shared: pathlib.Path
) -> Iterator[subprocess.Popen]:
    command = [str(checkout / "tools" / "python.sh"), str(folder / "sharded_ops.py"), name, str(task), "ops"]
    with open(shared / f"{name}{task}.log", "wb") as log:
        process = subprocess.Popen(command, env=variables, stdout=log, stderr=log, cwd=checkout)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def _cpu_seconds(process: int) -> float:
    # The name, in parentheses, may contain spaces. Fields 14 and 15 are user and system time.
    fields = pathlib.Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
