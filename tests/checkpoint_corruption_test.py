"""Damaged checkpoints: `verify` finds every change of a file, and readers never return wrong rows."""

import shutil

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import checkpoint_files
from checkpoint_files import COUNTER, History
from sparse_operation_kit.checkpoint import (
    CheckpointError,
    find_row,
    open_checkpoint,
    problems,
    row_blocks,
    rows,
)


@pytest.fixture(scope="module")
def chain(tmp_path_factory):
    """A table's chain of three checkpoints, and another table's chain with the same file names and sizes."""
    directory = tmp_path_factory.mktemp("chain")
    description = checkpoint_files.table_description(admission=COUNTER)
    histories = [
        History(directory / name, np.random.default_rng(5), table=description) for name in ("ours", "theirs")
    ]
    for step in range(3):
        for made in histories:
            made.train(60)
            # Every byte of the files matters: nothing is between arrays.
            made.save(f"model.ckpt-{step}", delta=step > 0, alignment=1)
        for row in histories[1].rows.values():
            row["values"] += np.float32(1)
    return histories


def files(directory):
    return sorted(path for path in directory.rglob("*") if path.is_file())


def damage(draw, target, theirs):
    """Damages the files below `target` in a random way; returns whether anything changed."""
    path = draw(st.sampled_from(files(target)))
    data = path.read_bytes()
    how = draw(st.sampled_from(["flip", "set", "zero", "cut", "grow", "remove", "swap", "foreign"]))
    if how == "flip":
        position = draw(st.integers(0, len(data) * 8 - 1))
        changed = bytearray(data)
        changed[position // 8] ^= 1 << position % 8
    elif how in ("set", "zero"):
        begin = draw(st.integers(0, len(data) - 1))
        length = draw(st.integers(1, 600))
        piece = bytes(length) if how == "zero" else draw(st.binary(min_size=length, max_size=length))
        changed = data[:begin] + piece[: len(data) - begin] + data[begin + length :]
    elif how == "cut":
        changed = data[: draw(st.integers(0, len(data) - 1))]
    elif how == "grow":
        changed = data + draw(st.binary(min_size=1, max_size=10))
    elif how == "swap":
        other = draw(st.sampled_from(files(target)))
        changed = other.read_bytes()
        other.write_bytes(data)
    elif how == "foreign":
        changed = (theirs / path.relative_to(target)).read_bytes()
    else:
        path.unlink()
        return True
    path.write_bytes(changed)
    # What a data file has after its last tensor has no meaning.
    return bytes(changed) != data and not (how == "grow" and ".data-" in path.name)


@settings(max_examples=250, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_random_corruptions(chain, tmp_path_factory, data):
    ours, theirs = chain
    target = tmp_path_factory.mktemp("damaged") / "copy"
    try:
        shutil.copytree(ours.directory, target)
        assume(damage(data.draw, target, theirs.directory))
        saved = ours.saved[-1]
        last = target / saved.prefix.name
        assert _found(last), "verify found nothing"
        _read_or_refuse(last, saved.rows)
        _find_or_refuse(last, list(saved.rows)[:8], saved.rows)
    finally:
        shutil.rmtree(target.parent)


def _found(prefix):
    try:
        return list(problems(open_checkpoint(prefix)))
    except CheckpointError as error:
        return [str(error)]


def _read_or_refuse(prefix, wanted):
    """Checks that all blocks before an error are correct, and that without an error none is missing."""
    found = set()
    try:
        table = open_checkpoint(prefix).tables[0].open()
        for block in row_blocks(table, rows.columns_of(table)):
            for index, key in enumerate(block.keys.tolist()):
                found.add(key)
                for name, array in block.columns.items():
                    np.testing.assert_array_equal(array[index], wanted[key][name])
    except CheckpointError:
        return
    assert found == wanted.keys()


def _find_or_refuse(prefix, keys, wanted):
    """Checks that each key has its row or is refused. Opens the table once, which parses its entries."""
    try:
        table = open_checkpoint(prefix).tables[0].open()
    except CheckpointError:
        return
    for key in keys:
        try:
            found = find_row(table, key)
        except CheckpointError:
            continue
        for name, value in wanted[key].items():
            np.testing.assert_array_equal(found[name], value)
