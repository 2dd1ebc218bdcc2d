# Tags: versions
"""Collective training in one process: switching it on and off, which changes nothing else."""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.ops import resource_variable_ops

import harness
import saved_files
import sparse_operation_kit as sok
from device_of_tests import ON_GPU
from same_length import zip_equal
from sparse_operation_kit import deeprec
from sparse_operation_kit.compat.internals import RefVariable
from sparse_operation_kit.deeprec import collective
from sparse_operation_kit.ranks import initialize

v1 = tf.compat.v1


@pytest.fixture(autouse=True)
def off():
    """Each test begins and ends without collective training and sok.Init."""
    initialize._reset()
    collective.disable_distributed_strategy()
    yield
    collective.disable_distributed_strategy()
    initialize._reset()


def changed_methods():
    return [
        v1.train.Optimizer.compute_gradients,
        resource_variable_ops.ResourceVariable._init_from_args,
        RefVariable._init_from_args,
    ]


def train(clip=None):
    """Rows and dense weights after some steps of a small model in a fresh graph."""
    with tf.Graph().as_default(), v1.Session() as session:
        v1.set_random_seed(3)
        table = sok.get_embedding_variable("table", 2)
        dense = v1.get_variable("dense", [2])
        rows = tf.nn.embedding_lookup(table, tf.constant([1, 5, 5], tf.int64))
        loss = tf.reduce_mean(tf.square(tf.reduce_sum(rows * dense, axis=1) - 1.0))
        optimizer = v1.train.AdagradOptimizer(0.1)
        pairs = optimizer.compute_gradients(loss)
        if clip:
            gradients, _ = tf.clip_by_global_norm([gradient for gradient, _ in pairs], clip)
            pairs = list(zip_equal(gradients, [variable for _, variable in pairs]))
        step = optimizer.apply_gradients(pairs)
        session.run(v1.global_variables_initializer())
        for _ in range(5):
            session.run(step)
        return session.run([rows, dense])


def test_it_is_switched_on_and_off():
    before = changed_methods()
    deeprec.enable_distributed_strategy()
    deeprec.enable_distributed_strategy(strategy="collective")
    assert all(now is not then for now, then in zip_equal(changed_methods(), before))
    collective.disable_distributed_strategy()
    assert changed_methods() == before


def test_uninstalling_switches_it_off():
    before = changed_methods()
    tf.config.experimental.enable_distributed_strategy(strategy="collective")
    deeprec.uninstall()
    assert changed_methods() == before
    deeprec.install()


def test_scopes_nest():
    before = changed_methods()
    strategy = deeprec.CollectiveStrategy()
    with strategy.scope() as inside, strategy.embedding_scope(sharded=True):
        assert inside is strategy
        assert changed_methods() != before
    assert changed_methods() == before
    deeprec.enable_distributed_strategy()
    with strategy.scope():
        pass
    assert changed_methods() != before


def test_a_scope_ends_with_an_error():
    before = changed_methods()
    with pytest.raises(KeyError), deeprec.CollectiveStrategy().scope():
        raise KeyError
    assert changed_methods() == before


@pytest.mark.parametrize("clip", [None, 0.1])
def test_one_rank_trains_as_without(clip):
    plain = train(clip=clip)
    deeprec.enable_distributed_strategy()
    harness.assert_equal_arrays(train(clip=clip), plain)


def test_world_size_and_rank_are_numbers_and_functions():
    strategy = deeprec.CollectiveStrategy()
    assert strategy.world_size == strategy.world_size() == 1
    assert strategy.rank == strategy.rank() == 0
    v1.fixed_size_partitioner(strategy.world_size)


def test_a_scopes_seed():
    strategy = deeprec.CollectiveStrategy()
    with tf.Graph().as_default() as graph, strategy.scope(seed=9):
        assert graph.seed == 9
        first = np.random.rand()
        with strategy.scope(seed=9):
            assert np.random.rand() == first


@pytest.mark.parametrize("strategy", ["parameter_servers", "", None, "Collective"])
def test_other_strategies_are_refused(strategy):
    before = changed_methods()
    with pytest.raises(ValueError, match="'collective', 'localized', 'parameter_server', not"):
        deeprec.enable_distributed_strategy(strategy)
    assert changed_methods() == before


@pytest.mark.parametrize("strategy", ["localized", "parameter_server"])
def test_strategies_without_ranks_do_nothing(strategy):
    before = changed_methods()
    deeprec.enable_distributed_strategy(strategy)
    assert changed_methods() == before


def serve(folder, ids):
    return harness.served(folder, ids=ids)["rows"]


@pytest.mark.parametrize("as_text", [False, True])
def test_an_exported_model_serves_what_was_trained(tmp_path, as_text):
    def model(ids):
        table = sok.get_embedding_variable("table", 2, initializer=tf.constant_initializer(7.0))
        scale = v1.get_variable("scale", initializer=1.0)
        return table, scale * tf.nn.embedding_lookup(table, ids)

    def signature():
        ids = v1.placeholder(tf.int64, [None])
        return v1.saved_model.predict_signature_def({"ids": ids}, {"rows": model(ids)[1]})

    with tf.Graph().as_default(), v1.Session() as session:
        table, rows = model(tf.constant([3, -1], tf.int64))
        step = v1.train.AdamOptimizer(0.1).minimize(tf.reduce_sum(rows))
        session.run(v1.global_variables_initializer())
        for _ in range(3):
            session.run(step)
        v1.train.Saver().save(session, str(tmp_path / "checkpoints" / "model.ckpt"))
        trained = session.run(rows)
        scale = session.run(v1.global_variables("scale")[0])
    note = tmp_path / "note"
    note.write_text("hello")
    folder = deeprec.CollectiveStrategy().export_saved_model(
        str(tmp_path / "exports"),
        str(tmp_path / "checkpoints"),
        signature,
        assets_extra={"a/note": str(note)},
        as_text=as_text,
    )
    assert (tmp_path / "exports").joinpath(folder, "assets.extra", "a", "note").read_text() == "hello"
    np.testing.assert_allclose(serve(folder, [3, 99, -1])[::2], trained, rtol=1e-6)
    np.testing.assert_allclose(serve(folder, [99]), np.full([1, 2], 7.0 * scale), rtol=1e-6)
    # A process may load a model that a program with another seed exported.
    initialize._reset()
    with tf.Graph().as_default():
        sok.Init(global_batch_size=64, seed=99)
    another = deeprec.CollectiveStrategy().export_saved_model(
        str(tmp_path / "exports"), str(tmp_path / "checkpoints" / "model.ckpt"), signature
    )
    np.testing.assert_array_equal(serve(another, [3, -1]), serve(folder, [3, -1]))


def test_bad_exports(tmp_path):
    strategy = deeprec.CollectiveStrategy()
    with pytest.raises(ValueError, match="signature_def_fn"):
        strategy.export_saved_model(str(tmp_path), str(tmp_path))
    with pytest.raises(ValueError, match="there is no checkpoint"):
        strategy.export_saved_model(str(tmp_path), str(tmp_path), lambda: None)
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(not hasattr(v1, "estimator"), reason="this TensorFlow has no Estimator")
def test_an_estimator_trains_and_evaluates(tmp_path):
    def model_fn(features, labels, mode):
        table = sok.get_embedding_variable("table", 2, initializer=tf.ones_initializer())
        logits = tf.reduce_sum(tf.nn.embedding_lookup(table, features["id"]), axis=1)
        if mode == tf.estimator.ModeKeys.PREDICT:
            return tf.estimator.EstimatorSpec(mode, predictions={"logits": logits})
        loss = tf.reduce_mean(tf.square(logits - labels))
        step = v1.train.AdagradOptimizer(0.5).minimize(loss, v1.train.get_global_step())
        return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=step)

    def input_fn():
        ids = np.arange(8)
        return tf.data.Dataset.from_tensors(({"id": ids}, ids.astype(np.float32))).repeat(20)

    estimator = deeprec.CollectiveStrategy().estimator(
        model_fn=model_fn, model_dir=str(tmp_path), config=None, train_drop_remainder=False
    )

    def receiver():
        ids = {"id": v1.placeholder(tf.int64, [None])}
        return tf.estimator.export.ServingInputReceiver(ids, ids)

    exporters = [
        tf.estimator.FinalExporter("final", receiver),
        sok.serving.Exporter(tf.estimator.LatestExporter("latest", receiver), absent="zeros"),
    ]
    with pytest.raises(ValueError, match="the exporters 'final', 'latest' run after evaluations"):
        estimator.train_and_evaluate(
            tf.estimator.TrainSpec(input_fn, max_steps=20),
            tf.estimator.EvalSpec(input_fn, exporters=exporters),
        )
    history = []
    estimator.train_and_evaluate(
        tf.estimator.TrainSpec(input_fn, max_steps=20),
        tf.estimator.EvalSpec(input_fn, steps=1, start_delay_secs=0, throttle_secs=0, exporters=exporters),
        eval_every_n_iter=10,
        eval_history=history,
    )
    exported = estimator.export_saved_model(str(tmp_path / "export"), receiver)
    logits = harness.served(exported.decode(), id=[0, 7, 99])["logits"]
    assert logits[2] == 2 and abs(logits[1] - 7) < 3
    (final,) = (tmp_path / "export" / "final").iterdir()
    np.testing.assert_array_equal(harness.served(str(final), id=[0, 7, 99])["logits"], logits)
    latest = max((tmp_path / "export" / "latest").iterdir())
    if not ON_GPU:  # for which the fake GPU has few of TensorFlow's kernels
        found = saved_files.serve_model(latest, {"id": [0, 7, 99]}, "sparse_operation_kit")["serving_default"]
        np.testing.assert_array_equal(found["logits"], [*logits[:2], 0])
    steps = [metrics["global_step"] for metrics in history]
    assert steps[-1] == 20 and 10 <= len(steps) * 10 <= 40
    assert history[-1]["loss"] < 0.5 * history[0]["loss"] or history[0]["loss"] < 1
