# Tags: versions
"""Checkpoints of tables on parameter servers: those of as many ranks, which any number restores."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

import foreign_checkpoints as foreign
import local_cluster
import sparse_operation_kit as sok
from sparse_operation_kit.deeprec.incremental_saver import IncrementalSaver

v1 = tf.compat.v1

BATCHES = np.random.default_rng(3).integers(0, 60, [6, 40])


class Model:
    """Two tables, one of which evicts rows by their age, and a dense variable."""

    def __init__(self):
        self.ids = v1.placeholder(tf.int64, [None])
        self.tables = [
            sok.get_embedding_variable("users", 4),
            sok.get_embedding_variable("items", 3, steps_to_live=2),
        ]
        self.rows = [tf.nn.embedding_lookup(table, self.ids) for table in self.tables]
        dense = v1.get_variable("dense", [4], initializer=v1.ones_initializer())
        loss = tf.reduce_sum(tf.square(self.rows[0] * dense - 1)) + tf.reduce_sum(tf.square(self.rows[1]))
        step = v1.train.get_or_create_global_step()
        self.train = v1.train.AdamOptimizer(0.1).minimize(loss, global_step=step)
        self.contents = [table.keys_and_rows() for table in self.tables]

    def steps(self, session, batches):
        for batch in batches:
            session.run(self.train, {self.ids: batch})

    def rows_of(self, session):
        return [dict(zip(keys.tolist(), rows.tolist())) for keys, rows in session.run(self.contents)]


def saved(servers, folder, sharded=False):
    """Trains on the first batches; returns the checkpoint's prefix."""
    with local_cluster.graph_on(servers) as graph:
        model, saver = Model(), v1.train.Saver(sharded=sharded)
    with local_cluster.started(graph) as session:
        model.steps(session, BATCHES[:3])
        return saver.save(session, str(folder / "model.ckpt"), global_step=3)


def continued(servers, prefix):
    """Restores, trains on the other batches, and returns the tables' rows."""
    with local_cluster.graph_on(servers) as graph:
        model, saver = Model(), v1.train.Saver()
    with local_cluster.session(graph) as session:
        saver.restore(session, prefix)
        restored = model.rows_of(session)
        model.steps(session, BATCHES[3:])
        return restored, model.rows_of(session)


@pytest.mark.parametrize(("servers", "sharded"), [(1, False), (2, False), (2, True), (3, False)])
def test_any_number_of_servers_goes_on_where_others_saved(servers, sharded, tmp_path, caplog):
    expected = continued(0, saved(0, tmp_path))
    prefix = saved(servers, tmp_path, sharded)
    for others in (0, 1, 3):
        local_cluster.assert_close(continued(others, prefix), expected, rtol=1e-3, atol=1e-4)
    assert "leaves the variable out" not in caplog.text


def test_servers_restore_what_one_process_saved(tmp_path):
    prefix = saved(0, tmp_path)
    assert continued(2, prefix)[0] == continued(0, prefix)[0]


def trained_in_16_bits(servers, dtype, prefix, restores=False):
    """Trains and saves, or restores and trains; returns the rows before and after the steps."""
    with local_cluster.graph_on(servers) as graph:
        ids = v1.placeholder(tf.int64, [None])
        types = sok.EmbeddingVariableOption(value_dtype=dtype, slot_dtype=dtype)
        table = sok.get_embedding_variable("users", 5, ev_option=types)
        loss = tf.reduce_sum(tf.square(tf.nn.embedding_lookup(table, ids) - 0.3))
        optimizer = sok.tf.keras.optimizers.LazyAdamOptimizer(0.05, second_moment="row")
        train = optimizer.minimize(loss, var_list=[table])
        contents, saver = table.keys_and_rows(), v1.train.Saver()
    with local_cluster.started(graph) as session:
        rows = []
        if restores:
            saver.restore(session, prefix)
        for batches in ([], BATCHES[3:] if restores else BATCHES[:3]):
            for batch in batches:
                session.run(train, {ids: batch})
            keys, values = session.run(contents)
            rows.append(dict(zip(keys.tolist(), values.tolist())))
        if not restores:
            saver.save(session, prefix)
        return rows


def test_rows_and_slots_in_16_bits_keep_their_bits_on_any_number_of_servers(tmp_path):
    prefix = str(tmp_path / "model.ckpt")
    saved_rows = trained_in_16_bits(2, tf.bfloat16, prefix)[1]
    expected = trained_in_16_bits(0, tf.bfloat16, prefix, restores=True)
    assert expected[0] == saved_rows != {}
    for servers in (1, 3):
        assert trained_in_16_bits(servers, tf.bfloat16, prefix, restores=True) == expected
    assert trained_in_16_bits(3, tf.float32, prefix, restores=True)[0] == saved_rows


def test_a_restore_that_fails_on_one_server_changes_no_table(tmp_path):
    prefix = saved(2, tmp_path)
    with local_cluster.graph_on(2) as graph:
        model, saver = Model(), v1.train.Saver()
    with local_cluster.started(graph) as session:
        model.steps(session, BATCHES[:1])
        before = model.rows_of(session)
        for shard in sorted(tmp_path.glob("model.ckpt-3.data-*")):
            sound = shard.read_bytes()
            damaged = bytearray(sound)
            damaged[len(damaged) // 2] ^= 1
            shard.write_bytes(damaged)
            with pytest.raises(tf.errors.OpError, match="model.ckpt-3"):
                saver.restore(session, prefix)
            shard.write_bytes(sound)
            assert model.rows_of(session) == before, shard


def test_a_save_that_fails_on_one_server_leaves_no_checkpoint_and_can_be_repeated(tmp_path):
    with local_cluster.graph_on(2) as graph:
        model, saver = Model(), v1.train.Saver()
        initializer = v1.global_variables_initializer()
        lost = sok.EmbeddingVariable("never_made", 2)
        both = v1.train.Saver([*model.tables, lost])
    with local_cluster.session(graph) as session:
        session.run(initializer)
        with pytest.raises(tf.errors.FailedPreconditionError, match="'never_made'"):
            both.save(session, str(tmp_path / "model.ckpt"))
        assert not list(tmp_path.iterdir())
        assert tf.train.latest_checkpoint(str(tmp_path)) is None
        saver.save(session, str(tmp_path / "model.ckpt"))
        assert tf.train.latest_checkpoint(str(tmp_path)) == str(tmp_path / "model.ckpt")


def test_increments_of_servers_restore_in_one_process(tmp_path):
    with local_cluster.graph_on(2) as graph:
        model, saver = Model(), v1.train.Saver()
        increments = IncrementalSaver(saver_def=saver.saver_def)
    with local_cluster.started(graph) as session:
        model.steps(session, BATCHES[:2])
        saver.save(session, str(tmp_path / "model.ckpt"), global_step=2)
        increments.incremental_save(session, str(tmp_path / "increment.ckpt"), global_step=2)
        model.steps(session, BATCHES[2:3])
        prefix = increments.incremental_save(session, str(tmp_path / "increment.ckpt"), global_step=3)
        expected = model.rows_of(session)
    assert continued(0, prefix)[0] == expected


@pytest.mark.parametrize("is_incremental", [False, True])
@pytest.mark.parametrize(("steps", "server"), [(2, 1), (0, 0), (0, 1)])
def test_servers_that_have_taken_other_numbers_of_steps_are_saved(steps, server, is_incremental, tmp_path):
    with local_cluster.graph_on(2) as graph:
        model, saver = Model(), v1.train.Saver()
        increments = IncrementalSaver(saver_def=saver.saver_def)
    of_one_server = [
        op
        for op in graph.get_operations()
        if op.type == "SokGroupSumApplyGradients" and op.device.startswith(f"/job:ps/task:{server}")
    ]
    with local_cluster.started(graph) as session:
        model.steps(session, BATCHES[:steps])
        prefix = saver.save(session, str(tmp_path / "model.ckpt"), global_step=2)
        increments.incremental_save(session, str(tmp_path / "increment.ckpt"), global_step=2)
        # As if the save came between the parts of another worker's push, which may be the first of all.
        session.run(of_one_server, {model.ids: BATCHES[2]})
        if is_incremental:
            prefix = increments.incremental_save(session, str(tmp_path / "increment.ckpt"), global_step=3)
        else:
            prefix = saver.save(session, str(tmp_path / "model.ckpt"), global_step=3)
        expected = model.rows_of(session)
    for servers in (0, 2, 3):
        local_cluster.assert_close(continued(servers, prefix)[0], expected, rtol=1e-5)


def test_raw_files_hold_all_parts(tmp_path):
    with local_cluster.graph_on(2) as graph:
        model, files = Model(), sok.Saver()
        dump = files.dump_to_file(model.tables[0], str(tmp_path))
        load = files.restore_from_file(model.tables[0], str(tmp_path))
        assign = files.load_embedding_values(model.tables[0], np.full([5, 4], 9.0, np.float32))
    with local_cluster.started(graph) as session:
        model.steps(session, BATCHES[:3])
        expected = model.rows_of(session)[0]
        session.run(dump)
        assert (tmp_path / "users_keys.file").stat().st_size == 8 * len(expected)
        session.run(assign)
        assert model.rows_of(session)[0][4] == [9.0] * 4
        session.run(load)
        assert model.rows_of(session)[0] == expected


def test_a_warm_start_brings_rows_to_all_servers(tmp_path):
    prefix = saved(0, tmp_path)
    with local_cluster.graph_on(3) as graph:
        model = Model()
        v1.train.init_from_checkpoint(prefix, {"users": "users"})
    with local_cluster.started(graph) as session:
        rows = model.rows_of(session)
    assert rows[0] == continued(0, prefix)[0][0]
    assert rows[1] == {}


def test_a_monitored_session_saves_and_goes_on(tmp_path):
    def run(servers, batches):
        with local_cluster.graph_on(servers) as graph:
            model = Model()
            with v1.train.MonitoredTrainingSession(
                master=graph._target, checkpoint_dir=str(tmp_path), save_checkpoint_steps=2
            ) as session:
                model.steps(session, batches)
                return session.run(v1.train.get_global_step()), model.rows_of(session)

    run(2, BATCHES[:3])
    step, rows = run(3, BATCHES[3:])
    assert step == 6
    assert rows[0].keys() == set(BATCHES.flat)


@pytest.mark.parametrize("parts", [None, 3])
def test_deeprecs_checkpoints_on_servers(tmp_path, parts):
    rng = np.random.default_rng(0)
    keys = np.arange(60)
    values = {name: rng.random([60, dim], np.float32) for name, dim in (("users", 4), ("items", 3))}
    tensors = {"global_step": np.int64(3), "beta1_power": np.float32(0.9**4)}
    tensors.update({"beta2_power": np.float32(0.999**4)})
    for name, rows in values.items():
        slots = {"Adam": rows / 2, "Adam_1": rows / 4}
        tensors.update(foreign.deeprec(name, foreign.Rows(keys, rows, slots, keys + 1, keys % 3), parts))
    tensors.update(foreign.variable("dense", np.ones(4, np.float32), Adam=values["users"][0]))
    tensors["dense/Adam_1"] = values["users"][1]
    foreign.save(tmp_path / "m", tensors)
    restored, trained = continued(0, str(tmp_path / "m"))
    for table, rows in zip(restored, values.values()):
        np.testing.assert_array_equal([table[key] for key in range(60)], rows)
    for servers in (1, 2, 3):
        again, ended = continued(servers, str(tmp_path / "m"))
        assert again == restored
        local_cluster.assert_close(ended, trained, rtol=1e-5)
