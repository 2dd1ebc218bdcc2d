"""Starts a function of a test module, or a program, on several ranks, and collects what every rank did.

    def worker(steps):  # at the top level of the test module
        hvd.init()
        return hvd.rank() * steps

    assert ranks.run(worker, 5, ranks=3, transport="gloo") == [0, 5, 10]

Over "gloo" ranks are forked from a process that has imported TensorFlow, if there is one (see `forked`);
over the other transports a rank pays seconds for importing it. Either way a test module gathers its cases
in few launches: see `run_checks`.
"""

from __future__ import annotations

import contextlib
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
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

import forked

_Process = forked.Process | subprocess.Popen

# "gloo" starts the ranks from here, as horovodrun would; the others are what users start.
TRANSPORTS = ("gloo", "mpi", "horovodrun")
# What the other ranks get to notice that one has failed; Horovod's own timeout is 30 s.
_GRACE_SECONDS = 35.0
_SHOWN_CHARACTERS = 6000


@dataclasses.dataclass(frozen=True)
class Job:
    """What became of a launch; lists are by rank.

    Attributes:
      results: what the function returned; None for a program, and where it did not return.
      outputs: stdout and stderr together.
      returncodes: exit codes, minus the signal's number where one ended the rank; None where only the
        launcher can tell.
      returncode: 0 if all ranks ended well, else the launcher's, or the first rank's that did not.
      timed_out: whether ranks had to be killed, because they ran past the timeout or outlived a failed rank.
      seconds: from the start to the end of the last rank.
    """

    results: list[Any]
    outputs: list[str]
    returncodes: list[int | None]
    returncode: int
    timed_out: bool
    seconds: float

    def report(self) -> str:
        """The ends of all outputs, for a failed test to show."""
        lines = [f"returncode {self.returncode}, timed out: {self.timed_out}, {self.seconds:.1f} s"]
        for rank, output in enumerate(self.outputs):
            lines += [f"----- rank {rank}, {self.returncodes[rank]}", output[-_SHOWN_CHARACTERS:]]
        return "\n".join(lines)


def run(function: Callable, *args: Any, ranks: int, **options: Any) -> list[Any]:
    """Calls `function(*args)` on every rank and returns the results by rank.

    Args:
      function: a function at the top level of a module that a file holds; each rank imports that file.
      *args: picklable arguments, the same on all ranks.
      ranks: the number of processes.
      **options: as for `launch`.

    Raises:
      AssertionError: a rank failed or hung; with the output of all ranks.
    """
    job = launch(function, *args, ranks=ranks, **options)
    assert job.returncode == 0 and not job.timed_out, job.report()
    return job.results


def run_checks(checks: Sequence[Callable[[], Any]], *, ranks: int, **options: Any) -> dict[str, list[Any]]:
    """Calls functions one after the other on every rank, in one launch.

    The first that raises ends the launch, since other ranks may be waiting for it in a collective.

    Returns:
      By the function's name, what it returned on each rank.

    Raises:
      AssertionError: as `run`; the outputs tell which function it was.
    """
    modules = {inspect.getsourcefile(check) for check in checks}
    assert len(modules) == 1, f"checks of one launch stand in one module, not in {modules}"
    names = [check.__name__ for check in checks]
    results = run(_call_checks, modules.pop(), names, ranks=ranks, **options)
    return {name: [result[name] for result in results] for name in names}


def launch(
    target: Callable | str | os.PathLike,
    *args: Any,
    ranks: int,
    transport: str = "gloo",
    env: dict[str, str] | None = None,
    timeout: float = 150.0,
) -> Job:
    """Starts `ranks` processes and waits for them. Skips the test where the transport is not installed.

    Args:
      target: a function as in `run`, or the path of a Python program.
      *args: the function's arguments, or the program's (strings).
      ranks: the number of processes.
      transport: "gloo", "mpi" (mpirun) or "horovodrun" (Gloo, started by horovodrun: 7 s more).
      env: environment variables besides those of this process.
      timeout: seconds after which all ranks are killed; the outputs then end with their stacks.
    """
    require(transport)
    with tempfile.TemporaryDirectory(prefix="ranks-") as name:
        folder = pathlib.Path(name)
        (folder / "job").write_bytes(pickle.dumps((_describe(target), args)))
        # Ranks import what this process can import, from wherever they are started.
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **(env or {})}
        start = time.monotonic()
        with _started(transport, ranks, folder, environment) as processes:
            timed_out = _wait(processes, start + timeout)
            if timed_out:
                _kill(processes, folder, ranks)
        return _job(folder, processes, ranks, timed_out, time.monotonic() - start)


def require(transport: str) -> None:
    """Skips the running test, with a reason, where ranks cannot be started over `transport`."""
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
    """The started processes: one for each rank with "gloo", else the launcher alone. None is left behind."""
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
                command = [*_launcher(transport, ranks), sys.executable, *program]
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
    """What horovodrun sets for each rank, with its rendezvous server running in this process."""
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
        # Ranks that wait give way: on few cores they would keep those that they wait for from running.
        patient = ["--oversubscribe", "--bind-to", "none", "--mca", "mpi_yield_when_idle", "1"]
        return ["mpirun", *as_root, *patient, "-np", str(ranks)]
    horovodrun = "from horovod.runner.launch import run_commandline; run_commandline()"
    return [sys.executable, "-c", horovodrun, "-np", str(ranks), "--gloo", "--network-interface", "lo"]


def _wait(processes: list[_Process], deadline: float) -> bool:
    """Waits for all processes; True if some still run at the deadline, or too long after one failed."""
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
    """Has the ranks print their stacks, then kills them and their launcher."""
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
    # The number of a rank that has ended may be another process's by now.
    return str(folder) in _read(pathlib.Path(f"/proc/{pid}/cmdline"))


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
        # What a rank wrote before its output went to its file, and what the launcher has to say.
        outputs[index] += _read(folder / f"started.{index}")
    results = [None] * ranks
    for rank in range(ranks):
        path = folder / f"result.{rank}"
        if path.exists():
            results[rank] = pickle.loads(path.read_bytes())
    return Job(results, outputs, by_rank, next((code for code in codes if code), 0), timed_out, seconds)


def _call_checks(path: str, names: list[str]) -> dict[str, Any]:
    module = _module(path)
    results = {}
    for name in names:
        print(f"check {name}", flush=True)
        results[name] = getattr(module, name)()
    return results


@functools.cache
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
    """A rank: runs the job in `folder`, with its output and result in files there."""
    import faulthandler

    rank = _rank_from_environment()
    (folder / f"pid.{rank}").write_text(str(os.getpid()))
    with open(folder / f"output.{rank}", "ab", buffering=0) as output:
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
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
    # Renamed, so that a rank that dies while it writes leaves no half result.
    (folder / f"writing.{rank}").write_bytes(pickle.dumps(result))
    os.replace(folder / f"writing.{rank}", folder / f"result.{rank}")


if __name__ == "__main__":
    _main(pathlib.Path(sys.argv[1]))
