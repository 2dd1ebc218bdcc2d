"""The command line on checkpoints of trained tables; exported tables serve lookups."""

import numpy as np
import pytest
import tensorflow as tf

import harness
import saved_files
import sparse_operation_kit as sok
from same_length import zip_equal
from sparse_operation_kit.checkpoint import cli, compare, find_row, open_checkpoint, problems, row_blocks

DIM = 4
IDS = np.concatenate([harness.HOSTILE_KEYS, np.arange(40)])
UNSEEN = [12345, -98765, 2**50]


def run(*arguments):
    return cli.main([str(argument) for argument in arguments])


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
    assert run("verify", tmp_path) == 0
    assert run("inspect", tmp_path) == 0
    assert f"{optimizer}, 3 steps" in capsys.readouterr().out
    for entry in open_checkpoint(tmp_path).tables:
        table = entry.open()
        for key, row in zip_equal(IDS.tolist(), wanted[entry.name]):
            np.testing.assert_array_equal(find_row(table, key)["values"], row)
    assert run("diff", tmp_path, tmp_path / "model-3") == 0


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_chain_and_its_compaction(tmp_path, optimizer):
    train = tf.compat.v1.train
    with tf.Graph().as_default():
        step = train.get_or_create_global_step()
        with tf.control_dependencies(
            [sok.Init(global_batch_size=harness.GLOBAL_BATCH_SIZE, seed=harness.SEED)]
        ):
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
    assert run("verify", tmp_path) == 0
    assert run("compact", tmp_path, "--to", tmp_path / "new") == 0
    assert run("verify", tmp_path / "new") == 0
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
def test_exported_tables_answer_as_the_trained_ones(tmp_path, file_format, key_dtype):
    info = np.iinfo(key_dtype.as_numpy_dtype)
    ids = IDS[(IDS >= info.min) & (IDS <= info.max)]
    unseen = [i for i in UNSEEN if info.min <= i <= info.max]
    with harness.graph_and_session() as session:
        made = Trained(
            session,
            OPTIMIZERS["lazy_adam"](),
            items={"key_dtype": key_dtype},
            normal={"key_dtype": key_dtype, "initializer": tf.compat.v1.random_normal_initializer(0.1, 0.2)},
            bounded={"key_dtype": key_dtype, "capacity": 100, "initializer": 0.25},
        )
        for step in range(3):
            made.step(ids[step:])
        tf.compat.v1.train.Saver().save(session, str(tmp_path / "model"))
        wanted = {name: made.rows(name, [*ids, *unseen]) for name in made.tables}
    is_stock = file_format == "saved_model"
    absent = ["--absent", "items=0", "--absent", "normal=zeros"] if is_stock else []
    assert run("export", tmp_path, "--format", file_format, "--to", tmp_path / "1", *absent) == 0
    hidden = ["sparse_operation_kit"] if is_stock else []
    found = saved_files.serve(tmp_path / "1", [*ids, *unseen], *hidden)
    assert found.keys() == wanted.keys()
    for name, rows in found.items():
        if is_stock and name != "bounded":
            wanted[name][len(ids) :] = 0
        np.testing.assert_array_equal(rows, wanted[name])


@pytest.mark.parametrize("file_format", ["saved_model", "saved_model_sok"])
def test_a_table_without_hashing(tmp_path, file_format):
    with harness.graph_and_session() as session:
        made = Trained(session, OPTIMIZERS["sgd"](), direct={"use_hashtable": False, "capacity": 60})
        made.step(np.arange(0, 60, 7))
        tf.compat.v1.train.Saver().save(session, str(tmp_path / "model"))
        wanted = made.rows("direct", np.arange(60))
    assert run("verify", tmp_path) == 0
    assert run("export", tmp_path, "--format", file_format, "--to", tmp_path / "1") == 0
    found = saved_files.serve(tmp_path / "1", np.arange(60))
    assert found.keys() == {"direct", "serving_default"}
    np.testing.assert_array_equal(found["serving_default"], wanted)


@pytest.mark.parametrize("file_format", ["saved_model", "saved_model_sok"])
def test_tables_with_admission(tmp_path, file_format):
    admissions = {
        "counter": sok.CounterFilter(filter_freq=2),
        "bloom": sok.CBFFilter(filter_freq=2, max_element_size=1000, false_positive_probability=1e-6),
    }
    initializer = sok.InitializerOption(default_value_no_permission=-3.5)
    with harness.graph_and_session() as session:
        options = {
            kind: {"admission": admission, "initializer": initializer}
            for kind, admission in admissions.items()
        }
        made = Trained(session, OPTIMIZERS["lazy_adam"](), **options)
        made.step(IDS)
        made.step(IDS[:20])
        tf.compat.v1.train.Saver().save(session, str(tmp_path / "model"))
        wanted = {kind: made.rows(kind, [*IDS, *UNSEEN]) for kind in admissions}
    for rows in wanted.values():
        assert (rows[20:] == -3.5).all() and not (rows[:20] == -3.5).any()
    assert run("verify", tmp_path) == 0
    assert run("export", tmp_path, "--format", file_format, "--to", tmp_path / "1") == 0
    found = saved_files.serve(tmp_path / "1", [*IDS, *UNSEEN])
    for kind, rows in wanted.items():
        np.testing.assert_array_equal(found[kind], rows)


def test_compaction_restores_in_training(tmp_path):
    with harness.graph_and_session() as session:
        made = Trained(session, OPTIMIZERS["lazy_adam"](), items={})
        weight = tf.compat.v1.get_variable("weight", initializer=[1.0, 2.0])
        harness.initialize(session)
        saver = tf.compat.v1.train.Saver()
        made.step(IDS)
        saver.save(session, str(tmp_path / "model"))
        session.run(weight.assign([3.0, 4.0]))
        assert run("compact", tmp_path / "model", "--to", tmp_path / "new") == 0
        made.step(IDS)
        wanted = made.rows("items", IDS)
        saver.restore(session, str(tmp_path / "new"))
        assert session.run(weight).tolist() == [1.0, 2.0]
        made.step(IDS)
        np.testing.assert_array_equal(made.rows("items", IDS), wanted)
    tables = [open_checkpoint(tmp_path / name).tables[0].open() for name in ("model", "new")]
    assert compare(*tables).is_empty
    assert sum(len(block.keys) for block in row_blocks(tables[1])) == len(set(IDS.tolist()))


def test_a_filter_of_many_elements_takes_memory_and_disk_for_those_it_has(tmp_path):
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
    assert run("verify", tmp_path / "model") == 0
    with harness.graph_and_session() as session:
        made = Trained(session, OPTIMIZERS["sgd"](), items={"admission": admission})
        tf.compat.v1.train.Saver().restore(session, str(tmp_path / "model"))
        # Those with two occurrences have their third, the others their second.
        made.step(keys)
        assert session.run(made.tables["items"].size()) == 100
        assert session.run(made.tables["items"].get_frequency(keys[99:101])).tolist() == [3, 0]
