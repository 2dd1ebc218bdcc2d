# Not on GPUs: files, which are the same: see gpu_checkpoints_test
"""`export` to Parquet, .npy and a SavedModel that plain TensorFlow loads, also of trained tables; `compact`,
which merges a chain."""

import sys

import numpy as np
import pytest
import tensorflow as tf
from pyarrow import parquet

import harness  # noqa: F401 - quiets TensorFlow
import saved_files
import sparse_operation_kit as sok
from checkpoint_files import BLOCKS, BLOOM, COUNTER, History, save_steps, table_description
from same_length import zip_equal
from saved_files import refused
from saved_files import run_command as run
from sparse_operation_kit.checkpoint import (
    compare,
    exporting,
    find_row,
    open_checkpoint,
    problems,
    row_blocks,
)


def chain(directory, name="items", seed=0, **fields):
    made = History(
        directory, np.random.default_rng(seed), **{"table": table_description(name=name), **fields}
    )
    made.save_steps(3, 100)
    return made


def together(directory, *tables):
    """Histories of tables with these descriptions in the checkpoint "model.ckpt-2" of a directory."""
    made = [History(directory, np.random.default_rng(seed), table=table) for seed, table in enumerate(tables)]
    save_steps(made, 3, 100)
    return made


def load_elsewhere(folder, ids):
    """{signature: rows} from another process, without this library."""
    return saved_files.serve(folder, ids, "sparse_operation_kit")


def wanted(saved, ids, default=0.0):
    return np.array([saved.rows[key]["values"] if key in saved.rows else [default] * 4 for key in ids], "<f4")


def test_npy(tmp_path, capsys):
    one, two = together(tmp_path, table_description(), table_description(name="scope/users"))
    command = ["export", tmp_path / "model.ckpt-2", "--format", "npy", "--to", tmp_path / "out"]
    assert run(capsys, *command) == (0, "", "")
    for made, name in ((one, "items"), (two, "scope%2Fusers")):
        keys = np.load(tmp_path / "out" / name / "keys.npy", mmap_mode="r")
        values = np.load(tmp_path / "out" / name / "values.npy", mmap_mode="r")
        assert set(keys.tolist()) == made.saved[-1].rows.keys()
        np.testing.assert_array_equal(values, wanted(made.saved[-1], keys.tolist()))


@pytest.mark.parametrize("group_bytes", [1, 1 << 26])
def test_parquet(tmp_path, capsys, monkeypatch, group_bytes):
    monkeypatch.setattr(exporting, "_ROW_GROUP_BYTES", group_bytes)
    saved = chain(tmp_path, table=table_description(admission=COUNTER)).saved[-1]
    assert run(capsys, "export", saved.prefix, "--format", "parquet", "--to", tmp_path / "out") == (0, "", "")
    table = parquet.read_table(tmp_path / "out" / "items.parquet")
    keys = table["key"].to_pylist()
    assert len(keys) == len(set(keys)) and set(keys) == saved.rows.keys()
    np.testing.assert_array_equal(np.array(table["values"].to_pylist(), "<f4"), wanted(saved, keys))
    assert table["frequency"].to_pylist() == [saved.rows[key]["frequency"] for key in keys]


def test_parquet_of_an_empty_table(tmp_path, capsys):
    prefix = History(tmp_path, np.random.default_rng(0)).save("model.ckpt-0").prefix
    assert run(capsys, "export", prefix, "--format", "parquet", "--to", tmp_path / "out")[0] == 0
    assert parquet.read_table(tmp_path / "out" / "items.parquet").num_rows == 0


def test_parquet_without_its_package(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    saved = chain(tmp_path).saved[-1]
    command = ["export", saved.prefix, "--format", "parquet", "--to", tmp_path / "out"]
    assert "need the package pyarrow" in refused(capsys, *command)
    assert not [path for path in tmp_path.iterdir() if path.name.startswith("out")]


HOSTILE_IDS = [0, -1, 1, 2**31, 2**32, 2**63 - 1, 2**63 - 2, -(2**63), -(2**63) + 1, 12345678901234]


def test_saved_model_of_one_table(tmp_path, capsys):
    saved = chain(tmp_path).saved[-1]
    command = ["export", saved.prefix, "--format", "saved_model", "--to", tmp_path / "out"]
    message = "embedding variable 'items': gives ids without a row random initial rows"
    assert message in refused(capsys, *command)
    assert run(capsys, *command, "--absent", "zeros")[0] == 0
    ids = [*HOSTILE_IDS, *saved.rows, *HOSTILE_IDS]
    found = load_elsewhere(tmp_path / "out", ids)
    assert found.keys() == {"items", "serving_default"}
    for rows in found.values():
        np.testing.assert_array_equal(rows, wanted(saved, ids))


@pytest.mark.parametrize("rows_of", [[2**63 - 1], [], [-(2**63)]])
def test_saved_model_of_few_rows(tmp_path, capsys, rows_of):
    made = History(tmp_path, np.random.default_rng(0), shards=1)
    for key in rows_of:
        made._set(key)
    saved = made.save("model.ckpt-0")
    command = ["export", saved.prefix, "--format", "saved_model", "--to", tmp_path / "out"]
    assert run(capsys, *command, "--absent", "1.5")[0] == 0
    rows = load_elsewhere(tmp_path / "out", HOSTILE_IDS)["items"]
    np.testing.assert_array_equal(rows, wanted(saved, HOSTILE_IDS, 1.5))


def test_saved_model_of_several_tables(tmp_path, capsys):
    admitted = table_description(name="scope/users", admission=COUNTER)
    others = [table_description(name=name) for name in ("scope_users", "left out")]
    one, two, *_ = together(tmp_path, table_description(), admitted, *others)
    tables = ["--table", "items", "--table", "scope/users", "--table", "scope_users"]
    command = ["export", tmp_path / "model.ckpt-2", "--format", "saved_model", "--to", tmp_path / "out"]
    error = refused(capsys, *command, *tables, "--absent", "zeros", "--absent", "items=1")
    assert "--absent is given for all tables and for one" in error
    absent = ["--absent", "items=zeros", "--absent", "scope_users=2.5"]
    assert run(capsys, *command, *tables, *absent)[0] == 0
    found = load_elsewhere(tmp_path / "out", HOSTILE_IDS)
    assert found.keys() == {"items", "scope_users", "scope_users_1"}
    np.testing.assert_array_equal(found["items"], wanted(one.saved[-1], HOSTILE_IDS))
    # 0.25 is the value of ids without a row, from the admission options.
    np.testing.assert_array_equal(found["scope_users"], wanted(two.saved[-1], HOSTILE_IDS, 0.25))


# Keys are rows of a variable, so checkpoint_other_systems_test has other keys for it. "checkpoint" is what
# convert writes of other systems' checkpoints.
@pytest.mark.parametrize(
    "file_format", [name for name in exporting.FORMATS if name not in ("variable", "checkpoint")]
)
def test_damaged_checkpoints_leave_nothing_behind(tmp_path, capsys, file_format):
    saved = chain(tmp_path).saved[-1]
    path = tmp_path / "model.ckpt-2.data-00001-of-00002"
    values = saved.tensors["items#1/values"].tobytes()
    path.write_bytes(path.read_bytes().replace(values, values[:-1] + bytes([values[-1] ^ 1])))
    absent = ["--absent", "zeros"] if file_format == "saved_model" else []
    command = ["export", saved.prefix, "--format", file_format, "--to", tmp_path / "out", *absent]
    assert f"{path}:items#1/values' is damaged" in refused(capsys, *command)
    assert not [left for left in tmp_path.iterdir() if left.name.startswith("out")]


def test_existing_files_are_not_overwritten(tmp_path, capsys):
    saved = chain(tmp_path).saved[-1]
    (tmp_path / "out").mkdir()
    command = ["export", saved.prefix, "--format", "npy", "--to"]
    assert "exists already" in refused(capsys, *command, tmp_path / "out")
    assert "no such folder" in refused(capsys, *command, tmp_path / "no" / "out")
    assert "--absent works with saved_model" in refused(capsys, *command, tmp_path / "new", "--absent", "1")


@pytest.mark.parametrize("admission", [None, COUNTER, BLOOM, BLOCKS])
def test_compact_is_the_same_state(tmp_path, capsys, admission):
    made = chain(tmp_path, seed=4, shards=3, table=table_description(admission=admission))
    last = made.saved[-1].prefix
    assert run(capsys, "compact", last, "--to", tmp_path / "new") == (0, "", "")
    compacted = open_checkpoint(tmp_path / "new")
    assert list(problems(compacted)) == []
    table = compacted.tables[0].open()
    assert not table.last.is_delta and len(table.links) == 1 and len(table.last.shards) == 3
    assert table.last.rows == len(made.saved[-1].rows)
    assert compare(open_checkpoint(last).tables[0].open(), table).is_empty
    for path in tmp_path.glob("model.ckpt-*"):
        path.unlink()
    assert list(problems(compacted)) == []


def test_compact_copies_ordinary_variables(tmp_path, capsys):
    saved = chain(tmp_path).saved[-1]
    prefix = tmp_path / "model.ckpt-2"
    others = {
        "dense": np.arange(6, dtype=np.float32).reshape(2, 3),
        "step": np.int64(2**40),
        "words": np.array([b"a", b"\xff"], object),
        "half": np.array([1.5, 2.5], tf.bfloat16.as_numpy_dtype),
        "flag": np.array([True, False]),
    }
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        tensors = {**others, **saved.tensors}
        session.run(
            tf.raw_ops.SaveV2(
                prefix=str(prefix),
                tensor_names=list(tensors),
                shape_and_slices=[""] * len(tensors),
                tensors=[*map(tf.constant, tensors.values())],
            )
        )
    # TensorFlow does not align arrays, which readers do not need.
    assert list(problems(open_checkpoint(prefix))) == []
    assert run(capsys, "compact", prefix, "--to", tmp_path / "new") == (0, "", "")
    reader = tf.train.load_checkpoint(str(tmp_path / "new"))
    for name, value in others.items():
        found = reader.get_tensor(name)
        np.testing.assert_array_equal(found, value)
        assert np.asarray(found).dtype == np.asarray(value).dtype
    assert {*others, "items", "#sok"} <= reader.get_variable_to_shape_map().keys()
    assert list(problems(open_checkpoint(tmp_path / "new"))) == []


def test_compact_refuses(tmp_path, capsys):
    made = chain(tmp_path)
    last = made.saved[-1].prefix
    (tmp_path / "here.index").write_text("")
    assert "exists already" in refused(capsys, "compact", last, "--to", tmp_path / "here")
    assert "no such folder" in refused(capsys, "compact", last, "--to", tmp_path / "no" / "new")
    made.train()
    last = made.save("model.ckpt-3", delta=True, lagging=True).prefix
    assert list(problems(open_checkpoint(last))) == []
    for command in (["export", "--format", "npy"], ["diff"], ["inspect", "--id", "3"]):
        more = {"diff": [last], "inspect": []}.get(command[0], ["--to", tmp_path / "new"])
        error = refused(capsys, *command, last, *more)
        assert "is a delta of exact Adam" in error and "Make a full checkpoint of it first" in error
    assert not list(tmp_path.glob("new*"))


DIM = 4
IDS = np.concatenate([harness.HOSTILE_KEYS, np.arange(40)])
UNSEEN = [12345, -98765, 2**50]


class Trained:
    """A graph with tables that are trained."""

    def __init__(self, session, optimizer, **tables):
        self.session = session
        self.tables = {name: sok.EmbeddingVariable(name, DIM, **options) for name, options in tables.items()}
        self.ids = tf.compat.v1.placeholder(tf.int64, [None])
        rows = [
            tf.nn.embedding_lookup(table, tf.cast(self.ids, table.key_dtype))
            for table in self.tables.values()
        ]
        self.train = optimizer.minimize(tf.add_n([tf.reduce_sum(tf.sin(3 * part)) for part in rows]))
        harness.initialize(session)

    def step(self, ids):
        self.session.run(self.train, {self.ids: ids})

    def rows(self, name, ids):
        """Rows of lookups without training, which a served table must return."""
        from sparse_operation_kit.lookup.group import DenseLookup, lookup_group

        table = self.tables[name]
        lookup = DenseLookup(table, tf.constant(np.asarray(ids), table.key_dtype))
        return self.session.run(lookup_group([lookup], training=False)[0])


OPTIMIZERS = {
    "sgd": lambda: tf.compat.v1.train.GradientDescentOptimizer(0.1),
    "momentum": lambda: tf.compat.v1.train.MomentumOptimizer(0.1, 0.9),
    "lazy_adam": lambda: sok.tf.keras.optimizers.LazyAdamOptimizer(0.1),
    "adam": lambda: tf.compat.v1.train.AdamOptimizer(0.1),
}


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_full_checkpoint(tmp_path, capsys, optimizer):
    with harness.graph_and_session() as session:
        made = Trained(
            session, OPTIMIZERS[optimizer](), **{"scope/items": {}, "users": {"initializer": "ones"}}
        )
        saver = tf.compat.v1.train.Saver()
        for step in range(3):
            made.step(IDS[step * 5 :])
        saver.save(session, str(tmp_path / "model"), global_step=3)
        wanted = {name: made.rows(name, IDS) for name in made.tables}
    assert list(problems(open_checkpoint(tmp_path))) == []
    assert run(capsys, "verify", tmp_path)[0] == 0
    assert f"{optimizer}, 3 steps" in run(capsys, "inspect", tmp_path)[1]
    for entry in open_checkpoint(tmp_path).tables:
        table = entry.open()
        for key, row in zip_equal(IDS.tolist(), wanted[entry.name]):
            np.testing.assert_array_equal(find_row(table, key)["values"], row)
    assert run(capsys, "diff", tmp_path, tmp_path / "model-3")[0] == 0


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_chain_and_its_compaction(tmp_path, capsys, optimizer):
    train = tf.compat.v1.train
    with tf.Graph().as_default():
        step = train.get_or_create_global_step()
        with tf.control_dependencies([harness.init()]):
            table = sok.EmbeddingVariable("items", DIM)
        rows = tf.nn.embedding_lookup(table, step * 5 + tf.range(20, dtype=tf.int64))
        update = OPTIMIZERS[optimizer]().minimize(tf.reduce_sum(tf.sin(rows)), global_step=step)
        hook = sok.IncrementalCheckpointHook(str(tmp_path), save_steps=2)
        with train.MonitoredTrainingSession(hooks=[hook]) as session:
            for _ in range(7):
                session.run(update)
    chain = open_checkpoint(tmp_path).tables[0].open()
    assert chain.last.is_delta and len(chain.links) > 2
    assert chain.is_lagging == (optimizer == "adam")
    assert run(capsys, "verify", tmp_path)[0] == 0
    assert run(capsys, "compact", tmp_path, "--to", tmp_path / "new")[0] == 0
    assert run(capsys, "verify", tmp_path / "new")[0] == 0
    compacted = open_checkpoint(tmp_path / "new").tables[0].open()
    if not chain.is_lagging:
        assert compare(chain, compacted).is_empty
    ids = np.arange(50)
    with harness.graph_and_session() as session:
        made = Trained(session, OPTIMIZERS[optimizer](), items={})
        train.Saver([made.tables["items"]]).restore(session, tf.train.latest_checkpoint(tmp_path))
        wanted = made.rows("items", ids)
    for key, row in zip_equal(ids.tolist(), wanted):
        np.testing.assert_array_equal(find_row(compacted, key)["values"], row)


@pytest.mark.parametrize(
    ("file_format", "key_dtype"),
    [
        ("saved_model", tf.int64),
        ("saved_model", tf.uint32),
        ("saved_model_sok", tf.int64),
        ("saved_model_sok", tf.int32),
    ],
)
def test_exported_tables_answer_as_the_trained_ones(tmp_path, capsys, file_format, key_dtype):
    info = np.iinfo(key_dtype.as_numpy_dtype)
    ids = IDS[(IDS >= info.min) & (IDS <= info.max)]
    unseen = [i for i in UNSEEN if info.min <= i <= info.max]
    initializer = sok.InitializerOption(default_value_no_permission=-3.5)
    admissions = {
        "counter": sok.CounterFilter(filter_freq=4),
        "bloom": sok.CBFFilter(filter_freq=4, max_element_size=1000, false_positive_probability=1e-6),
    }
    with harness.graph_and_session() as session:
        made = Trained(
            session,
            OPTIMIZERS["lazy_adam"](),
            items={"key_dtype": key_dtype},
            normal={"key_dtype": key_dtype, "initializer": tf.compat.v1.random_normal_initializer(0.1, 0.2)},
            bounded={"key_dtype": key_dtype, "capacity": 100, "initializer": 0.25},
            **{
                name: {"key_dtype": key_dtype, "admission": admission, "initializer": initializer}
                for name, admission in admissions.items()
            },
        )
        for step in range(3):
            made.step(ids[step:])
        made.step(ids[:20])  # whose fourth occurrence it is
        tf.compat.v1.train.Saver().save(session, str(tmp_path / "model"))
        wanted = {name: made.rows(name, [*ids, *unseen]) for name in made.tables}
    for name in admissions:
        assert (wanted[name][20:] == -3.5).all() and not (wanted[name][2:20] == -3.5).any()
    assert run(capsys, "verify", tmp_path)[0] == 0
    is_stock = file_format == "saved_model"
    absent = ["--absent", "items=0", "--absent", "normal=zeros"] if is_stock else []
    assert run(capsys, "export", tmp_path, "--format", file_format, "--to", tmp_path / "1", *absent)[0] == 0
    hidden = ["sparse_operation_kit"] if is_stock else []
    found = saved_files.serve(tmp_path / "1", [*ids, *unseen], *hidden)
    assert found.keys() == wanted.keys()
    for name, rows in found.items():
        if is_stock and name in ("items", "normal"):
            wanted[name][len(ids) :] = 0
        np.testing.assert_array_equal(rows, wanted[name])


@pytest.mark.parametrize("file_format", ["saved_model", "saved_model_sok"])
def test_a_table_without_hashing(tmp_path, capsys, file_format):
    with harness.graph_and_session() as session:
        made = Trained(session, OPTIMIZERS["sgd"](), direct={"use_hashtable": False, "capacity": 60})
        made.step(np.arange(0, 60, 7))
        tf.compat.v1.train.Saver().save(session, str(tmp_path / "model"))
        wanted = made.rows("direct", np.arange(60))
    assert run(capsys, "verify", tmp_path)[0] == 0
    assert run(capsys, "export", tmp_path, "--format", file_format, "--to", tmp_path / "1")[0] == 0
    found = saved_files.serve(tmp_path / "1", np.arange(60))
    assert found.keys() == {"direct", "serving_default"}
    np.testing.assert_array_equal(found["serving_default"], wanted)


def test_compaction_restores_in_training(tmp_path, capsys):
    with harness.graph_and_session() as session:
        made = Trained(session, OPTIMIZERS["lazy_adam"](), items={})
        weight = tf.compat.v1.get_variable("weight", initializer=[1.0, 2.0])
        harness.initialize(session)
        saver = tf.compat.v1.train.Saver()
        made.step(IDS)
        saver.save(session, str(tmp_path / "model"))
        session.run(weight.assign([3.0, 4.0]))
        assert run(capsys, "compact", tmp_path / "model", "--to", tmp_path / "new")[0] == 0
        made.step(IDS)
        wanted = made.rows("items", IDS)
        saver.restore(session, str(tmp_path / "new"))
        assert session.run(weight).tolist() == [1.0, 2.0]
        made.step(IDS)
        np.testing.assert_array_equal(made.rows("items", IDS), wanted)
    tables = [open_checkpoint(tmp_path / name).tables[0].open() for name in ("model", "new")]
    assert compare(*tables).is_empty
    assert sum(len(block.keys) for block in row_blocks(tables[1])) == len(set(IDS.tolist()))


def test_a_filter_of_many_elements_takes_memory_and_disk_for_those_it_has(tmp_path, capsys):
    """DeepRec's scripts ask for 2^30 elements, whose counters would take 87 GB."""
    admission = sok.CBFFilter(3, max_element_size=2**30, false_positive_probability=0.01)
    keys = np.random.default_rng(0).integers(-(2**63), 2**63 - 1, 300)
    with harness.graph_and_session() as session:
        made = Trained(session, OPTIMIZERS["sgd"](), items={"admission": admission})
        saver = tf.compat.v1.train.Saver()
        made.step(np.concatenate([keys[:100], keys[:100], keys[100:]]))
        assert session.run(made.tables["items"].size()) == 0
        saver.save(session, str(tmp_path / "model"))
    (entry,) = open_checkpoint(tmp_path / "model").tables
    assert sum(link.bytes for link in entry.open().links) < 300 * 7 * 80
    assert run(capsys, "verify", tmp_path / "model")[0] == 0
    with harness.graph_and_session() as session:
        made = Trained(session, OPTIMIZERS["sgd"](), items={"admission": admission})
        tf.compat.v1.train.Saver().restore(session, str(tmp_path / "model"))
        # Those with two occurrences have their third, the others their second.
        made.step(keys)
        assert session.run(made.tables["items"].size()) == 100
        assert session.run(made.tables["items"].get_frequency(keys[99:101])).tolist() == [3, 0]
