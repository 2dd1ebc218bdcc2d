"""examples/deeprec/zoo: each program learns in a few steps, and does what its defaults say."""

from __future__ import annotations

import importlib
import json
import pathlib
import sys

import numpy as np
import pytest
import tensorflow as tf

from example_support import EXAMPLES

if not hasattr(tf.compat.v1, "estimator"):
    pytest.skip(f"TensorFlow {tf.__version__} has no Estimator", allow_module_level=True)

sys.path.insert(0, str(EXAMPLES / "deeprec" / "zoo"))

PROGRAMS = ("wide_and_deep", "dlrm", "deepfm", "dcn_v2", "din", "dssm", "mmoe", "esmm")
# Two passes over 960 training samples.
SHORT = ["--samples", "1200", "--steps", "30", "--batch_size", "64", "--embedding_dim", "8"]
MORE = {"deepfm": ["--ev_filter", "cbf"], "mmoe": ["--bf16"]}


def rows_of(checkpoint: str) -> dict[str, int]:
    """The rows of each table of a checkpoint."""
    manifests = pathlib.Path(f"{checkpoint}.sok").glob("*/manifest.json")
    read = [json.loads(path.read_text(encoding="utf-8")) for path in manifests]
    return {manifest["table"]["name"]: manifest["rows"] for manifest in read}


def rows(results: dict, part_of_name: str) -> int:
    """The rows of the only table whose name has this part."""
    (found,) = [rows for name, rows in results["rows"].items() if part_of_name in name]
    return found


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Trains a program once: name to results, with "rows" of its last checkpoint."""
    done = {}

    def train(name):
        if name not in done:
            folder = str(tmp_path_factory.mktemp(name))
            flags = [*SHORT, "--checkpoint", folder, *MORE.get(name, [])]
            program = importlib.import_module(name)
            if name == "dssm":
                program.SEEN_OFTEN = 18  # the 80 films are seen 15 times on average
            results = program.main(flags)
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
    assert rows(trained("dlrm"), "C26_embedding") == 0
    of_deepfm = [rows for name, rows in trained("deepfm")["rows"].items() if "C26_" in name]
    # The table of the linear part has no filter.
    assert sorted(of_deepfm) == [0, 960]
    assert rows(trained("dcn_v2"), "C26_embedding") == 960


def test_rare_films_share_rows(trained):
    assert 0 < rows(trained("dssm"), "item_embedding") < 60
    assert rows(trained("din"), "films") >= 80


def test_a_run_goes_on_from_its_checkpoint(trained):
    flags = trained("din")["flags"]
    again = importlib.import_module("din").main([*flags, "--steps", "35"])
    assert len(again["losses"]) == 5 and again["checkpoint"].endswith("-35")
