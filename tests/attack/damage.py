"""Damages files of checkpoints. A restore must give exactly the saved state, or fail and name the file."""

from __future__ import annotations

import os
import random
import shutil
from collections import Counter
from pathlib import Path

import numpy as np
import tensorflow as tf

import harness
import killed_training
from attack.scenario import Scenario
from same_length import zip_equal
from sparse_operation_kit.checkpoint import CheckpointError, open_checkpoint, problems

_SAVES = 3
_DAMAGES = 8


def _bytes(draw: random.Random, count: int) -> bytes:
    return draw.getrandbits(8 * count).to_bytes(count, "little")


def damage(draw: random.Random, path: Path, others: list[Path]) -> None:
    """Damages a file in a random way."""
    data = path.read_bytes()
    at = draw.randrange(len(data)) if data else 0
    kinds = ["flip", "flip", "set", "cut", "grow", "remove", "swap", "folder", "link", "sparse"]
    if not path.name.startswith(f"model-{_SAVES}."):
        # TensorFlow itself, which reads the others, waits for the writer of a pipe.
        kinds.append("pipe")
    how = draw.choice(kinds)
    if how == "flip":
        path.write_bytes(
            data[:at] + bytes([data[at] ^ 1 << draw.randrange(8)]) + data[at + 1 :] if data else b"x"
        )
    elif how == "set":
        piece = _bytes(draw, draw.randint(1, 600))
        path.write_bytes(data[:at] + piece[: len(data) - at] + data[at + len(piece) :])
    elif how == "cut":
        os.truncate(path, at)
    elif how == "grow":
        path.write_bytes(data + _bytes(draw, draw.randint(1, 100)))
    elif how == "swap":
        other = draw.choice(others)
        path.write_bytes(other.read_bytes())
        other.write_bytes(data)
    elif how == "sparse":
        os.truncate(path, 1 << 40)
    else:
        path.unlink()
        if how == "folder":
            path.mkdir()
        elif how == "pipe":
            os.mkfifo(path)
        elif how == "link":
            path.symlink_to(draw.choice(["/dev/zero", "nowhere", "."]))


def _files(folder: Path) -> list[Path]:
    return sorted(path for end in ("*index", "*.data-*") for path in folder.glob(end) if path.is_file())


def _attempt(draw: random.Random, folder: Path) -> Counter:
    outcomes: Counter = Counter()
    good = folder / "good"
    with harness.graph_and_session() as session:
        model = killed_training.Model()
        harness.initialize(session)
        saver, incremental = model.saver, model.incremental
        for step in range(_SAVES):
            session.run(model.train, {model.keys: killed_training.touched(step)})
            (incremental if step else saver).save(session, str(good / "model"), global_step=step + 1)
        for number in range(_DAMAGES):
            damaged = Path(shutil.copytree(good, folder / str(number)))
            files = _files(damaged)
            before = {path: path.read_bytes() for path in files}
            damage(draw, draw.choice(files), files)
            changed = any(
                not path.is_file() or path.stat().st_size != len(data) or path.read_bytes() != data
                for path, data in before.items()
            )
            prefix = str(damaged / f"model-{_SAVES}")
            outcomes[_restore(session, model, prefix)] += 1
            _assert_verified(prefix, changed)
            shutil.rmtree(damaged)
            # A good checkpoint can be restored after any failure.
            assert _restore(session, model, str(good / f"model-{_SAVES}")) == "restored exactly"
    return outcomes


def _restore(session: tf.compat.v1.Session, model: killed_training.Model, prefix: str) -> str:
    keys = {model.keys: np.arange(killed_training.KEYS)}
    session.run(model.train, {model.keys: killed_training.touched(9)})
    before = session.run(model.rows, keys)
    try:
        model.saver.restore(session, prefix)
        outcome, wanted = "restored exactly", [killed_training.expected(_SAVES)] * len(before)
    except (tf.errors.OpError, ValueError) as error:
        assert str(Path(prefix).parent) in str(error), error
        outcome, wanted = "refused by name", before
    for rows, right in zip_equal(session.run(model.rows, keys), wanted):
        np.testing.assert_array_equal(rows, right)
    return outcome


def _assert_verified(prefix: str, changed: bool) -> None:
    try:
        found = list(problems(open_checkpoint(prefix)))
    except CheckpointError as error:
        found = [str(error)]
    # Files outside of the last checkpoint's chain are not checked.
    assert changed or not found, found


SCENARIO = Scenario(
    "damage", "a file of a chain of checkpoints damaged, restored and verified", _attempt, 120
)
