"""Measures the time and memory of saving and restoring a table, compared with the disk's speed.

For each size, a process trains a table of that many bytes (weights and LazyAdam's slots) and saves it with
tf.compat.v1.train.Saver; another process restores it. `disk` is the speed of `dd` in the same run, which
writes and syncs, or reads, as many bytes without the page cache. Files are dropped from the cache before they
are read. `memory` is the speed of writing to as many bytes of new memory, which a restore must also do. `MiB
above` is the peak of the process's resident set, less its size before a save or after a restore. `--help`
lists the flags.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence

from bench import axes, disk, machine, new_memory

_COLUMNS = ("GiB of rows", "rows", "save s", "GB/s", "disk", "save / disk", "MiB above")
_COLUMNS += ("restore s", "GB/s", "disk", "memory", "MiB above")


def main(arguments: Sequence[str]) -> int:
    """Runs the program; returns its exit status."""
    flags = _parser().parse_args(arguments)
    print(json.dumps(machine.describe()))
    print("| " + " | ".join(_COLUMNS) + " |")
    print("|" + "---|" * len(_COLUMNS))
    for gibibytes in flags.gib:
        folder = pathlib.Path(tempfile.mkdtemp(prefix="sok-checkpoint-", dir=flags.folder))
        try:
            print(_row(gibibytes, flags, folder), flush=True)
        finally:
            shutil.rmtree(folder)
    return 0


def _row(gibibytes: float, flags: argparse.Namespace, folder: pathlib.Path) -> str:
    saved = _run("save", gibibytes, flags, folder)
    written = disk.write_seconds(folder / "dd", saved["bytes"])
    disk.drop_from_cache(folder)
    read = disk.read_seconds(folder / "dd")
    (folder / "dd").unlink()
    touched = new_memory.touch_seconds(saved["bytes"])
    restored = _run("restore", gibibytes, flags, folder)
    billions = saved["bytes"] / 1e9
    cells = [f"{gibibytes:g}", f"{saved['rows']}"]
    cells += [f"{saved['seconds']:.2f}", f"{billions / saved['seconds']:.2f}", f"{billions / written:.2f}"]
    cells += [f"{written / saved['seconds']:.2f}", f"{saved['above'] / 2**20:.1f}"]
    cells += [f"{restored['seconds']:.2f}", f"{billions / restored['seconds']:.2f}"]
    cells += [f"{billions / read:.2f}", f"{billions / touched:.2f}", f"{restored['above'] / 2**20:.1f}"]
    return "| " + " | ".join(cells) + " |"


def _run(stage: str, gibibytes: float, flags: argparse.Namespace, folder: pathlib.Path) -> dict:
    command = [sys.executable, "-m", "bench.checkpoint_program", stage, str(folder)]
    command += [f"--gib={gibibytes}", f"--dim={flags.dim}"]
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=pathlib.Path(__file__).absolute().parent, check=False
    )
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr[-4000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add(
        "--gib",
        type=axes.list_of(axes.positive),
        default=(1.0, 4.0, 8.0),
        help="sizes of tables: GiB of rows with their slots",
    )
    add("--dim", type=axes.at_least_one, default=64, help="floats per row")
    add("--folder", default=None, help="where to write; by default the system's folder for temporary files")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
