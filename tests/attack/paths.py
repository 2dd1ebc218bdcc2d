"""Malicious paths, and obstacles at paths. A save must succeed, or fail with a message and change nothing."""

from __future__ import annotations

import os
import random
from collections import Counter
from pathlib import Path

import numpy as np
import tensorflow as tf

import harness
import sparse_operation_kit as sok
from attack.scenario import Scenario
from sparse_operation_kit.checkpoint import cli

_TRIES = 8
# Without "*", "?", "[" and "\\", because TensorFlow treats a prefix with them as a pattern.
_PIECES = "model|..|.||-1|~|'|$(touch x)|-rf|größe| |%00|model.sok-index|model-7.index"
_PIECES = [*_PIECES.split("|"), *"x\0y|\0|a\0/../b|\x1b]0;|\n|\u202e".split("|"), "a" * 300, "a/" * 3000]
# Ends of names of a checkpoint's files.
_OWN_FILES = [".index", ".data-00000-of-00001", ".sok-index", ".sok-0123456789abcdef.part-0.index"]
# Allowed errors of a save.
_REFUSALS = (
    tf.errors.InvalidArgumentError,
    tf.errors.FailedPreconditionError,
    tf.errors.NotFoundError,
    ValueError,
)


def put_something(draw: random.Random, path: Path) -> None:
    """Puts something that is not a checkpoint at a free path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if os.path.lexists(path):
        return
    kind = draw.choice(["file", "pipe", "folder", "dangling link", "device", "nested"])
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "dangling link":
        path.symlink_to("nowhere")
    elif kind == "device":
        path.symlink_to("/dev/zero")
    else:
        path.write_bytes(b"[" * 200_000 if kind == "nested" else b"")


def _attempt(draw: random.Random, folder: Path) -> Counter:
    outcomes: Counter = Counter()
    others = folder / "others"
    others.mkdir()
    (others / "file").write_text("must stay")
    with harness.graph_and_session() as session:
        table = sok.EmbeddingVariable("table", dim=2)
        rows = tf.nn.embedding_lookup(table, np.arange(50))
        name = draw.choice(
            ["table", "it\x1b[2Jems", "a/b", "..", "\u202e", "x" * 400, "größe", "%2F", "new\nline"]
        )
        savers = [tf.compat.v1.train.Saver(names) for names in (None, {name: table}, {f"{name}\0": table})]
        harness.initialize(session)
        wanted = session.run(rows)
        for number in range(_TRIES):
            outcomes[_save(draw, session, draw.choice(savers), folder / str(number))] += 1
        # Then normal saves, in a folder where the old checkpoints are not checkpoints.
        for step in range(3):
            base = f"{folder}/usual/model-{step}"
            put_something(draw, Path(base + draw.choice(_OWN_FILES)))
        prefix = savers[0].save(session, str(folder / "usual" / "model"), global_step=9)
        savers[0].restore(session, prefix)
        np.testing.assert_array_equal(session.run(rows), wanted)
        assert cli.main(["verify", prefix]) == 0
    assert [path.name for path in others.iterdir()] == ["file"] and (
        others / "file"
    ).read_text() == "must stay"
    return outcomes


def _save(
    draw: random.Random, session: tf.compat.v1.Session, saver: tf.compat.v1.train.Saver, folder: Path
) -> str:
    folder.mkdir()
    prefix = "/".join([str(folder), *draw.choices(_PIECES, k=draw.randint(1, 3))])
    if not os.path.abspath(prefix).startswith(str(folder.parent)):
        prefix = f"{folder}/model"
    if draw.random() < 0.5 and "\0" not in prefix and len(prefix) < 200:
        put_something(draw, Path(prefix + draw.choice(["", ".sok.lock", *_OWN_FILES])))
    try:
        path = saver.save(session, prefix, write_meta_graph=False, write_state=False)
    except _REFUSALS as error:
        message = str(error)
        # TensorFlow's own messages contain the raw path.
        assert "Embedding variable" not in message or not {"\0", "\x1b", "\u202e"} & set(message), message
        return "refused"
    saver.restore(session, path)
    return "saved and restored"


SCENARIO = Scenario(
    "paths", "saves to hostile prefixes, under hostile names, with things in the way", _attempt, 60
)
