"""Runs scenarios for a while, each try in its own process; reports what was tried and what was lost."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import forked
from attack import damage, kills, paths, savers
from attack.scenario import Scenario

SCENARIOS = tuple(module.SCENARIO for module in (kills, damage, paths, savers))


def run(
    scenarios: Sequence[Scenario], seconds: float, seed: int, tell: Callable[[str], None]
) -> dict[str, Counter]:
    """Runs the scenarios in turn, each at least once, until the time is over.

    This process must have imported TensorFlow, but not used it. If a try loses something, its folder is kept,
    and its seed is printed, with which `run` repeats it.

    Returns:
      For each scenario, counts of the outcomes; "tries" and "lost" count tries.
    """
    found = {scenario.name: Counter(tries=0, lost=0) for scenario in scenarios}
    end = time.monotonic() + seconds
    turn = 0
    while turn == 0 or time.monotonic() < end:
        for scenario in scenarios:
            if turn > 0 and time.monotonic() >= end:
                break
            outcomes, log = _try(scenario, seed + turn)
            found[scenario.name].update(tries=1, lost=int(outcomes is None))
            found[scenario.name].update(outcomes or {})
            if outcomes is None:
                tell(f"LOST in {scenario.name}, --seed {seed + turn}: see {log}")
        turn += 1
    return found


def _try(scenario: Scenario, seed: int) -> tuple[Counter | None, Path]:
    """Runs one try; returns its outcomes (None if something was lost) and its log."""
    folder = Path(tempfile.mkdtemp(prefix=f"attack-{scenario.name}-"))
    log, result = folder / "log", folder / "result"
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        _become_try(scenario, seed, folder)
    outcomes = None
    if _wait(pid, scenario.seconds) == 0:
        outcomes = Counter(json.loads(result.read_text()))
        shutil.rmtree(folder, ignore_errors=True)
    return outcomes, log


def _become_try(scenario: Scenario, seed: int, folder: Path) -> None:
    """Runs a try in this process, in its own process group, and exits."""
    os.setpgid(0, 0)
    with open(folder / "log", "wb") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    status = 1
    try:
        (folder / "work").mkdir()
        outcomes = scenario.attempt(random.Random(f"{scenario.name} {seed}"), folder / "work")
        (folder / "result").write_text(json.dumps(outcomes))
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _wait(pid: int, seconds: float) -> int:
    """The exit status of a try, or -N if signal N ended it. Kills the process group of a try that hangs."""
    end = time.monotonic() + seconds
    while True:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            break
        if time.monotonic() > end:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)
        time.sleep(0.02)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
    return forked.exit_code(status)


def summary(scenarios: Sequence[Scenario], found: dict[str, Counter]) -> list[str]:
    """Lines that tell what was tried and what was lost."""
    lines = []
    for scenario in scenarios:
        counts = dict(found[scenario.name])
        tries, lost = counts.pop("tries"), counts.pop("lost")
        outcomes = ", ".join(f"{count:,} {what}" for what, count in sorted(counts.items()))
        lines.append(f"{scenario.name:<10} {scenario.what}")
        lines.append(f"{'':<10} {tries:,} tries: {outcomes or 'none ended well'}; lost: {lost or 'nothing'}")
    total = sum(counts["lost"] for counts in found.values())
    lines.append(f"{sum(counts['tries'] for counts in found.values()):,} tries; lost: {total or 'nothing'}")
    return lines
