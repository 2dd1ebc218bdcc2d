"""Runs a function of a test module, or a program, on several ranks, and collects results and outputs.

    def worker(steps):  # at the top level of the test module
        hvd.init()
        return hvd.rank() * steps

    assert ranks.run(worker, 5, ranks=3, transport="gloo") == [0, 5, 10]

Ranks are forked from a process that has imported TensorFlow, if there is one (tools/fork_server.py). Still
each takes a second. So a test module should have few launches with many cases each: see `run_checks`.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import dataclasses
import functools
import importlib.util
import inspect
import os
import pathlib
import pickle
import runpy
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Union

import pytest

import forked

_Process = Union[forked.Process, subprocess.Popen]

# "gloo" starts the ranks from this process, as horovodrun would; the others are the launchers that users run.
TRANSPORTS = ("gloo", "mpi", "horovodrun")
# Time for other ranks to notice that one has failed; Horovod's own timeout is 30 s.
_GRACE_SECONDS = 35.0
# Horovod's threads in all ranks meet every so many ms, also if there is nothing to send. At its default, 1,
# this can take a quarter of a core for each rank. A collective waits for the next cycle.
_CYCLE_TIME = "5"
_SHOWN_CHARACTERS = 6000
_FORK_SERVER = pathlib.Path(__file__).absolute().parents[1] / "tools" / "fork_server.py"


@dataclasses.dataclass(frozen=True)
class Job:
    """The result of a launch; lists are by rank.

    Attributes:
      results: The function's results; None for a program, or if the function did not return.
      outputs: Standard output and standard error of each rank, together.
      returncodes: Exit codes, -N if signal N ended a rank; None if only the launcher knows.
      returncode: 0 if all ranks succeeded, else the launcher's exit code, or that of the first failed rank.
      timed_out: Whether ranks were killed, because they exceeded the timeout or outlived a failed rank.
      seconds: From the start to the end of the last rank.
    """

    results: list[Any]
    outputs: list[str]
    returncodes: list[int | None]
    returncode: int
    timed_out: bool
    seconds: float

    def report(self) -> str:
        """The ends of all outputs, for the message of a failed test."""
        lines = [f"returncode {self.returncode}, timed out: {self.timed_out}, {self.seconds:.1f} s"]
        for rank, output in enumerate(self.outputs):
            lines += [f"----- rank {rank}, {self.returncodes[rank]}", output[-_SHOWN_CHARACTERS:]]
        return "\n".join(lines)


def run(function: Callable, *args: Any, ranks: int, **options: Any) -> list[Any]:
    """Calls `function(*args)` on every rank and returns the results by rank.

    Args:
      function: a top-level function of a module in a file, which each rank imports.
      *args: picklable arguments, the same on all ranks.
      ranks: the number of processes.
      **options: as for `launch`.

    Raises:
      AssertionError: a rank failed or hung; the message has the outputs of all ranks.
    """
    job = launch(function, *args, ranks=ranks, **options)
    assert job.returncode == 0 and not job.timed_out, job.report()
    return job.results


def run_checks(checks: Sequence[Callable | tuple], *, ranks: int, **options: Any) -> dict[str, list[Any]]:
    """Calls functions one after another on every rank, in one launch.

    A check is a function, or a tuple of one and its arguments. An exception ends the launch, because other
    ranks may be waiting in a collective.

    Returns:
      By function name, the results of all ranks.

    Raises:
      AssertionError: as `run`; the outputs name the function.
    """
    calls = [check if isinstance(check, tuple) else (check,) for check in checks]
    modules = {inspect.getsourcefile(function) for function, *_ in calls}
    assert len(modules) == 1, f"checks of one launch stand in one module, not in {modules}"
    named = [(function.__name__, args) for function, *args in calls]
    results = run(_call_checks, modules.pop(), named, ranks=ranks, **options)
    return {name: [result[name] for result in results] for name, _ in named}


def launch(
    target: Callable | str | os.PathLike,
    *args: Any,
    ranks: int,
    transport: str = "gloo",
    env: dict[str, str] | None = None,
    timeout: float = 150.0,
) -> Job:
    """Starts `ranks` processes and waits for them. Skips the test if the transport is not installed.

    Args:
      target: a function as in `run`, or the path of a Python program.
      *args: the function's arguments, or the program's (strings).
      ranks: the number of processes.
      transport: "gloo", "mpi" (mpirun) or "horovodrun" (Gloo, started by horovodrun: 7 s more).
      env: environment variables to add to those of this process.
      timeout: seconds after which all ranks are killed; the outputs then end with their stacks.
    """
    require(transport)
    with tempfile.TemporaryDirectory(prefix="ranks-") as name:
        folder = pathlib.Path(name)
        (folder / "job").write_bytes(pickle.dumps((_describe(target), args)))
        # Ranks can import what this process can import, in any working directory.
        environment = {
            "HOROVOD_CYCLE_TIME": _CYCLE_TIME,
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
            **(env or {}),
        }
        start = time.monotonic()
        with _started(transport, ranks, folder, environment) as processes:
            timed_out = _wait(processes, start + timeout)
            if timed_out:
                _kill(processes, folder, ranks)
        return _job(folder, processes, ranks, timed_out, time.monotonic() - start)


def require(transport: str) -> None:
    """Skips the running test, with a reason, if ranks cannot be started with `transport`."""
    assert transport in TRANSPORTS, transport
    if transport == "mpi" and shutil.which("mpirun") is None:
        pytest.skip("mpirun is not installed")


def _describe(target: Callable | str | os.PathLike) -> tuple[str, str | None]:
    """(file, name of a function in it, or None for a program)."""
    if not callable(target):
        return os.fspath(target), None
    assert target.__qualname__ == target.__name__, (
        f"{target.__qualname__} is not at the top level of its module"
    )
    return os.path.abspath(inspect.getsourcefile(target)), target.__name__


@contextlib.contextmanager
def _started(
    transport: str, ranks: int, folder: pathlib.Path, environment: dict[str, str]
) -> Iterator[list[_Process]]:
    """Starts the processes: one per rank with "gloo", else only the launcher. Ends them all at the end."""
    program = [os.path.abspath(__file__), str(folder)]
    processes: list[_Process] = []
    with contextlib.ExitStack() as stack:
        try:
            if transport == "gloo":
                for rank, extra in enumerate(stack.enter_context(_gloo_environments(ranks))):
                    output = folder / f"started.{rank}"
                    processes.append(forked.start(*program, output=output, env={**environment, **extra}))
            else:
                log = stack.enter_context(open(folder / "started.0", "wb"))
                in_fork = [sys.executable, str(_FORK_SERVER), "--fork", *program]
                command = [*_launcher(transport, ranks), *in_fork]
                processes.append(
                    subprocess.Popen(
                        command,
                        env=environment,
                        stdin=subprocess.DEVNULL,
                        stdout=log,
                        stderr=subprocess.STDOUT,
                    )
                )
            yield processes
        finally:
            if any(process.poll() is None for process in processes):
                _kill(processes, folder, ranks)


@contextlib.contextmanager
def _gloo_environments(ranks: int) -> Iterator[list[dict[str, str]]]:
    """The environment variables that horovodrun sets for each rank. Runs its rendezvous server meanwhile."""
    from horovod.runner.common.util.hosts import get_host_assignments, parse_hosts
    from horovod.runner.gloo_run import create_run_env_vars, create_slot_env_vars
    from horovod.runner.http.http_server import RendezvousServer

    slots = get_host_assignments(parse_hosts(f"localhost:{ranks}"), ranks)
    server = RendezvousServer()
    port = server.start()
    server.init(slots)
    try:
        shared = {name: str(value) for name, value in create_run_env_vars("127.0.0.1", ["lo"], port).items()}
        yield [{**shared, **create_slot_env_vars(slot)} for slot in slots]
    finally:
        server.stop()


def _launcher(transport: str, ranks: int) -> list[str]:
    if transport == "mpi":
        as_root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
        # Waiting ranks yield their core: with few cores, they would block the ranks that they wait for.
        patient = ["--oversubscribe", "--bind-to", "none", "--mca", "mpi_yield_when_idle", "1"]
        return ["mpirun", *as_root, *patient, "-np", str(ranks)]
    horovodrun = "from horovod.runner.launch import run_commandline; run_commandline()"
    return [sys.executable, "-c", horovodrun, "-np", str(ranks), "--gloo", "--network-interface", "lo"]


def _wait(processes: list[_Process], deadline: float) -> bool:
    """Waits for all processes; True if some still run at the deadline, or too long after a failure."""
    while any(process.poll() is None for process in processes):
        if any(process.returncode for process in processes):
            deadline = min(deadline, time.monotonic() + _GRACE_SECONDS)
            return _outlived(processes, deadline)
        if time.monotonic() > deadline:
            return True
        time.sleep(0.02)
    return False


def _outlived(processes: list[_Process], deadline: float) -> bool:
    for process in processes:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(max(0.0, deadline - time.monotonic()))
    return any(process.returncode is None for process in processes)


def _kill(processes: list[_Process], folder: pathlib.Path, ranks: int) -> None:
    """Makes the ranks print their stacks, then kills them and their launcher."""
    pids = [_read(folder / f"pid.{rank}") for rank in range(ranks)]
    own = {process.pid for process in processes if process.poll() is None}
    running = [int(pid) for pid in pids if pid and (int(pid) in own or _is_ours(int(pid), folder))]
    for number in (signal.SIGUSR1, signal.SIGKILL):
        for pid in running:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        time.sleep(0.5)
    for process in processes:
        if process.poll() is None:
            process.kill()
        process.wait()


def _is_ours(pid: int, folder: pathlib.Path) -> bool:
    # The process id of a rank that has ended may have been reused. A rank writes to a file in the folder.
    with contextlib.suppress(OSError):
        return str(folder) in os.readlink(f"/proc/{pid}/fd/1")
    return False


def _read(path: pathlib.Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def _job(folder: pathlib.Path, processes: list[_Process], ranks: int, timed_out: bool, seconds: float) -> Job:
    codes = [process.returncode for process in processes]
    by_rank = codes if len(codes) == ranks else [None] * ranks
    outputs = [_read(folder / f"output.{rank}") for rank in range(ranks)]
    for index in range(len(processes)):
        # What a rank wrote before its output was redirected to its file, and the launcher's output.
        outputs[index] += _read(folder / f"started.{index}")
    results = [None] * ranks
    for rank in range(ranks):
        path = folder / f"result.{rank}"
        if path.exists():
            results[rank] = pickle.loads(path.read_bytes())
    return Job(results, outputs, by_rank, next((code for code in codes if code), 0), timed_out, seconds)


def _call_checks(path: str, calls: list[tuple[str, list[Any]]]) -> dict[str, Any]:
    module = _module(path)
    results = {}
    for name, args in calls:
        print(f"check {name}", flush=True)
        results[name] = getattr(module, name)(*args)
    return results


@functools.lru_cache(maxsize=None)
def _module(path: str) -> Any:
    name = pathlib.Path(path).stem
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _rank_from_environment() -> int:
    for variable in ("HOROVOD_RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK"):
        if variable in os.environ:
            return int(os.environ[variable])
    raise AssertionError("the launcher gave this process no rank")


def _main(folder: pathlib.Path) -> None:
    """Runs the job in `folder` on this rank; writes its output and result to files there."""
    import faulthandler

    rank = _rank_from_environment()
    (folder / f"pid.{rank}").write_text(str(os.getpid()))
    with open(folder / f"output.{rank}", "ab", buffering=0) as output:
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    if os.environ.get("SOK_TEST_DEVICE") != "gpu":
        os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
    import device_of_tests  # noqa: F401 - before the test's module, which may not import it

    faulthandler.register(signal.SIGUSR1)
    (path, name), args = pickle.loads((folder / "job").read_bytes())
    if name is None:
        sys.argv = [path, *args]
        sys.path[0] = os.path.dirname(os.path.abspath(path))
        runpy.run_path(path, run_name="__main__")
        return
    try:
        result = getattr(_module(path), name)(*args)
    except BaseException:
        traceback.print_exc()
        sys.exit(1)
    # Renamed, so that a rank that dies while writing leaves no partial result.
    (folder / f"writing.{rank}").write_bytes(pickle.dumps(result))
    os.replace(folder / f"writing.{rank}", folder / f"result.{rank}")
    _end()


def _end() -> None:
    """Ends this process as an interpreter does, but without deleting all modules and objects.

    That takes a third of the time of a rank with a small function.
    """
    threading._shutdown()  # type: ignore[attr-defined] # waits for threads
    atexit._run_exitfuncs()  # among them Horovod's shutdown
    sys.stdout.flush()
    sys.stderr.flush()
    ctypes.CDLL(None).exit(0)


if __name__ == "__main__":
    _main(pathlib.Path(sys.argv[1]))
