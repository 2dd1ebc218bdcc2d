"""Measures one set of tables: builds both sides and the engine, and checks that they agree."""

from __future__ import annotations

import contextlib
import dataclasses
import pathlib
from collections.abc import Iterator, Sequence

import tensorflow as tf

import sparse_operation_kit as sok
from bench import gradients, ids, machine
from bench.agreement import check_agreement
from bench.axes import Axes, Bags, Tables
from bench.device_copy import DeviceCopy
from bench.engine_process import EngineProcess
from bench.inputs import RotatingBatches
from bench.measuring_process import ProcessContender
from bench.report import Peer, Row
from bench.session_config import session_config
from bench.sides import SokSide, TensorFlowSide
from bench.targets import Targets
from bench.timing import AfterwardsContender, CallContender, Contender, Timing, measure

WHATS = ("forward", "lookup", "step")
_COPY = "memory copy"
_RUN = "session.run alone"


@dataclasses.dataclass(frozen=True)
class _Workload:
    """One kind of bags: its batches, and the lookups of each side."""

    bags: Bags
    batches: list[ids.Batch]
    rotation: RotatingBatches
    ours: Targets
    peers: dict[str, Targets]  # by the TensorFlow op that looks up

    @property
    def kind(self) -> str:
        return _kind(self.bags)


def _kind(bags: Bags) -> str:
    """The kind of lookup: "gather", without bags, if each bag has one id; else "sparse"."""
    return "gather" if bags.hotness == 1 else "sparse"


def run(
    axes: Axes, tables: Tables, program: pathlib.Path | None, folder: pathlib.Path, on_gpu: bool
) -> list[Row]:
    """Measures all kinds of bags on one set of tables.

    Args:
      axes: The settings, with one number of threads, that of this process.
      tables: The tables.
      program: The bare engine's program, or None to leave out the engine.
      folder: A folder for the files of ids for that program.
      on_gpu: Whether both sides are on the GPU, or on the CPU.
    """
    batch_sets = [
        ids.make_batches(bags, tables.features, tables.rows_per_table, axes.batches, axes.seed)
        for bags in axes.all_bags()
    ]
    with tf.Graph().as_default(), _session(axes, on_gpu) as session:
        ours, theirs = SokSide(tables), TensorFlowSide(tables)
        output_gradients = [
            gradients.of_feature(axes.seed, feature, axes.batch, tables.dim)
            for feature in range(tables.features)
        ]
        workloads = [
            _workload(bags, RotatingBatches(batches, output_gradients, on_gpu), batches, ours, theirs)
            for bags, batches in zip(axes.all_bags(), batch_sets)
        ]
        copy = DeviceCopy(_COPY, session) if on_gpu else machine.MemoryCopy(_COPY, axes.threads[0])
        session.run(tf.compat.v1.global_variables_initializer())
        ours.copy_rows(session, theirs)
        for workload in workloads:
            check_agreement(
                session,
                workload.rotation,
                axes.batches,
                workload.ours,
                workload.peers["sparse"],
                workload.peers,
            )
        with _engine(axes, tables, batch_sets, program, folder) as engine:
            return [
                row
                for number, workload in enumerate(workloads)
                for row in _measure(axes, tables, workload, session, copy, engine, number)
            ]


@contextlib.contextmanager
def _session(axes: Axes, on_gpu: bool) -> Iterator[tf.compat.v1.Session]:
    with tf.compat.v1.Session(config=session_config(axes.threads[0], on_gpu)) as session:
        session.run(sok.Init(global_batch_size=axes.batch, seed=axes.seed))
        yield session


def _workload(
    bags: Bags, rotation: RotatingBatches, batches: list[ids.Batch], ours: SokSide, theirs: TensorFlowSide
) -> _Workload:
    kinds = ["sparse"] if _kind(bags) == "sparse" else ["gather", "sparse"]
    return _Workload(
        bags,
        batches,
        rotation,
        ours.targets(_kind(bags), rotation.features, rotation.constants),
        {kind: theirs.targets(kind, rotation.features, rotation.constants) for kind in kinds},
    )


@contextlib.contextmanager
def _engine(
    axes: Axes,
    tables: Tables,
    batch_sets: Sequence[list[ids.Batch]],
    program: pathlib.Path | None,
    folder: pathlib.Path,
) -> Iterator[EngineProcess | None]:
    if program is None:
        yield None
        return
    files = []
    for number, (bags, batches) in enumerate(zip(axes.all_bags(), batch_sets)):
        path = folder / f"ids_{number}"
        ids.write_batches(batches, path)
        files.append(("dense" if _kind(bags) == "gather" else "mean", path))
    with EngineProcess(program, tables, axes.batch, axes.batches, axes.threads[0], files) as engine:
        engine.wait_until_ready()
        yield engine


def _measure(
    axes: Axes,
    tables: Tables,
    workload: _Workload,
    session: tf.compat.v1.Session,
    copy: machine.MemoryCopy | DeviceCopy,
    engine: EngineProcess | None,
    number: int,
) -> list[Row]:
    # Measured after a step, which leaves little of TensorFlow in the caches, because each step starts like
    # that.
    run = AfterwardsContender(
        _RUN,
        lambda: session.run(workload.ours.step),
        lambda: session.run([workload.rotation.next_batch]),
    )
    contenders: list[Contender] = [copy, run]
    for what in WHATS:
        contenders.append(_op(f"sok {what}", session, getattr(workload.ours, what)))
        for kind, targets in workload.peers.items():
            if what != "forward":  # TensorFlow's lookup is the same with and without training
                contenders.append(_op(f"{kind} {what}", session, getattr(targets, what)))
        if engine is not None:
            contenders.append(ProcessContender(f"engine {what}", engine, number, what))
    timings = measure(contenders, axes.rounds)
    bandwidth = copy.gigabytes_per_second(timings[_COPY].minimum)
    return [_row(axes, tables, workload, what, timings, bandwidth) for what in WHATS]


def _op(name: str, session: tf.compat.v1.Session, ops: Sequence[tf.Operation]) -> CallContender:
    return CallContender(name, lambda: session.run(ops))


def _row(
    axes: Axes, tables: Tables, workload: _Workload, what: str, timings: dict[str, Timing], bandwidth: float
) -> Row:
    lookup = "lookup" if what == "forward" else what
    names = {"tf.gather": f"gather {lookup}", "tf sparse": f"sparse {lookup}"}
    engine = timings.get(f"engine {what}")
    unique = ids.unique_per_step(workload.batches)
    id_count = ids.ids_per_step(workload.batches)
    return Row(
        threads=axes.threads[0],
        features=tables.features,
        batch=axes.batch,
        dim=tables.dim,
        rows=tables.features * tables.rows_per_table,
        hotness=workload.bags.hotness,
        exponent=workload.bags.exponent,
        optimizer=tables.optimizer,
        what=what,
        ids=id_count,
        unique=unique,
        megabytes=tables.bytes_moved(what, axes.batch, id_count, unique) / 1e6,
        copy_gb_per_s=bandwidth,
        run_alone=timings[_RUN],
        timing=timings[f"sok {what}"],
        peers=tuple(Peer(name, timings[key]) for name, key in names.items() if key in timings),
        engine=None if engine is None else Peer("engine", engine),
    )
