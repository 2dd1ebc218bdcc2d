# Not on GPUs: files, which are the same: see gpu_checkpoints_test
"""`export` to checkpoints of DeepRec, SOK 2.x and TensorFlow's own variables.

What it writes is held against `foreign_checkpoints`, which writes the same forms in the simplest way, and
restored by TensorFlow.
"""

import numpy as np
import pytest
import tensorflow as tf

import foreign_checkpoints
import harness
import saved_files
import sparse_operation_kit as sok
from checkpoint_files import BLOOM, COUNTER, History, save_all, table_description
from harness import assert_equal_dicts
from saved_files import tensors_of
from sparse_operation_kit.checkpoint import cli, open_checkpoint
from sparse_operation_kit.checkpoint import rows as rows_module

v1 = tf.compat.v1
ADAM = {"m": "Adam", "v": "Adam_1"}
INT32, SMALL = (-(2**31), 2**31), (0, 40)


class Bounded(History):
    """A table whose keys are in [low, high)."""

    bounds = (-(2**63), 2**63 - 1)

    def _random_keys(self, count):
        return self.rng.integers(*self.bounds, count).tolist()


def history(directory, bounds=None, **fields):
    """The last of a full checkpoint and two incremental ones after it."""
    made = (History if bounds is None else Bounded)(directory, np.random.default_rng(3), **fields)
    made.bounds = bounds
    return made.save_steps(3, 100)


def export(capsys, prefix, form, *more):
    """Exports a checkpoint; returns what it says, and the folder."""
    to = prefix.with_name("out")
    status, _, error = saved_files.run_command(capsys, "export", prefix, "--format", form, "--to", to, *more)
    assert status == 0, error
    return error, to


def refused(capsys, prefix, form, *more):
    """The error of an export, which leaves nothing."""
    before = sorted(prefix.parent.iterdir())
    to = prefix.with_name("out")
    error = saved_files.refused(capsys, "export", prefix, "--format", form, "--to", to, *more)
    assert sorted(prefix.parent.iterdir()) == before
    return error


def rows_of(saved, keys, slots):
    """The rows of keys, whose slots have other names elsewhere."""

    def column(name):
        return np.array([saved.rows[int(key)][name] for key in keys])

    of_slots = {theirs: column(f"slot-{ours}") for ours, theirs in slots.items()}
    return foreign_checkpoints.Rows(keys, column("values"), of_slots)


@pytest.mark.parametrize(("key_dtype", "bounds", "shards"), [("int64", None, 1), ("int32", INT32, 3)])
def test_deeprec(tmp_path, capsys, monkeypatch, key_dtype, bounds, shards):
    monkeypatch.setattr(rows_module, "_BUCKET_BYTES", 300)
    table = table_description(name="scope/items", admission=COUNTER, key_dtype=key_dtype)
    if shards > 1:
        table["eviction"] = {"kind": "global_step", "steps_to_live": 9}
    saved = history(tmp_path, bounds, table=table, shards=shards)
    error, to = export(capsys, saved.prefix, "deeprec")
    assert error == ""
    assert tf.train.latest_checkpoint(str(to)) == str(to / "model.ckpt-2")
    found = tensors_of(to / "model.ckpt-2")
    wanted = foreign_checkpoints.adam_powers(3)
    seen, waited = [], []
    for name in [f"scope/items/part_{part}" for part in range(shards)] if shards > 1 else ["scope/items"]:
        # Keys of the same remainder are in any order.
        keys, waiting = found[f"{name}-keys"], found[f"{name}-keys_filtered"]
        assert keys.dtype == waiting.dtype == key_dtype
        rows = rows_of(saved, keys, ADAM)
        rows.freqs = np.array([saved.rows[int(key)]["frequency"] for key in keys])
        if shards > 1:
            rows.versions = np.array([saved.rows[int(key)]["last_step"] for key in keys])
        counts = np.array([saved.waiting[int(key)] for key in waiting], np.int64).reshape(-1, 2)
        rows.filtered = waiting, counts[:, 0], counts[:, 1]
        wanted.update(foreign_checkpoints.deeprec(name, rows))
        seen += keys.tolist()
        waited += waiting.tolist()
    assert_equal_dicts(found, wanted)
    assert sorted(seen) == sorted(saved.rows) and sorted(waited) == sorted(saved.waiting) != []


def test_adam_async_of_deeprec(tmp_path, capsys):
    with harness.graph_and_session() as session:
        table = sok.EmbeddingVariable("items", dim=4)
        rows = tf.nn.embedding_lookup(table, tf.constant([3], tf.int64))
        train = sok.optimizers.AdamAsyncOptimizer(0.1).minimize(tf.reduce_sum(rows))
        session.run(v1.global_variables_initializer())
        for _ in range(2):
            session.run(train)
        v1.train.Saver().save(session, str(tmp_path / "model.ckpt"))
    _, to = export(capsys, tmp_path / "model.ckpt", "deeprec")
    found = tensors_of(to / "model.ckpt")
    np.testing.assert_allclose(found["items/AdamAsync-values"], [[1 - 0.9**2] * 4], rtol=1e-6)
    np.testing.assert_allclose(found["items/AdamAsync_1-values"], [[1 - 0.999**2] * 4], rtol=1e-4)
    for number, beta in ((2, 0.9), (3, 0.999)):
        np.testing.assert_allclose(found[f"items/AdamAsync_{number}"], [beta**3], rtol=1e-6)


@pytest.mark.parametrize(("key_dtype", "bounds"), [("int64", None), ("uint32", (0, 2**32))])
def test_sok2(tmp_path, capsys, key_dtype, bounds):
    saved = history(tmp_path, bounds, table=table_description(name="scope/items", key_dtype=key_dtype))
    error, to = export(capsys, saved.prefix, "sok2")
    assert error == ""
    keys = np.fromfile(to / "scope_items-key", key_dtype, offset=296)
    assert sorted(keys.tolist()) == sorted(saved.rows)
    rows = rows_of(saved, keys, {"m": "m", "v": "v"})
    foreign_checkpoints.sok2(tmp_path / "wanted", {"scope/items": rows}, "Adam")
    for path in (tmp_path / "wanted").iterdir():
        assert path.read_bytes() == (to / path.name).read_bytes(), path.name
        other = to / path.name.replace("scope_items", "scope_items_0")
        assert other.read_bytes() == path.read_bytes()
    others = ["checkpoint", "model.ckpt-2.index", "model.ckpt-2.data-00000-of-00001"]
    others += [f"scope_items_0-{end}" for end in ("key", "weight", "Adam-m", "Adam-v")]
    wanted = [path.name for path in (tmp_path / "wanted").iterdir()]
    assert sorted(path.name for path in to.iterdir()) == sorted([*wanted, *others])
    assert tensors_of(to / "model.ckpt-2").keys() == {"beta1_power", "beta2_power"}


def test_sok2_of_several_tables(tmp_path, capsys):
    """One is without hashing, whose rows are in the order of keys, and one is trained by RMSProp."""
    with harness.graph_and_session() as session:
        ids = tf.constant([7, 2, -9], tf.int64)
        items, kinds = our_table("items", 30), our_table("kinds", 5)
        rows = tf.nn.embedding_lookup(items, ids) + tf.nn.embedding_lookup(kinds, ids % 5)
        loss = tf.reduce_sum(rows * rows)
        train = v1.train.RMSPropOptimizer(0.1).minimize(loss)
        session.run(v1.global_variables_initializer())
        session.run(train)
        values = session.run(tf.nn.embedding_lookup(kinds, tf.range(5, dtype=tf.int64)))
        v1.train.Saver().save(session, str(tmp_path / "model.ckpt"))
    error, to = export(capsys, tmp_path / "model.ckpt", "sok2")
    assert [
        f"'{name}': SOK 2.x has no place for slot-rms, slot-momentum" in error for name in ("items", "kinds")
    ]
    keys, rows = np.fromfile(to / "items-key", np.int64, offset=296), (to / "items-weight").read_bytes()[296:]
    items = foreign_checkpoints.Rows(keys, np.frombuffer(rows, np.float32).reshape(3, 4))
    kinds = foreign_checkpoints.Rows(np.arange(5), values)
    foreign_checkpoints.sok2(tmp_path / "wanted", {"items": items, "kinds": kinds})
    for path in (tmp_path / "wanted").iterdir():
        assert path.read_bytes() == (to / path.name).read_bytes(), path.name


@pytest.mark.parametrize("bucket_bytes", [1, 1000, 1 << 20])
def test_variable(tmp_path, capsys, monkeypatch, bucket_bytes):
    monkeypatch.setattr(rows_module, "_BUCKET_BYTES", bucket_bytes)
    saved = history(tmp_path, SMALL)
    error, to = export(capsys, saved.prefix, "variable", "--rows", "50")
    assert error == ""
    (entry,) = open_checkpoint(saved.prefix).tables
    wanted = {"items": entry.open().initial_rows(np.arange(50)), "items/Adam": np.zeros([50, 4], "<f4")}
    wanted["items/Adam_1"] = wanted["items/Adam"].copy()
    for name, column in (("items", "values"), ("items/Adam", "slot-m"), ("items/Adam_1", "slot-v")):
        for key, row in saved.rows.items():
            wanted[name][key] = row[column]
    wanted.update(foreign_checkpoints.adam_powers(3))
    assert len(saved.rows) < 40
    assert_equal_dicts(tensors_of(to / "model.ckpt-2"), wanted)


@pytest.mark.parametrize("form", ["deeprec", "sok2", "variable"])
def test_an_empty_table(tmp_path, capsys, form):
    table = table_description(admission=COUNTER)
    made = History(tmp_path, np.random.default_rng(0), table=table, shards=1)
    saved = made.save("model.ckpt-0")
    _, to = export(capsys, saved.prefix, form, *(["--rows", "3"] if form == "variable" else []))
    found = tensors_of(to / "model.ckpt-0")
    shapes = {name: array.shape for name, array in found.items() if "power" not in name}
    if form == "variable":
        assert shapes == dict.fromkeys(["items", "items/Adam", "items/Adam_1"], (3, 4))
        assert np.any(found["items"]) and not np.any(found["items/Adam"])
    elif form == "deeprec":
        assert shapes["items-values"] == (0, 4) and shapes["items-keys_filtered"] == (0,)
    else:
        assert not shapes and (to / "items-weight").stat().st_size == 296


def model(table_of, ids):
    """The loss of two tables and a partitioned kernel."""
    items, kinds = table_of("items", 30), table_of("kinds", 5)
    kernel = v1.get_variable(
        "kernel", [3, 4], initializer=v1.ones_initializer(), partitioner=v1.fixed_size_partitioner(2)
    )
    rows = tf.nn.embedding_lookup(items, ids) + tf.nn.embedding_lookup(kinds, ids % 5)
    products = tf.matmul(rows, v1.convert_to_tensor(kernel), transpose_b=True)
    return items, tf.reduce_sum(tf.square(products - 1.0))


def our_table(name, rows):
    static = {} if name == "items" else {"use_hashtable": False, "capacity": rows}
    return sok.EmbeddingVariable(name, dim=4, **static)


OPTIMIZERS = {
    "adadelta": lambda: v1.train.AdadeltaOptimizer(1.0),
    "adagrad": lambda: v1.train.AdagradOptimizer(0.1),
    "adam": lambda: v1.train.AdamOptimizer(0.1),
    "ftrl": lambda: v1.train.FtrlOptimizer(0.1, l1_regularization_strength=0.01),
    "momentum": lambda: v1.train.MomentumOptimizer(0.01, 0.9),
    "rmsprop": lambda: v1.train.RMSPropOptimizer(0.01, momentum=0.5, centered=True),
    "sgd": lambda: v1.train.GradientDescentOptimizer(0.01),
}
BATCHES = [[1, 2, 2, 29], [0, 2, 7], [29, 8, 1, 1], [3, 2]]


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_tensorflow_trains_the_variables_on(tmp_path, capsys, optimizer):
    def trained(table_of, batches, restore=None, save=None):
        """The loss of each step and, after a restore, the rows of items after it; and the steps."""
        ids = v1.placeholder(tf.int64, [None])
        items, loss = model(table_of, ids)
        step = v1.train.get_or_create_global_step()
        train = OPTIMIZERS[optimizer]().minimize(loss, global_step=step)
        everything = tf.nn.embedding_lookup(items, tf.range(30, dtype=tf.int64))
        session.run(v1.global_variables_initializer())
        saver = v1.train.Saver()
        if restore:
            saver.restore(session, restore)
        found = []
        for batch in batches:
            found.append([session.run([loss, train], {ids: batch})[0]])
            if restore:  # a lookup makes rows
                found[-1].append(session.run(everything))
        if save:
            saver.save(session, str(save))
        return found, session.run(step)

    with harness.graph_and_session() as session:
        trained(our_table, BATCHES[:2], save=tmp_path / "model.ckpt")
    with harness.graph_and_session() as session:
        wanted, at = trained(our_table, BATCHES[2:], restore=str(tmp_path / "model.ckpt"))
    error, to = export(capsys, tmp_path / "model.ckpt", "variable", "--rows", "items=30")
    assert error == ""
    with tf.Graph().as_default(), v1.Session() as session:
        found, steps = trained(
            lambda name, rows: v1.get_variable(name, [rows, 4]),
            BATCHES[2:],
            tf.train.latest_checkpoint(str(to)),
        )
    assert steps == at == 4
    for one, other in zip(found, wanted):
        np.testing.assert_allclose(one[0], other[0], rtol=1e-5)
        np.testing.assert_allclose(one[1], other[1], rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("form", ["deeprec", "sok2", "variable"])
def test_ordinary_variables_come_along(tmp_path, capsys, form):
    half = tf.bfloat16.as_numpy_dtype
    others = {
        "dense": np.arange(6, dtype=np.float32).reshape(2, 3),
        "beta1_power": np.float32(0.5),
        "beta2_power": np.float32(0.25),
        "half": np.array([1.5, 2.5], half),
        "items_2": np.array([True, False]),
        "step": np.int64(2**40),
        "words": np.array([b"a", b"\xff"], object),
    }
    saved = history(tmp_path, SMALL)
    tensors = {**others, **saved.tensors, "sliced": [others["dense"], others["dense"]]}
    foreign_checkpoints.save(saved.prefix, tensors)
    others["sliced"] = np.concatenate(tensors["sliced"])
    _, to = export(capsys, saved.prefix, form, *(["--rows", "40"] if form == "variable" else []))
    found = tensors_of(to / "model.ckpt-2")
    assert_equal_dicts({name: found[name] for name in others}, others)
    assert "#sok" not in found and not [name for name in found if "items#" in name]


def test_what_a_form_has_no_place_for(tmp_path, capsys):
    table = table_description(admission=COUNTER, name="i\nems")
    saved = history(tmp_path, SMALL, table=table)
    error, _ = export(capsys, saved.prefix, "variable", "--rows", "40")
    say = "embedding variable 'i\\x0aems': a variable has no place for frequency, waiting_keys\n"
    assert error == f"{cli.PROGRAM}: {say}"
    saved = history(tmp_path / "bloom", table=table_description(admission=BLOOM), slots=(("row", 1),))
    error, _ = export(capsys, saved.prefix, "deeprec")
    assert error.endswith("DeepRec's checkpoint has no place for slot-row, bloom_counters\n")


def test_errors(tmp_path, capsys, monkeypatch):
    saved = history(tmp_path, SMALL)
    key = max(saved.rows)
    error = refused(capsys, saved.prefix, "variable", "--rows", str(key))
    assert f"model.ckpt-2:items: has a row of key {key}, and a variable of {key} rows has none" in error
    assert "items: needs the number of rows" in refused(capsys, saved.prefix, "variable")
    assert "needs the number of rows" in refused(capsys, saved.prefix, "variable", "--rows", "other=3")
    assert "-1 rows" in refused(capsys, saved.prefix, "variable", "--rows", "-1")
    assert "not in [0, 2^40]" in refused(capsys, saved.prefix, "variable", "--rows", str(2**41))
    assert "--rows works with variable" in refused(capsys, saved.prefix, "deeprec", "--rows", "9")
    foreign_checkpoints.save(saved.prefix, {**saved.tensors, "items/Adam": np.zeros([1], np.float32)})
    error = refused(capsys, saved.prefix, "variable", "--rows", "40")
    assert "would have two tensors 'items/Adam'" in error


def test_negative_keys_are_no_rows(tmp_path, capsys):
    error = refused(capsys, history(tmp_path, (-300, 0)).prefix, "variable", "--rows", "9")
    assert "has a row of key -" in error


@pytest.mark.parametrize(
    ("names", "why"),
    [
        (["a/b", "a.b"], "a/b: and 'a.b' would both have files 'a_b'"),
        (["a", "a_0"], "a_0: and 'a' would both have files 'a_0'"),
        (["é" * 129], "has 258 bytes, and SOK's files have room for 256"),
    ],
)
def test_names_that_sok2_cannot_have(tmp_path, capsys, names, why):
    made = [History(tmp_path, np.random.default_rng(0), table=table_description(name=name)) for name in names]
    save_all(made, "model.ckpt-0")
    assert why in refused(capsys, tmp_path / "model.ckpt-0", "sok2")


def test_a_damaged_table(tmp_path, capsys):
    saved = history(tmp_path, SMALL)
    path = tmp_path / "model.ckpt-2.data-00001-of-00002"
    slot = saved.tensors["items#1/slot-v"].tobytes()
    path.write_bytes(path.read_bytes().replace(slot, slot[:-1] + bytes([slot[-1] ^ 1])))
    error = refused(capsys, saved.prefix, "variable", "--rows", "40")
    assert f"{path}:items#1/slot-v' is damaged" in error


def test_a_damaged_ordinary_variable(tmp_path, capsys):
    saved = history(tmp_path)
    foreign_checkpoints.save(saved.prefix, {**saved.tensors, "dense": np.full([8], 7.25, np.float32)})
    path = tmp_path / "model.ckpt-2.data-00000-of-00001"
    path.write_bytes(path.read_bytes().replace(np.float32(7.25).tobytes(), bytes(4)))
    error = refused(capsys, saved.prefix, "deeprec")
    assert f"{saved.prefix}: the tensor 'dense' is damaged: its checksum does not match" in error
