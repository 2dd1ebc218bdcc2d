"""The command line shows, verifies and exports tables that other systems wrote."""

import numpy as np
import pytest

import foreign_checkpoints as foreign
import tensor_files
from sparse_operation_kit.checkpoint import cli

KEYS = np.arange(20, dtype=np.int64) * 7 + 1
VALUES = np.random.default_rng(0).random([20, 3], np.float32)
WAITING = np.array([2, 4, 9], np.int64)


@pytest.fixture
def prefix(tmp_path):
    rows = foreign.Rows(
        KEYS, VALUES, {"Adagrad": VALUES + 1}, KEYS % 5 + 1, KEYS % 9, (WAITING, WAITING, WAITING)
    )
    tensors = {
        "global_step": np.int64(12),
        "kernel": VALUES[:4],
        **foreign.deeprec("scope/items", rows, 2),
        **foreign.tfra("scope/users", foreign.Rows(KEYS, VALUES, {"Adam/m": VALUES, "Adam/v": VALUES}), 2),
        **foreign.variable("emb", VALUES, Ftrl=VALUES, Ftrl_1=VALUES),
    }
    tensor_files.write(tmp_path / "m", {name: np.array(one, order="C") for name, one in tensors.items()})
    return tmp_path / "m"


def run(capsys, command, *arguments):
    status = cli.main([command, *map(str, arguments)])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def test_inspect(prefix, capsys):
    status, out, _ = run(capsys, "inspect", prefix, "--brief")
    assert status == 0
    items, users = out.split("scope/users")
    for line in (
        "written by  DeepRec",
        "of global step 12",
        "20 of 3 floats in 2 parts",
        "of a part   10, 10",
        "slots       Adagrad [3]",
        "of each row frequency, last_step",
        "waiting     3 ids",
    ):
        assert line in items
    assert "written by  recommenders-addons" in users and "Adam/m [3], Adam/v [3]" in users
    status, out, _ = run(capsys, "inspect", prefix, "--table", "emb")
    assert status == 0 and "written by  tf.Variable" in out and "slots       Ftrl [3], Ftrl_1 [3]" in out
    status, _, error = run(capsys, "inspect", prefix, "--table", "emb/Ftrl")
    assert (
        status == 2 and "no table 'emb/Ftrl'; it has 'scope/items', 'scope/users', 'emb', 'kernel'" in error
    )


@pytest.mark.parametrize(
    "table, slot", [("scope/items", "Adagrad"), ("scope/users", "Adam/v"), ("emb", "Ftrl_1")]
)
def test_one_row(prefix, capsys, table, slot):
    key = 3 if table == "emb" else KEYS[3]
    status, out, _ = run(capsys, "inspect", prefix, "--table", table, "--id", key)
    assert status == 0 and f"id {key}\n" in out
    assert f"values      {VALUES[3]}" in out
    assert f"{slot:<12}{VALUES[3] + (1 if slot == 'Adagrad' else 0)}" in out
    status, _, error = run(capsys, "inspect", prefix, "--table", table, "--id", 5000)
    assert status == 2 and "no row of the id 5000" in error


def test_export_and_verify(prefix, tmp_path, capsys):
    assert run(capsys, "verify", prefix)[0] == 0
    assert run(capsys, "export", prefix, "--format", "npy", "--to", tmp_path / "out")[0] == 0
    keys = np.load(tmp_path / "out" / "scope%2Fitems" / "keys.npy")
    values = np.load(tmp_path / "out" / "scope%2Fitems" / "values.npy")
    np.testing.assert_array_equal(values, VALUES[(keys - 1) // 7])
    assert sorted(keys) == list(KEYS)
    data = tensor_files.data_file(prefix, 0, 1)
    whole = data.read_bytes()
    data.write_bytes(whole.replace(VALUES[::2].tobytes()[:12], b"?" * 12))
    status, out, _ = run(capsys, "verify", prefix)
    assert status == 1 and "-values' is damaged" in out
    data.write_bytes(whole)
    for command in (
        ["compact", prefix, "--to", tmp_path / "c"],
        ["export", prefix, "--format", "saved_model_sok", "--to", tmp_path / "s"],
    ):
        status, _, error = run(capsys, *command)
        assert status == 2 and "has no table of this library" in error


def test_a_key_twice(prefix, capsys):
    rows = foreign.deeprec("t", foreign.Rows(KEYS, VALUES), 2)
    rows["t/part_0-keys"][0] = rows["t/part_1-keys"][0]
    twice = prefix.with_name("twice")
    tensor_files.write(twice, {name: np.array(one, order="C") for name, one in rows.items()})
    status, out, _ = run(capsys, "verify", twice)
    assert status == 1 and f"key {rows['t/part_1-keys'][0]} occurs twice" in out
