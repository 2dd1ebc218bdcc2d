# Tags: slow, old_version
# Not on GPUs: a program; the tests gpu_* have one
"""examples/deeprec/zoo: each program learns in a few steps, and does what its defaults say."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
import tensorflow as tf

import foreign_checkpoints
import saved_files
from example_support import EXAMPLES
from harness import without_optimizations
from sparse_operation_kit.checkpoint import cli as checkpoint_command
from sparse_operation_kit.checkpoint import compare, open_checkpoint

if not hasattr(tf.compat.v1, "estimator"):
    pytest.skip(f"TensorFlow {tf.__version__} has no Estimator", allow_module_level=True)

sys.path.insert(0, str(EXAMPLES / "deeprec" / "zoo"))

PROGRAMS = ("wide_and_deep", "dlrm", "deepfm", "dcn_v2", "din", "dssm", "mmoe", "esmm")
# Two passes over 960 training samples.
SHORT = ["--samples", "1200", "--steps", "30", "--batch_size", "64", "--embedding_dim", "8"]
# How many columns are adaptive with --adaptive_emb.
ADAPTIVE_COLUMNS = {
    "wide_and_deep": 4,
    "dlrm": 4,
    "deepfm": 4,
    "dcn_v2": 4,
    "din": 1,
    "dssm": 7,
    "mmoe": 7,
    "esmm": 6,
}
MORE = {"deepfm": ["--ev_filter", "cbf"], "mmoe": ["--bf16"]}


def rows_of(checkpoint: str) -> dict[str, int]:
    """The rows of each table of a checkpoint."""
    return {entry.name: entry.open().last.rows for entry in open_checkpoint(checkpoint).tables}


def rows(results: dict, part_of_name: str) -> int:
    """The rows of the only table whose name has this part."""
    (found,) = [rows for name, rows in results["rows"].items() if part_of_name in name]
    return found


@pytest.fixture(scope="module", autouse=True)
def few_categories():
    """The first four categories of Criteo's 26 and of the census's 8: all others are the same to a program.

    A column takes as long as the steps of training. example_ranks_test has all of Criteo's.
    """
    data = importlib.import_module("zoo_data")
    few = {name: getattr(data, name)[:4] for name in ("CRITEO_CATEGORIES", "CENSUS_CATEGORIES")}
    with mock.patch.multiple(data, **few):
        yield


@pytest.fixture(scope="module", autouse=True)
def unoptimized_graphs():
    """TensorFlow does not optimize the graphs, which takes longer than 30 steps of them.

    example_ranks_test has the programs' own configuration of sessions.
    """
    run = importlib.import_module("zoo_run")
    own = run.session_config
    with mock.patch.object(run, "session_config", lambda flags: without_optimizations(own(flags))):
        yield


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Trains a program once: name to results, with "rows" of its last checkpoint."""
    done = {}

    def train(name):
        if name not in done:
            folder = str(tmp_path_factory.mktemp(name))
            flags = [*SHORT, "--checkpoint", folder, *MORE.get(name, [])]
            # The 80 films are seen 15 times on average.
            layers: Any = importlib.import_module("zoo_layers")
            layers.SEEN_OFTEN = 18
            results = importlib.import_module(name).main(flags)
            done[name] = {**results, "rows": rows_of(results["checkpoint"]), "flags": flags}
        return done[name]

    return train


@pytest.mark.parametrize("name", PROGRAMS)
def test_it_learns(trained, name):
    results = trained(name)
    losses = results["losses"]
    assert len(losses) == 30 and np.isfinite(losses).all()
    assert np.mean(losses[-5:]) < np.mean(losses[:5])
    assert results["checkpoint"].endswith("-30") and results["auc"]
    assert all(0 <= auc <= 1 for auc in results["auc"].values())


def test_rare_ids_have_rows_only_without_a_filter(trained):
    assert rows(trained("dlrm"), "C4_embedding") == 0
    of_deepfm = [rows for name, rows in trained("deepfm")["rows"].items() if "C4_" in name]
    # The table of the linear part has no filter.
    assert sorted(of_deepfm) == [0, 960]
    assert rows(trained("dcn_v2"), "C4_embedding") == 960


def test_rare_films_share_rows(trained):
    assert 0 < rows(trained("dssm"), "item_embedding") < 60
    assert rows(trained("din"), "films") >= 80


@pytest.mark.parametrize("name", PROGRAMS)
def test_each_program_has_adaptive_columns(name, monkeypatch, tmp_path):
    run = importlib.import_module("zoo_run")
    asked = {}
    monkeypatch.setattr(run, "run", lambda data, build, flags, **more: asked.update(locals()))
    importlib.import_module(name).main(["--samples", "100", "--embedding_dim", "2", "--adaptive_emb", "True"])
    with tf.Graph().as_default(), tf.compat.v1.Session(config=without_optimizations()) as session:
        task = run._Task(
            asked["data"],
            asked["build"],
            asked["flags"],
            str(tmp_path),
            None,
            importlib.import_module("zoo_cluster").Cluster(),
            "",
        )
        batch = tf.compat.v1.data.make_one_shot_iterator(task._held_out_batches()).get_next()
        loss = asked["build"](*batch, asked["flags"]).loss
        shared = [one for one in tf.compat.v1.trainable_variables() if "shared_embedding_weights" in one.name]
        assert len(shared) == ADAPTIVE_COLUMNS[name]
        gradients = tf.gradients(loss, shared)
        session.run(tf.compat.v1.global_variables_initializer())
        values = session.run(gradients)
    trained = {one.op.name for one, value in zip(shared, values) if np.any(value.values)}
    # Only films are rare here: all other features' ids have rows of their own.
    films = {one.op.name for one in shared if "item_embedding" in one.op.name}
    assert trained == films and bool(films) == (name in ("dssm", "mmoe"))


def test_a_run_goes_on_from_its_checkpoint(trained):
    flags = trained("din")["flags"]
    again = importlib.import_module("din").main([*flags, "--steps", "35"])
    assert len(again["losses"]) == 5 and again["checkpoint"].endswith("-35")


def split_tables(prefix: str, parts: int) -> None:
    """Rewrites DeepRec's checkpoint with tables in parts, as its partitioners make them."""
    tensors = saved_files.tensors_of(prefix)
    tables = sorted(name[: -len("-keys")] for name in tensors if name.endswith("-keys"))
    found = {}
    for table in tables:
        of_table = {name: tensors.pop(name) for name in list(tensors) if name.rpartition("-")[0] == table}
        arrays = {name.rpartition("-")[2]: array for name, array in of_table.items()}
        owner, _, slot = table.rpartition("/")
        if owner in found:
            found[owner].slots[slot] = arrays["values"]
        else:
            filtered = tuple(arrays[f"{name}_filtered"] for name in ("keys", "freqs", "versions"))
            columns = [arrays[name] for name in ("keys", "values", "freqs", "versions")]
            found[table] = foreign_checkpoints.Rows(*columns[:2], {}, *columns[2:], filtered)
    for table, rows in found.items():
        tensors.update(foreign_checkpoints.deeprec(table, rows, parts))
    foreign_checkpoints.save(Path(prefix), tensors)


@pytest.mark.parametrize("name", ["din", "wide_and_deep"])
def test_a_run_goes_on_from_deeprecs_checkpoint_as_from_its_own(name, tmp_path):
    program = importlib.import_module(name)
    own, deeprecs = tmp_path / "own", tmp_path / "deeprecs"
    flags = [*SHORT, "--ev_filter", "counter"]
    first = program.main([*flags, "--steps", "10", "--checkpoint", str(own)])
    written = ["export", first["checkpoint"], "--format", "deeprec", "--to", str(deeprecs)]
    assert checkpoint_command.main(written) == 0
    split_tables(str(deeprecs / "model.ckpt-10"), 3)
    ends = [
        program.main([*flags, "--steps", "15", "--checkpoint", str(folder)]) for folder in (own, deeprecs)
    ]
    assert ends[0]["losses"] == ends[1]["losses"] and len(ends[1]["losses"]) == 5
    assert ends[0]["auc"] == ends[1]["auc"]
    tables = [open_checkpoint(end["checkpoint"]).tables for end in ends]
    for of_own, of_deeprecs in zip(*tables):
        found = compare(of_own.open(), of_deeprecs.open())
        assert not (found.added or found.removed or found.changed or found.waiting), (of_own.name, found)
        assert of_own.name == of_deeprecs.name and of_own.open().last.rows
