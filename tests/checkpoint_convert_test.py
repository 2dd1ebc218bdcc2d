# Not on GPUs: files, which are the same: see gpu_checkpoints_test
"""The command line on tables that other systems wrote: it shows, verifies and exports them, and `convert`
makes their checkpoints ones of this library."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

import checkpoint_files
import foreign_checkpoints as foreign
import harness
import saved_files
import sparse_operation_kit as sok
from saved_files import refused
from saved_files import run_command as run
from sparse_operation_kit.checkpoint import compare, open_checkpoint
from sparse_operation_kit.checkpoint import rows as rows_module

v1 = tf.compat.v1
DIM = 3
KEYS = np.arange(40, dtype=np.int64)
ADAM = foreign.adam_powers(12)
OTHERS = {
    "dense": np.float32([3, 4, 5]),
    "dense/Adam": np.float32([1, 2, 3]),
    "dense/Adam_1": np.float32([4, 5, 6]),
    "global_step": np.int64(50),
    "words": np.array([b"a", b"\xff"], object),
    **ADAM,
}
POLICIES = sok.EmbeddingVariableOption(
    filter_option=sok.CounterFilter(filter_freq=3), evict_option=sok.GlobalStepEvict(steps_to_live=30)
)


def rows(slots=("Adam", "Adam_1"), keys=KEYS, dtype=np.int64):
    mixed = np.random.default_rng(len(keys)).permutation(keys)
    return foreign.random_rows(mixed.astype(dtype), (keys[:6] + 1000).astype(dtype), DIM, slots)


FORMS = {
    "deeprec": lambda: foreign.deeprec("scope/items", rows()),
    "deeprec parts": lambda: foreign.deeprec("scope/items", rows(dtype=np.int64), 4),
    "tfra": lambda: foreign.tfra("scope/items", rows(("Adam/m", "Adam/v")), 3),
    "variable": lambda: foreign.variable("scope/items", rows().values, **rows().slots),
    "slices": lambda: foreign.in_slices(foreign.variable("scope/items", rows().values, **rows().slots), 3),
}


def converted(capsys, path, to, *more):
    """Converts a checkpoint, checks the result, and returns its prefix."""
    status, _, error = run(capsys, "convert", path, "--to", to, *more)
    assert status == 0 and error == "", error
    prefix = tf.train.latest_checkpoint(str(to))
    names = [one for one in more if one != "--table"]
    tables = [argument for name in names for argument in ("--table", name)]
    assert run(capsys, "verify", prefix)[0] == 0
    assert run(capsys, "diff", path, prefix, *tables) == (0, "", "")
    return prefix


def trained_on(prefix, again, **options):
    """Restores a checkpoint, trains, and saves; returns what the session has then."""
    with harness.graph_and_session() as session:
        step = v1.train.get_or_create_global_step()
        table = sok.get_embedding_variable("scope/items", embedding_dim=DIM, **options)
        keys = v1.placeholder(tf.int64, [None])
        found = tf.nn.embedding_lookup(table, keys)
        dense = v1.get_variable("dense", initializer=[1.0, -2.0, 0.5])
        loss = tf.reduce_sum(tf.square(found * dense))
        train = v1.train.AdamOptimizer(0.1).minimize(loss, global_step=step)
        saver = v1.train.Saver()
        session.run(v1.global_variables_initializer())
        saver.restore(session, str(prefix))
        for seed in range(4):
            # Some of them have no row, and some wait.
            some = np.random.default_rng(seed).choice(np.concatenate([KEYS, KEYS + 990]), 20)
            session.run(train, {keys: some})
        saver.save(session, str(again))
        return session.run([found, dense, step], {keys: np.concatenate([KEYS, KEYS + 990])})


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("policies", [False, True])
def test_a_session_goes_on_with_the_same_bits(tmp_path, capsys, form, policies):
    prefix = tmp_path / "theirs" / "model.ckpt-50"
    foreign.save(prefix, {**OTHERS, **FORMS[form]()})
    tables = ["--table", "scope/items"] if form in ("variable", "slices") else []
    ours = converted(capsys, prefix, tmp_path / "ours", *tables)
    assert ours.endswith("ours/model.ckpt-50")
    tensors = saved_files.tensors_of(ours)
    assert tensors.pop("#sok")
    of_others = {name: value for name, value in tensors.items() if not name.startswith("scope/items")}
    harness.assert_equal_dicts(of_others, OTHERS)
    options = {"ev_option": POLICIES} if policies else {}
    wanted = trained_on(prefix, tmp_path / "one", **options)
    found = trained_on(ours, tmp_path / "two", **options)
    harness.assert_equal_arrays(found, wanted)
    one, two = (open_checkpoint(tmp_path / name).tables[0].open() for name in ("one", "two"))
    assert compare(one, two).is_empty, compare(one, two)


@pytest.mark.skipif(foreign.REAL is None, reason="there is no folder shared/data/foreign")
def test_a_real_one(tmp_path, capsys):
    ours = converted(capsys, foreign.REAL / "tfra" / "m", tmp_path / "ours")
    columns, table = saved_files.table_columns(ours)
    assert columns["keys"].tolist() == [-7, 1, 2, 2**40] and table.last.optimizer.steps == 2
    np.testing.assert_allclose(
        columns["values"][2], [0.06724618, 0.03839818, 0.0289635, -0.06597091], rtol=1e-6
    )


def test_sok2(tmp_path, capsys):
    """The ordinary variables are those of the checkpoint in the folder."""
    folder = tmp_path / "dump"
    slots = {"m": rows().slots["Adam"], "v": rows().slots["Adam_1"]}
    foreign.sok2(folder, {"items": foreign.Rows(rows().keys.astype(np.uint32), rows().values, slots)}, "Adam")
    ours = converted(capsys, folder, tmp_path / "bare")
    assert ours.endswith("bare/model.ckpt")
    foreign.save(folder / "model.ckpt-7", OTHERS)
    ours = converted(capsys, folder, tmp_path / "ours")
    np.testing.assert_array_equal(tf.train.load_variable(ours, "dense"), OTHERS["dense"])
    (table,) = [entry.open() for entry in open_checkpoint(ours).tables]
    assert table.last.table["key_dtype"] == "uint32" and table.last.optimizer.name == "adam"
    assert not [path.name for path in (tmp_path / "ours").iterdir() if "weight" in path.name]


def test_slots_in_another_order_and_without_some_rows(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(rows_module, "_KEYS_AT_ONCE", 7)
    whole = rows(("Adam/m", "Adam/v"))
    tensors = foreign.tfra("t", whole, 2)
    gone = tensors["v/t_Adam_v_mht_1of2-keys"][0]
    for shard in ("1of2", "2of2"):
        for name in ("keys", "values"):
            tensor = f"v/t_Adam_v_mht_{shard}-{name}"
            tensors[tensor] = tensors[tensor][::-1][: -1 if shard == "1of2" else None]
    foreign.save(tmp_path / "m", {**tensors, **ADAM})
    ours = converted(capsys, tmp_path / "m", tmp_path / "ours")
    columns, _ = saved_files.table_columns(ours)
    order = np.argsort(whole.keys)
    wanted = {"values": whole.values, "slot-m": whole.slots["Adam/m"], "slot-v": whole.slots["Adam/v"].copy()}
    wanted["slot-v"][whole.keys == gone] = 0
    for name, values in wanted.items():
        np.testing.assert_array_equal(columns[name], values[order], name)
    # A slot's key twice.
    tensors["v/t_Adam_v_mht_2of2-keys"][3] = tensors["v/t_Adam_v_mht_2of2-keys"][12]
    foreign.save(tmp_path / "m", tensors)
    error = refused(capsys, "convert", tmp_path / "m", "--to", tmp_path / "twice")
    assert "has a key twice" in error and not (tmp_path / "twice").exists()


def test_increments_of_deeprec(tmp_path, capsys):
    foreign.save(tmp_path / "model.ckpt-50", {**OTHERS, **foreign.deeprec("scope/items", rows(), 2)})
    later = rows(keys=np.array([3, 8, 1001, 77], np.int64))
    later.versions[2] = -1  # none, of which a restore makes 0
    increment = {**OTHERS, **foreign.deeprec_increment("scope/items", later, 2)}
    prefix = tmp_path / ".incremental_checkpoint" / "incremental_model.ckpt-60"
    foreign.save(prefix, increment)
    assert run(capsys, "convert", prefix, "--to", tmp_path / "ours") == (0, "", "")
    ours = tf.train.latest_checkpoint(str(tmp_path / "ours"))
    assert run(capsys, "diff", prefix, ours)[:2] == (
        1,
        "scope/items: ids: 0 added, 0 removed, 1 changed\nscope/items: last_step: of 1 id changed\n",
    )
    wanted = trained_on(prefix, tmp_path / "one", ev_option=POLICIES)
    harness.assert_equal_arrays(trained_on(ours, tmp_path / "two", ev_option=POLICIES), wanted)


def test_optimizers(tmp_path, capsys):
    """The names of slots tell the rule, or the option does, for all tables or for one."""
    tensors = {**OTHERS, **foreign.deeprec("a", rows(("Adagrad",))), **foreign.deeprec("b", rows())}
    tensors.update(foreign.deeprec("c", rows(("Strange",))))
    foreign.save(tmp_path / "m", tensors)

    def optimizers(*options):
        to = tmp_path / f"to{len(list(tmp_path.iterdir()))}"
        status, _, error = run(capsys, "convert", tmp_path / "m", "--to", to, *options)
        if status:
            assert status == 2 and not to.exists()
            return error
        found = {entry.name: entry.open().last.optimizer for entry in open_checkpoint(to / "m").tables}
        return {name: one and (one.name, one.steps, one.hyper) for name, one in found.items()}, error

    found, error = optimizers()
    assert found["a"][:2] == ("adagrad", 50) and found["a"][2]["initial_accumulator"] == 0.1
    assert found["b"][:2] == ("adam", 12) and found["c"] is None
    # A table with a strange name in a slot's place is another table, and said by its name.
    assert found.keys() == {"a", "b", "c", "c/Strange"} and error == ""
    tables = ["--table", "b", "--table", "a"]
    found, _ = optimizers("--optimizer", "b=lazy_adam beta2=0.99", *tables)
    assert found["b"][:2] == ("lazy_adam", 0) and found["b"][2]["beta2"] == 0.99
    found, _ = optimizers("--optimizer", "adagrad initial_accumulator=0.25", "--table", "a")
    assert found.keys() == {"a"} and found["a"][2]["initial_accumulator"] == 0.25
    error = optimizers("--optimizer", "b=ftrl", *tables)
    assert "has slots, such as 'b/Adam-values', but none of ftrl" in error
    error = optimizers("--optimizer", "ftrl", "--optimizer", "b=adam")
    assert "given for all tables and for one" in error
    found, error = optimizers("--optimizer", "b=sgd", *tables)
    assert found["b"] is None and "'b': nothing is made of 'b/Adam-values', 'b/Adam_1-values'" in error


def test_what_is_refused(tmp_path, capsys):
    foreign.save(tmp_path / "m", {**OTHERS, **foreign.deeprec("scope/items", rows(), 2)})
    ours = converted(capsys, tmp_path / "m", tmp_path / "ours")
    error = refused(capsys, "convert", tmp_path / "m", "--to", tmp_path / "ours")
    assert "exists already, and is not overwritten" in error
    error = refused(capsys, "convert", ours, "--to", tmp_path / "again")
    assert "is a table of this library: compact" in error
    bad = foreign.deeprec("scope/items", rows(), 2)
    bad["scope/items/part_0-keys"][0] = bad["scope/items/part_1-keys"][0]
    foreign.save(tmp_path / "m", bad)
    before = sorted(tmp_path.iterdir())
    error = refused(capsys, "convert", tmp_path / "m", "--to", tmp_path / "again")
    assert "occurs twice" in error and sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize("source", FORMS)
@pytest.mark.parametrize("target", ["deeprec", "sok2", "variable"])
def test_from_one_system_to_another(tmp_path, capsys, source, target):
    """What was there is there again: each form is read by `convert`."""
    prefix = tmp_path / "m"
    foreign.save(prefix, {**OTHERS, **FORMS[source]()})
    tables = ["--table", "scope/items"] if source in ("variable", "slices") else []
    more = ["--rows", "45"] if target == "variable" else []
    more += ["--format", target, "--to", tmp_path / "to"]
    status, _, error = run(capsys, "export", prefix, *tables, *more)
    assert status == 0, error
    lines = error.splitlines()
    assert any("keys without a row read as zeros" in line for line in lines) == (target == "variable")
    has_counts = source.startswith("deeprec") and target != "deeprec"
    assert any("has no place for frequency, last_step, waiting_keys" in line for line in lines) == has_counts
    wanted = converted(capsys, prefix, tmp_path / "wanted", *tables)
    path = tmp_path / "to" / ("" if target == "sok2" else "m")
    name = "scope_items" if target == "sok2" else "scope/items"
    found = converted(capsys, path, tmp_path / "found", *(["--table", name] if target != "deeprec" else []))
    columns = []
    for checkpoint in (wanted, found):
        of_table, table = saved_files.table_columns(checkpoint)
        columns.append([of_table[name][: len(KEYS)] for name in ("keys", "values", "slot-m", "slot-v")])
        # SOK 2.x's files do not tell steps.
        assert table.last.optimizer.steps == (0 if checkpoint == found and target == "sok2" else 12)
        np.testing.assert_array_equal(tf.train.load_variable(checkpoint, "dense"), OTHERS["dense"])
    harness.assert_equal_arrays(*columns)
    left = [one for one in tf.train.load_checkpoint(found).get_variable_to_shape_map() if "/Adam" in one]
    assert sorted(left) == ["dense/Adam", "dense/Adam_1"]


KEYS_FOREIGN = np.arange(20, dtype=np.int64) * 7 + 1
VALUES = np.random.default_rng(0).random([20, 3], np.float32)
WAITING = np.array([2, 4, 9], np.int64)


@pytest.fixture
def prefix(tmp_path):
    rows = foreign.Rows(
        KEYS_FOREIGN,
        VALUES,
        {"Adagrad": VALUES + 1},
        KEYS_FOREIGN % 5 + 1,
        KEYS_FOREIGN % 9,
        (WAITING, WAITING, WAITING),
    )
    tensors = {
        "global_step": np.int64(12),
        "kernel": VALUES[:4],
        **foreign.deeprec("scope/items", rows, 2),
        **foreign.tfra(
            "scope/users", foreign.Rows(KEYS_FOREIGN, VALUES, {"Adam/m": VALUES, "Adam/v": VALUES}), 2
        ),
        **foreign.variable("emb", VALUES, Ftrl=VALUES, Ftrl_1=VALUES),
    }
    checkpoint_files.write_files(tmp_path / "m", tensors)
    return tmp_path / "m"


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
    error = refused(capsys, "inspect", prefix, "--table", "emb/Ftrl")
    assert "no table 'emb/Ftrl'; it has 'scope/items', 'scope/users', 'emb', 'kernel'" in error


@pytest.mark.parametrize(
    "table, slot", [("scope/items", "Adagrad"), ("scope/users", "Adam/v"), ("emb", "Ftrl_1")]
)
def test_one_row(prefix, capsys, table, slot):
    key = 3 if table == "emb" else KEYS_FOREIGN[3]
    status, out, _ = run(capsys, "inspect", prefix, "--table", table, "--id", key)
    assert status == 0 and f"id {key}\n" in out
    assert f"values      {VALUES[3]}" in out
    assert f"{slot:<12}{VALUES[3] + (1 if slot == 'Adagrad' else 0)}" in out
    assert "no row of the id 5000" in refused(capsys, "inspect", prefix, "--table", table, "--id", 5000)


def test_export_and_verify(prefix, tmp_path, capsys):
    assert run(capsys, "verify", prefix)[0] == 0
    assert run(capsys, "export", prefix, "--format", "npy", "--to", tmp_path / "out")[0] == 0
    keys = np.load(tmp_path / "out" / "scope%2Fitems" / "keys.npy")
    values = np.load(tmp_path / "out" / "scope%2Fitems" / "values.npy")
    np.testing.assert_array_equal(values, VALUES[(keys - 1) // 7])
    assert sorted(keys) == list(KEYS_FOREIGN)
    data = checkpoint_files.data_file(prefix, 0, 1)
    whole = data.read_bytes()
    data.write_bytes(whole.replace(VALUES[::2].tobytes()[:12], b"?" * 12))
    status, out, _ = run(capsys, "verify", prefix)
    assert status == 1 and "-values' is damaged" in out
    data.write_bytes(whole)
    for command in (
        ["compact", prefix, "--to", tmp_path / "c"],
        ["export", prefix, "--format", "saved_model_sok", "--to", tmp_path / "s"],
    ):
        assert "has no table of this library" in refused(capsys, *command)


def test_a_key_twice(prefix, capsys):
    rows = foreign.deeprec("t", foreign.Rows(KEYS_FOREIGN, VALUES), 2)
    rows["t/part_0-keys"][0] = rows["t/part_1-keys"][0]
    twice = prefix.with_name("twice")
    checkpoint_files.write_files(twice, rows)
    status, out, _ = run(capsys, "verify", twice)
    assert status == 1 and f"key {rows['t/part_1-keys'][0]} occurs twice" in out
