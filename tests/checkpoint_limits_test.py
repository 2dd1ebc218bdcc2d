# Not on GPUs: files, which are the same: see gpu_checkpoints_test
"""Saving and restoring with limited memory, with limited disk space, and beside a training thread."""

import re
import resource
import signal
import threading

import numpy as np
import pytest
import tensorflow as tf

import forked
import harness
import saved_files
import sparse_operation_kit as sok
from sparse_operation_kit.checkpoint import reader

train = tf.compat.v1.train
session = harness.session


class Model:
    """A table, the sum of fed keys' rows, and a Saver."""

    def __init__(self, session, dim):
        self.keys = tf.compat.v1.placeholder(tf.int64, [None])
        self.table = sok.EmbeddingVariable(name="table", dim=dim)
        self.rows = tf.nn.embedding_lookup(self.table, self.keys)
        self.saver = train.Saver()
        harness.initialize(session)


def _megabytes(what):
    """What /proc says of the memory of this process."""
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) // 1024 for line in file if line.startswith(what))


def measure(path):
    """Prints by how much memory grows in a save, in a restore, and in one beside the old table."""

    def peak():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024

    rows = 1_250_000
    with harness.graph_and_session() as session:
        model = Model(session, 60)
        looked_up = tf.reduce_sum(model.rows)
        model.saver.save(session, f"{path}-small")
        for begin in range(0, rows, 10_000):
            session.run(looked_up, {model.keys: np.arange(begin, begin + 10_000)})
        before = max(_megabytes("VmRSS"), peak())
        model.saver.save(session, path)
        print("save", peak() - before)
        session.run(model.table.initializer)
        model.saver.restore(session, path)
        print("restore", peak() - before)
        model.saver.restore(session, path)
        print("beside", peak() - before)
        assert session.run(model.table.size()) == rows


def restore_with_too_little_memory(path):
    """Prints the error of a restore that has memory for half of a table."""
    dim, rows = 256, 100_000
    with harness.graph_and_session() as session:
        model = Model(session, dim)
        session.run(model.rows.op, {model.keys: np.arange(rows)})
        model.saver.save(session, path)
        model.saver.restore(session, path)  # makes what stays in memory
        session.run(model.table.assign_rows(np.array([7], np.int64), np.full([1, dim], 5, np.float32)))
        limit = (_megabytes("VmData:") << 20) + 4 * dim * rows // 2
        resource.setrlimit(resource.RLIMIT_DATA, (limit, resource.RLIM_INFINITY))
        try:
            model.saver.restore(session, path)
        except tf.errors.ResourceExhaustedError as error:
            print(error.message)
        assert session.run(model.table.size()) == rows
        assert (session.run(model.rows, {model.keys: [7]}) == 5).all()
        session.run(model.table.initializer)
        model.saver.restore(session, path)
        assert session.run(model.table.size()) == rows
        assert (session.run(model.rows, {model.keys: [7]}) != 5).all()


def _output_of(function, path):
    """What a function prints in a new process, whose memory only it has used."""
    code = f"import checkpoint_limits_test as it; it.{function.__name__}({str(path)!r})"
    return forked.succeeded(forked.run_interpreter("-c", code))


def test_a_restore_without_memory_for_two_tables_says_what_helps(tmp_path):
    """It changes nothing; after the initializer, there is memory for one."""
    wanted = "Embedding variable 'table'.* cannot allocate [0-9]+ bytes .*100000 rows .*initializer first"
    output = _output_of(restore_with_too_little_memory, tmp_path / "model")
    assert re.search(wanted, output), output


def test_memory_beyond_the_table_is_small(tmp_path):
    """Saving a table of 300 MB takes at most 64 MiB more memory, and so does restoring it.

    Until a table is replaced, the old one and the new one are in memory.
    """
    output = _output_of(measure, tmp_path / "model")
    grown = {line.split()[0]: int(line.split()[1]) for line in output.splitlines()}
    assert grown.keys() == {"save", "restore", "beside"}
    assert max(grown["save"], grown["restore"]) <= 64, grown
    assert grown["beside"] <= 340 + 64, grown


@pytest.fixture
def limit_files():
    """A function that limits the size of files."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    yield lambda size: resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    resource.setrlimit(resource.RLIMIT_FSIZE, before)
    signal.signal(signal.SIGXFSZ, handler)


@pytest.mark.parametrize("limit", [0, 100, 4096, 70_000])
def test_a_full_disk_is_an_error_and_training_can_continue(session, tmp_path, limit_files, limit):
    table = sok.EmbeddingVariable(name="table", dim=8)
    rows = tf.nn.embedding_lookup(table, np.arange(3000))
    step = train.AdagradOptimizer(0.1).minimize(tf.reduce_sum(tf.square(rows)))
    saver = train.Saver(max_to_keep=2)
    harness.initialize(session)
    session.run(step)
    good = saver.save(session, str(tmp_path / "model"), global_step=1)
    want = session.run(rows)
    session.run(step)
    limit_files(limit)
    with pytest.raises(tf.errors.OpError):
        saver.save(session, str(tmp_path / "model"), global_step=2)
    limit_files(resource.RLIM_INFINITY)
    session.run(step)
    after = session.run(rows)
    assert train.latest_checkpoint(str(tmp_path)) == good
    assert saved_files.bases(tmp_path) == ["model-1"]
    last = saver.save(session, str(tmp_path / "model"), global_step=3)
    saver.restore(session, good)
    np.testing.assert_array_equal(session.run(rows), want)
    saver.restore(session, last)
    np.testing.assert_array_equal(session.run(rows), after)


def test_a_directory_that_cannot_be_written_to(session, tmp_path):
    (tmp_path / "file").write_text("")
    sok.EmbeddingVariable(name="table", dim=8)
    saver = train.Saver()
    harness.initialize(session)
    with pytest.raises(tf.errors.UnimplementedError, match="gs://bucket/model"):
        saver.save(session, "gs://bucket/model")
    with pytest.raises((tf.errors.OpError, ValueError), match="file"):
        saver.save(session, str(tmp_path / "file" / "model"))


def test_saving_beside_a_thread_that_trains(tmp_path):
    """Every step adds one to all rows, so that in a consistent checkpoint all rows are equal."""
    with harness.graph_and_session(4) as session:
        table = sok.EmbeddingVariable(name="table", dim=32, initializer=0.0)
        keys = tf.compat.v1.placeholder(tf.int64, [None])
        loss = -tf.reduce_sum(tf.nn.embedding_lookup(table, keys))
        step = train.GradientDescentOptimizer(1.0).minimize(loss)
        saver = train.Saver(max_to_keep=100)
        harness.initialize(session)
        done = threading.Event()
        errors = []

        def train_steps():
            try:
                for _ in range(150):
                    session.run(step, {keys: np.arange(2000)})
            except Exception as error:  # noqa: BLE001 - shown by the assertion below
                errors.append(error)
            done.set()

        thread = threading.Thread(target=train_steps)
        thread.start()
        paths = []
        while not done.is_set() or not paths:
            paths.append(saver.save(session, str(tmp_path / "model"), global_step=len(paths)))
        thread.join()
        assert not errors
    for path in paths[:10] + paths[-10:]:
        values = harness.saved_tables(path)["table"]["values"]
        # The first checkpoint may be saved before the first step.
        assert values.size == 0 or np.all(values == values.flat[0])


def test_a_table_without_hashing_is_replaced_as_well(session, tmp_path):
    """Such a table has all its rows from the start."""
    table = sok.EmbeddingVariable(name="table", dim=2, capacity=50, use_hashtable=False)
    rows = tf.nn.embedding_lookup(table, np.arange(50))
    step = train.AdagradOptimizer(0.1).minimize(tf.reduce_sum(tf.square(rows)))
    saver = train.Saver()
    harness.initialize(session)
    session.run(step)
    path = saver.save(session, str(tmp_path / "model"))
    want = session.run(rows)
    session.run(step)
    saver.restore(session, path)
    np.testing.assert_array_equal(session.run(rows), want)
    assert session.run(table.size()) == 50


@pytest.mark.parametrize("array", ["keys", "values", "slot-accumulator", "frequency"])
def test_damage_at_the_end_of_the_last_table_changes_nothing(session, tmp_path, array):
    """A restore that fails leaves the rows, slots, counts and steps of all tables, and ordinary variables."""
    tables = [
        sok.EmbeddingVariable(name=name, dim=dim, admission=sok.CounterFilter(1))
        for name, dim in (("a", 2), ("b", 1024))
    ]
    rows = [tf.nn.embedding_lookup(table, np.arange(600)) for table in tables]
    dense = tf.compat.v1.get_variable("dense", initializer=1.0)
    step = train.AdagradOptimizer(0.1).minimize(
        tf.add_n([tf.reduce_sum(of_table) for of_table in rows]) * dense
    )
    saver = train.Saver()
    harness.initialize(session)
    session.run(step)
    path = saver.save(session, str(tmp_path / "model"))
    session.run(step)
    before = saver.save(session, str(tmp_path / "before"))
    found = reader.open_saved(path).open_table("b").links[0]["shards"][0]["arrays"][array]
    last = found["offset"] + harness.saved_tables(path)["b"][array].nbytes - 1
    _change_byte(found["file"], last)
    with pytest.raises(tf.errors.DataLossError, match=re.escape(found["file"])):
        saver.restore(session, path)
    after = saver.save(session, str(tmp_path / "after"))
    harness.assert_equal_arrays(_contents(after), _contents(before))
    _change_byte(found["file"], last)
    saver.restore(session, path)
    assert not np.array_equal(session.run(dense), tf.train.load_checkpoint(after).get_tensor("dense"))


def _contents(path):
    """What is saved of all tables, their steps included, and the dense variable."""
    tables = harness.saved_tables(path)
    arrays = [tables[name][array] for name in sorted(tables) for array in sorted(tables[name])]
    tensors = tf.train.load_checkpoint(path)
    return [*arrays, *(tensors.get_tensor(name) for name in ("dense", *sorted(tables)))]


def _change_byte(path, offset):
    with open(path, "r+b") as file:
        file.seek(offset)
        byte = file.read(1)[0]
        file.seek(offset)
        file.write(bytes([byte ^ 1]))
