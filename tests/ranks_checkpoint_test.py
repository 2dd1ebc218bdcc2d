# Tags: slow
"""tf.compat.v1.train.Saver over ranks: one checkpoint for all, which any number of ranks can restore."""

from __future__ import annotations

import contextlib
import os
import pathlib
import shutil

import numpy as np
import pytest
import tensorflow as tf

import harness
import ranks
import saved_files
import sparse_operation_kit as sok
from device_of_tests import sized
from sparse_operation_kit.ranks.communicator import communicator

train = tf.compat.v1.train
DIM = 3
KEYS = np.unique(np.concatenate([harness.HOSTILE_KEYS, np.arange(500, dtype=np.int64) * 7 - 900]))
OPTIMIZERS = {
    "sgd": lambda: train.GradientDescentOptimizer(0.1),
    "nesterov": lambda: train.MomentumOptimizer(0.1, 0.9, use_nesterov=True),
    "adagrad": lambda: train.AdagradOptimizer(0.1),
    "rmsprop": lambda: train.RMSPropOptimizer(0.1, momentum=0.5, centered=True),
    "adadelta": lambda: train.AdadeltaOptimizer(10.0),
    "ftrl": lambda: train.FtrlOptimizer(0.1, l1_regularization_strength=0.01),
    "adam": lambda: train.AdamOptimizer(0.1),
    "lazy_adam": lambda: sok.tf.keras.optimizers.LazyAdamOptimizer(0.1),
    "rowwise_adagrad": lambda: sok.optimizers.RowWiseAdagrad(0.1),
}
# By number of ranks, the optimizers whose checkpoints they save: each once, and one for all numbers.
SAVED = sized(
    {
        1: ("adagrad", "sgd", "ftrl"),
        2: ("adagrad", "nesterov", "adadelta", "lazy_adam"),
        3: ("adagrad", "rmsprop", "adam", "rowwise_adagrad"),
    },
    {2: ("adagrad", "rowwise_adagrad"), 3: ("adagrad", "adam")},
)
# By number of ranks, the numbers of ranks whose checkpoints they restore.
RESTORED = sized({1: [3], 2: [2, 1], 3: [2]}, {1: [3], 2: [], 3: [2]})


class Model:
    """A dense variable, and a table of which each step touches some of KEYS, the same on all ranks."""

    def __init__(self, optimizer="adagrad"):
        self.keys = tf.compat.v1.placeholder(tf.int64, [None])
        self.table = sok.EmbeddingVariable("scope/table", DIM)
        self.rows = tf.nn.embedding_lookup(self.table, self.keys)
        self.dense = tf.compat.v1.get_variable("dense", initializer=1.0)
        loss = tf.reduce_sum(tf.square(self.rows)) / communicator().size
        self.train = OPTIMIZERS[optimizer]().minimize(loss, var_list=[self.table])
        self.saver = train.Saver(max_to_keep=2)

    def step(self, session, number):
        session.run(self.train, {self.keys: np.random.default_rng(number).choice(KEYS, 200)})

    def contents(self, session):
        return session.run(self.rows, {self.keys: KEYS})


def _go_on(folder: str) -> None:
    """A session of a job with checkpoints of both kinds; on three ranks it ends by an error.

    Each step adds 1 to the row of its number.
    """
    with tf.Graph().as_default(), contextlib.suppress(InterruptedError):
        sok.Init(global_batch_size=communicator().size, seed=harness.SEED)
        step = train.get_or_create_global_step()
        table = sok.EmbeddingVariable("table", dim=1, initializer=0.0)
        rows = tf.nn.embedding_lookup(table, tf.range(100, dtype=tf.int64))[:, 0]
        loss = -tf.reduce_sum(tf.nn.embedding_lookup(table, tf.expand_dims(step, 0)))
        op = train.GradientDescentOptimizer(1.0).minimize(loss / communicator().size, step)
        with train.MonitoredTrainingSession(
            checkpoint_dir=folder,
            save_checkpoint_steps=6,
            hooks=[sok.IncrementalCheckpointHook(folder, save_steps=2, max_to_keep=2)],
            scaffold=train.Scaffold(saver=train.Saver(max_to_keep=2)),
            save_summaries_steps=None,
            save_summaries_secs=None,
            log_step_count_steps=None,
        ) as session:
            at, found = session.run([step, rows])
            np.testing.assert_array_equal(found, np.arange(100) < at)
            for _ in range(11):
                session.run(op)
            if communicator().size == 3:
                raise InterruptedError


def _save_all(folder: str, job: str) -> dict[str, np.ndarray]:
    """Saves a checkpoint for each optimizer; returns the rows of KEYS after one more step, by optimizer.

    Before that, goes on with the job in the folder `job`.
    """
    _go_on(job)
    results = {}
    for name in SAVED[communicator().size]:
        with harness.graph_and_session() as session:
            model = Model(name)
            harness.initialize(session)
            for number in range(3):
                model.step(session, number)
            session.run(model.dense.assign(5.0))
            model.saver.save(session, f"{folder}/{name}", global_step=3)
            model.step(session, 3)
            results[name] = model.contents(session)
    return results


def _restore_all(folders: dict[int, str]) -> dict[tuple[int, str], np.ndarray]:
    """By number of ranks that saved and optimizer, the rows of KEYS after one more step."""
    results = {}
    for ranks_, name in [(size, name) for size in folders for name in SAVED[size]]:
        with harness.graph_and_session() as session:
            model = Model(name)
            model.saver.restore(session, f"{folders[ranks_]}/{name}-3")
            assert session.run(model.dense) == 5.0
            model.step(session, 3)
            results[ranks_, name] = model.contents(session)
    return results


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    """The folder of the job that `saved` runs on fewer and fewer ranks."""
    return tmp_path_factory.mktemp("job")


@pytest.fixture(scope="module")
def saved(tmp_path_factory, job):
    """By the number of ranks: (folder, result of _save_all on rank 0)."""
    results = {}
    for size in sorted(SAVED, reverse=True):
        folder = str(tmp_path_factory.mktemp(f"of_{size}_ranks"))
        results[size] = folder, ranks.run(_save_all, folder, str(job), ranks=size)[0]
    return results


@pytest.fixture(scope="module")
def restored(tmp_path_factory, saved):
    """By number of ranks, the results of checks that restore."""
    results = {}
    for size, others in RESTORED.items():
        checks = [(_restore_all, {other: saved[other][0] for other in others})]
        if size == 2:
            checks += [(check, str(tmp_path_factory.mktemp("two"))) for check in (_errors, _other_names)]
            checks += [(_imported, str(tmp_path_factory.mktemp("two"))), (_warm_start, saved[3][0])]
        results[size] = ranks.run_checks(checks, ranks=size)
    return results


def test_restarts_on_other_numbers_of_ranks_keep_as_many_checkpoints(saved, job):
    found = {"full": [], "incremental": []}
    for name in sorted(path.stem for path in job.glob("*.index")):
        found[saved_files.counted_by(job / name)].append(name)
    assert train.latest_checkpoint(str(job)) == str(job / found["full"][-1])
    assert [len(names) for names in found.values()] == [2, 2]
    assert sorted(sum(found.values(), [])) == sorted(path.stem for path in job.glob("*.index"))
    assert len(saved_files.bases(job)) <= 6


@pytest.mark.parametrize("size", RESTORED)
def test_another_number_of_ranks_goes_on_as_the_first(saved, restored, size):
    for of_rank in restored[size]["_restore_all"]:
        assert len(of_rank) == sum(len(SAVED[before]) for before in RESTORED[size])
        for (before, name), rows in of_rank.items():
            np.testing.assert_allclose(rows, saved[before][1][name], rtol=1e-6, atol=1e-6, err_msg=name)


def test_each_rank_writes_its_shard_and_the_first_all_else(saved):
    folder = pathlib.Path(saved[3][0])
    names = sorted(path.name for path in folder.glob("adagrad-3*"))
    data = [f"adagrad-3.data-0000{number}-of-00004" for number in range(4)]
    assert names == [*data, "adagrad-3.index", "adagrad-3.meta"]
    assert not [path for path in folder.iterdir() if path.is_dir()]
    for rank in range(3):
        keys = tf.train.load_variable(str(folder / "adagrad-3"), f"scope/table#{rank}/keys")
        assert len(keys) and all(key % 2**64 % 3 == rank for key in keys.tolist())
    assert len(harness.saved_tables(str(folder / "adagrad-3"))["scope/table"]["keys"]) > 200
    assert train.latest_checkpoint(str(folder)).endswith("-3")


def _message(call):
    try:
        call()
        return "no error"
    except (tf.errors.OpError, ValueError) as error:
        return f"{type(error).__name__}: {error}"


def _errors(folder: str) -> dict[str, str]:
    """The error messages, by case."""
    rank = communicator().rank
    messages = {}
    with harness.graph_and_session() as session:
        model = Model()
        harness.initialize(session)
        model.step(session, 0)
        barrier = communicator().allreduce(tf.constant(1.0), average=False, name="barrier")
        good = model.saver.save(session, f"{folder}/good")
        before = model.contents(session)
        session.run(model.dense.assign(7.0))

        def try_to(name, call):
            messages[name] = _message(call)
            np.testing.assert_array_equal(model.contents(session), before)
            assert session.run(model.dense) == 7.0

        os.makedirs(f"{folder}/of_{rank}", exist_ok=True)
        try_to("not_shared", lambda: model.saver.save(session, f"{folder}/of_{rank}/model"))
        if rank == 0:
            pathlib.Path(folder, "file").write_text("")
        place = "file" if rank == 0 else "of_1"
        try_to("first_cannot_write", lambda: model.saver.save(session, f"{folder}/{place}/model"))
        # Rank 0 fails after its tables are written, because there is a folder in place of its state file.
        os.makedirs(f"{folder}/state_is_a_folder", exist_ok=True)
        try_to(
            "first_fails_late",
            lambda: model.saver.save(session, f"{folder}/late", latest_filename="state_is_a_folder"),
        )
        if rank == 0:
            for name in ("damaged", "incomplete"):
                for path in pathlib.Path(folder).glob("good.*"):
                    shutil.copy(path, path.with_name(path.name.replace("good", name)))
            data = saved_files.data_files(f"{folder}/damaged")[1]
            contents = bytearray(data.read_bytes())
            contents[-5000] ^= 1
            data.write_bytes(contents)
            saved_files.data_files(f"{folder}/incomplete")[1].unlink()
        session.run(barrier)
        try_to("damaged", lambda: model.saver.restore(session, f"{folder}/damaged"))
        try_to("incomplete", lambda: model.saver.restore(session, f"{folder}/incomplete"))
        path = f"{folder}/good" if rank == 0 else f"{folder}/damaged"
        try_to("damaged_on_rank_1", lambda: model.saver.restore(session, path))
        model.step(session, 1)
        model.saver.restore(session, good)
        np.testing.assert_array_equal(model.contents(session), before)
        messages["left"] = [str(path.relative_to(folder)) for path in pathlib.Path(folder).rglob("*")]
    return messages


def test_errors_are_raised_on_all_ranks_and_change_nothing(restored):
    by_rank = restored[2]["_errors"]
    for rank, messages in enumerate(by_rank):
        for name in ("not_shared", "first_cannot_write", "first_fails_late", "damaged", "incomplete"):
            assert messages[name] != "no error", (rank, name)
    # On as many ranks as saved it, each rank reads its own rows; all read what is said of them.
    assert "rank 1 failed" in by_rank[0]["damaged"], by_rank[0]["damaged"]
    for message in (by_rank[1]["damaged"], by_rank[0]["incomplete"], by_rank[1]["incomplete"]):
        assert "data-00002-of-00003" in message, message
    assert "rank 1 failed" in by_rank[0]["not_shared"], by_rank[0]["not_shared"]
    assert "all ranks share" in by_rank[1]["not_shared"], by_rank[1]["not_shared"]
    assert "rank 0 failed" in by_rank[1]["first_cannot_write"], by_rank[1]["first_cannot_write"]
    assert "rank 0 failed" in by_rank[1]["first_fails_late"], by_rank[1]["first_fails_late"]
    assert "data-00002-of-00003" in by_rank[1]["damaged_on_rank_1"]
    assert "rank 1 failed" in by_rank[0]["damaged_on_rank_1"]
    assert not [name for name in by_rank[0]["left"] if ".sok" in name or name.startswith(("of_0/", "of_1/"))]


def _other_names(folder: str) -> set[str]:
    """A table under another name; returns those of the saved tables."""
    with harness.graph_and_session() as session:
        model = Model()
        saver = train.Saver({"given": model.table})
        harness.initialize(session)
        model.step(session, 0)
        want = model.contents(session)
        path = saver.save(session, f"{folder}/model")
        model.step(session, 1)
        saver.restore(session, path)
        np.testing.assert_array_equal(model.contents(session), want)
    return {*harness.saved_tables(path)}


def _imported(folder: str) -> str:
    """A rank goes on with its own MetaGraph, and adds ops to it. Returns the error for that of rank 0."""
    rank, ranks_ = communicator().rank, communicator().size
    with harness.graph_and_session() as session:
        keys = tf.compat.v1.placeholder(tf.int64, [None], name="keys")
        table = sok.EmbeddingVariable("table", DIM, initializer=0.0)
        rows = tf.identity(tf.nn.embedding_lookup(table, keys), name="rows")
        train.GradientDescentOptimizer(1.0).minimize(-tf.reduce_sum(rows) / ranks_, name="step")
        saver = train.Saver()
        harness.initialize(session)
        session.run("step", {"keys:0": [1, 2]})
        path = saver.save(session, f"{folder}/exported")
        saver.export_meta_graph(f"{folder}/rank_{rank}.meta")
    with harness.graph_and_session() as session:
        scopes = ("", "one/", "two/")
        for scope in scopes:
            saver = train.import_meta_graph(f"{folder}/rank_{rank}.meta", import_scope=scope[:-1])
            saver.restore(session, path)
        fed = {f"{scope}keys:0": [2, 3] for scope in scopes}
        tables = [one for one in tf.compat.v1.global_variables() if isinstance(one, sok.EmbeddingVariable)]
        new = [tf.nn.embedding_lookup(table, [1, 2, 3])[:, 0] for table in tables]
        loss = -tf.reduce_sum(new) / ranks_
        step = train.GradientDescentOptimizer(1.0).minimize(loss, var_list=tables)
        # All run at the same time, and each exchanges with those of its name on other ranks.
        for found in session.run([*new, *(f"{scope}rows:0" for scope in scopes)], fed)[: len(scopes)]:
            np.testing.assert_array_equal(found, [1, 1, 0])
        session.run([step, *(f"{scope}step" for scope in scopes)], fed)
        np.testing.assert_array_equal(session.run(new), [[2, 3, 2]] * len(scopes))
        again = train.Saver()
        path = again.save(session, f"{folder}/again")
        session.run(step)
        again.restore(session, path)
        np.testing.assert_array_equal(session.run(new), [[2, 3, 2]] * len(scopes))
    with tf.Graph().as_default():
        return _message(lambda: train.import_meta_graph(f"{folder}/exported.meta"))


def test_tables_under_other_names_and_from_meta_graphs(restored):
    assert restored[2]["_other_names"] == [{"given"}] * 2
    errors = restored[2]["_imported"]
    assert errors[0] == "no error" and "'table' cannot be imported: rank 0 of 2 exported" in errors[1]


def _warm_start(folder: str) -> tuple[list[np.ndarray], float, np.ndarray]:
    path = f"{folder}/adagrad-3"
    with harness.graph_and_session() as session:
        model = Model()
        model.saver.restore(session, path)
        want = model.contents(session)
    with harness.graph_and_session() as session:
        tables = [sok.EmbeddingVariable(name, DIM) for name in ("mine", "yours")]
        rows = [tf.nn.embedding_lookup(table, KEYS) for table in tables]
        dense = tf.compat.v1.get_variable("dense", initializer=1.0)
        sok.init_from_checkpoint(path, {"scope/table": "mine"})
        train.warm_start(path, "(yours|dense)", var_name_to_prev_var_name={"yours": "scope/table"})
        harness.initialize(session)
        found, value = session.run([rows, dense])
        return found, value, want


def test_tables_start_from_a_checkpoint_of_another_number_of_ranks(saved, restored):
    known = np.isin(KEYS, harness.saved_tables(f"{saved[3][0]}/adagrad-3")["scope/table"]["keys"])
    for tables, dense, want in restored[2]["_warm_start"]:
        for rows in tables:
            np.testing.assert_array_equal(rows[known], want[known])
        assert dense == 5.0
