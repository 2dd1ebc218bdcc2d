"""Measures the engine's parts, each in the same rounds as the code it is compared with and a memory copy."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib
import sys
from collections.abc import Iterator, Sequence

from bench import ids, machine
from bench.axes import BYTES_PER_FLOAT, Bags, Tables
from bench.engine_process import EngineProcess
from bench.measuring_process import MeasuringProcess, ProcessContender
from bench.parts_report import BARE, Entry, Row
from bench.timing import Contender, Timing, measure

_COPY = "memory copy"
_HAND_OVER = "a line to the other core"
_HAND_OVERS = 20_000  # round trips, so many that the start of the other thread does not matter
_LINES = (32, 64, 128, 256)  # cache lines in flight in the bare loops
_CACHE_LINE = 64
_INDEX_IDS = 1 << 20  # ids per call
_GATHERED_IDS = 26 * 4096
# Batches that calls rotate over, so many that a batch's rows have left the caches before it is used again.
_BATCHES, _GATHERED_BATCHES = 4, 16


@dataclasses.dataclass(frozen=True)
class Run:
    """The settings of all parts: the program parts_benchmark, a folder for ids, rounds and seed."""

    program: pathlib.Path
    folder: pathlib.Path
    rounds: int
    seed: int

    def dedup(self, count: int, distinct: int, exponent: float, threads: Sequence[int]) -> list[Row]:
        """Measures dedup of batches of `count` ids, drawn from `distinct`, compared with `tf.unique`."""
        batches, path = self._batches(Bags(count, 1, exponent), distinct, _BATCHES)
        unique = ids.unique_per_step(batches)
        # Reads the ids; writes the distinct ids, and for each id the index of its distinct id.
        moved = 8 * count + 8 * unique + 4 * count
        rows = []
        for number in threads:
            tables = Tables(1, distinct, 1, "sgd")
            with self._engine(tables, count, number, _BATCHES, path) as engine:
                with self._tensorflow(path, number) as other:
                    contenders = {
                        "tf.unique": ProcessContender("tf.unique", other, 0, "unique"),
                        "a TensorFlow op alone": ProcessContender(
                            "a TensorFlow op alone", other, 0, "identity"
                        ),
                        "engine": ProcessContender("engine", engine, 0, "dedup"),
                    }
                    title = f"{count} ids, {_skew(exponent)}, {unique / count:.0%} distinct"
                    rows.append(
                        self._row(
                            "dedup", title, number, count, moved, engine, contenders, ["tf.unique"], goal=1.0
                        )
                    )
        return rows

    def index(self, keys: int) -> Row:
        """Measures lookups of present ids in an index of `keys`, compared with a bare linear probe."""
        _, path = self._batches(Bags(_INDEX_IDS, 1, 0.0), keys, _BATCHES)
        # For each id, reads the id and the cache line of its slot, and writes its row number.
        moved = (8 + _CACHE_LINE + 8) * _INDEX_IDS
        with self._engine(Tables(1, keys, 1, "sgd"), _INDEX_IDS, 1, _BATCHES, path) as engine:
            bare = _bare("probe", engine)
            contenders = {**bare, "engine": ProcessContender("engine", engine, 0, "find")}
            title = f"{keys} ids in it"
            return self._row("index", title, 1, _INDEX_IDS, moved, engine, contenders, list(bare), 0.8)

    def gather(
        self, dim: int, table_bytes: int, hotness: int, exponent: float, threads: Sequence[int]
    ) -> list[Row]:
        """Measures gathering and pooling of rows, compared with bare loops over known positions."""
        row_bytes = dim * BYTES_PER_FLOAT
        tables = Tables(1, max(1, table_bytes // row_bytes), dim, "sgd")
        rows = []
        for part, per_bag in (("gather", 1), ("pool", hotness)):
            bags = max(1, _GATHERED_IDS // per_bag)
            batches, path = self._batches(
                Bags(bags, per_bag, exponent), tables.rows_per_table, _GATHERED_BATCHES
            )
            count = ids.ids_per_step(batches)
            moved = tables.bytes_moved("forward", bags, count, ids.unique_per_step(batches))
            for number in threads:
                with self._engine(tables, bags, number, _GATHERED_BATCHES, path) as engine:
                    bare = _bare(part, engine)
                    contenders = {**bare, "engine": ProcessContender("engine", engine, 0, part)}
                    title = f"dim {dim}, {table_bytes / 1e9:g} GB, {per_bag} ids per bag, {_skew(exponent)}"
                    rows.append(
                        self._row(part, title, number, count, moved, engine, contenders, list(bare), 0.8)
                    )
        return rows

    def _batches(self, bags: Bags, rows: int, number: int) -> tuple[list[ids.Batch], pathlib.Path]:
        batches = ids.make_batches(bags, 1, rows, number, self.seed)
        path = self.folder / "ids"
        ids.write_batches(batches, path)
        return batches, path

    @contextlib.contextmanager
    def _engine(
        self, tables: Tables, bags: int, threads: int, batches: int, path: pathlib.Path
    ) -> Iterator[EngineProcess]:
        with EngineProcess(self.program, tables, bags, batches, threads, [("mean", path)]) as engine:
            engine.wait_until_ready()
            yield engine

    @contextlib.contextmanager
    def _tensorflow(self, path: pathlib.Path, threads: int) -> Iterator[MeasuringProcess]:
        command = [sys.executable, "-m", "bench.unique_program", str(path), str(_BATCHES), str(threads)]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "TF_CPP_MIN_LOG_LEVEL": "2"}
        log = self.folder / "tensorflow.log"
        with MeasuringProcess("tf.unique", command, environment, log) as process:
            process.wait_until_ready()
            yield process

    def _row(
        self,
        part: str,
        title: str,
        threads: int,
        count: float,
        moved: float,
        engine: EngineProcess,
        contenders: dict[str, Contender],
        held_to: Sequence[str],
        goal: float,
    ) -> Row:
        print(f"{part}, {title}, threads: {threads}", file=sys.stderr, flush=True)
        copy = machine.MemoryCopy(_COPY, threads)
        machines: list[Contender] = [copy]
        if threads > 1:
            machines.append(ProcessContender(_HAND_OVER, engine, 0, f"hand_over:{_HAND_OVERS}"))
        timings = measure([*machines, *contenders.values()], self.rounds)
        entries = tuple(
            Entry(name, timings[contenders[name].name]) for name in contenders if name != "engine"
        )
        bandwidth = copy.gigabytes_per_second(timings[_COPY].minimum)
        best = min(held_to, key=lambda name: timings[contenders[name].name].median)
        return Row(
            part,
            title,
            threads,
            count,
            moved / 1e6,
            bandwidth,
            _one_way(timings[_HAND_OVER]) if threads > 1 else None,
            timings["engine"],
            entries,
            best,
            goal,
        )


def _one_way(hand_overs: Timing) -> tuple[float, float]:
    """Median and minimum, in nanoseconds, of one transfer of a cache line in one direction."""
    each = 1e6 / (2 * _HAND_OVERS)
    return hand_overs.median * each, hand_overs.minimum * each


def _bare(part: str, engine: EngineProcess) -> dict[str, Contender]:
    names = {f"{BARE}, {lines} lines in flight": f"{part}:{lines}" for lines in _LINES}
    return {name: ProcessContender(name, engine, 0, what) for name, what in names.items()}


def _skew(exponent: float) -> str:
    return f"Zipf {exponent:g}" if exponent else "uniform"
