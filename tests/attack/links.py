"""Puts links where a save, a restore or the command line might follow them. Their targets must not change."""

from __future__ import annotations

import os
import random
import shutil
from collections import Counter
from pathlib import Path

import numpy as np
import tensorflow as tf

import harness
import sparse_operation_kit as sok
from attack.scenario import Scenario
from sparse_operation_kit.checkpoint import cli

_SAVES = 6
_REFUSALS = (
    tf.errors.FailedPreconditionError,
    tf.errors.NotFoundError,
    tf.errors.DataLossError,
    tf.errors.InvalidArgumentError,
    ValueError,
)


def _contents(folder: Path) -> dict[Path, bytes | None]:
    return {path: path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


def _place(draw: random.Random, directory: Path, base: str) -> Path:
    """A place for a link: a path that is used by the save of `base`, or the removal of tables after it."""
    leaf = f"table-{draw.randrange(2**64):016x}"
    unfinished = directory / f"{base}.sok" / f"{leaf}.unfinished"
    return draw.choice(
        [
            directory / f"{base}.sok",
            directory / f"{base}.sok-{leaf}.manifest.json",
            directory / f"model-0.sok-{leaf}.manifest.json",
            directory / f"model-0.sok-{leaf}.shard-00000.keys.npy",
            directory / "model-0.sok",
            directory / "model-0.sok" / leaf,
            directory / f"{base}.sok" / leaf,
            unfinished,
            unfinished / "shard-00000",
            unfinished / "shard-00000" / "keys.npy",
            directory / "model-0.sok" / f"{leaf}.unfinished" / "deep",
        ]
    )


def _put_link(draw: random.Random, place: Path, victim: Path) -> None:
    """Puts a link to something in `victim` at `place`, if nothing is there and no link is on the way."""
    if os.path.lexists(place) or any(parent.is_symlink() for parent in place.parents):
        return
    place.parent.mkdir(parents=True, exist_ok=True)
    place.symlink_to(draw.choice([victim, victim / "folder", victim / "file"]))


def _attempt(draw: random.Random, folder: Path) -> Counter:
    outcomes: Counter = Counter()
    victim = folder / "victim"
    (victim / "folder" / "deep").mkdir(parents=True)
    for name in ("file", "manifest.json", "folder/keys.npy", "folder/deep/file"):
        (victim / name).write_text("must stay")
    before = _contents(victim)
    with harness.graph_and_session() as session:
        table = sok.EmbeddingVariable("table", dim=2)
        rows = tf.nn.embedding_lookup(table, np.arange(50))
        saver = tf.compat.v1.train.Saver(max_to_keep=2)
        harness.initialize(session)
        wanted = session.run(rows)
        directory = folder / "checkpoints"
        for step in range(1, _SAVES):
            place = _place(draw, directory, f"model-{step}")
            _put_link(draw, place, victim)
            try:
                prefix = saver.save(session, str(directory / "model"), global_step=step)
                saver.restore(session, prefix)
                outcomes["saved and restored"] += 1
            except _REFUSALS:
                outcomes["refused"] += 1
            np.testing.assert_array_equal(session.run(rows), wanted)
            assert _contents(victim) == before, f"{place} led a save to its target"
            cli.main([draw.choice(["verify", "inspect"]), f"{directory}/model-{step}"])
            _put_link(draw, folder / "made" / f"compacted-{step}.sok", victim)
            _put_link(draw, folder / "made" / f"exported-{step}", victim)
            cli.main(["compact", f"{directory}/model-{step}", "--to", f"{folder}/made/compacted-{step}"])
            exported = f"{folder}/made/exported-{step}"
            cli.main(["export", f"{directory}/model-{step}", "--format", "npy", "--to", exported])
            assert _contents(victim) == before, "a link led the command line to its target"
            if draw.random() < 0.5 and directory.exists():
                shutil.rmtree(directory)
    return outcomes


SCENARIO = Scenario("links", "saves into directories with links to others' files", _attempt)
