# Tags: slow
# Not on GPUs: minutes; collective_strategy_test and ranks_distributed_optimizer_test show the same
"""Collective training over ranks: a program in DeepRec's style trains as it does in one process."""

import tempfile

import numpy as np
import pytest
import tensorflow as tf

import harness
import ranks
import sparse_operation_kit as sok
from same_length import zip_equal
from sparse_operation_kit import deeprec
from sparse_operation_kit.deeprec import collective
from sparse_operation_kit.ranks.communicator import communicator

v1 = tf.compat.v1
train = v1.train

BATCH = 24
STEPS = 10
VOCABULARY = 30

OPTIMIZERS = {
    "sgd": lambda: train.GradientDescentOptimizer(0.5),
    "momentum": lambda: train.MomentumOptimizer(0.05, 0.9),
    "adagrad": lambda: train.AdagradOptimizer(0.1),
    "ftrl": lambda: train.FtrlOptimizer(0.1, l1_regularization_strength=0.01),
    "adam": lambda: train.AdamOptimizer(0.01),
    "adagrad_decay": lambda: train.AdagradDecayOptimizer(
        0.1, train.get_global_step(), accumulator_decay_step=3
    ),
    "adam_async": lambda: train.AdamAsyncOptimizer(0.01),
}


class Model:
    """A table, an ordinary embedding and dense weights; the loss is the mean over this rank's part."""

    def __init__(self):
        self.ids = v1.placeholder(tf.int64, [None])
        self.labels = v1.placeholder(tf.float32, [None])
        self.step = train.get_or_create_global_step()
        self.table = v1.get_embedding_variable("table", 4, initializer=v1.random_normal_initializer())
        initial = np.random.default_rng(3).normal(size=[VOCABULARY, 4]).astype(np.float32)
        self.ordinary = v1.get_variable("ordinary", initializer=initial, use_resource=True)
        self.kernel = v1.get_variable("kernel", initializer=initial[:8, 0], use_resource=False)
        rows = tf.nn.embedding_lookup(self.table, self.ids)
        features = tf.concat([rows, tf.nn.embedding_lookup(self.ordinary, self.ids)], axis=1)
        logits = tf.linalg.matvec(features, self.kernel)
        losses = tf.nn.sigmoid_cross_entropy_with_logits(labels=self.labels, logits=logits)
        self.loss = tf.reduce_mean(losses)
        self.all_rows = tf.nn.embedding_lookup(self.table, tf.range(VOCABULARY, dtype=tf.int64))

    def feed(self, step):
        """This rank's part of a step's batch, of the same size on all ranks."""
        ids = np.random.default_rng(step).integers(0, VOCABULARY, BATCH)
        part = BATCH // communicator().size
        mine = ids[part * communicator().rank :][:part]
        return {self.ids: mine, self.labels: (mine % 3 == 0).astype(np.float32)}

    def state(self, session):
        return session.run([self.all_rows, self.ordinary, self.kernel])


def trained(make_train_op, steps=STEPS):
    """Trains without sok.Init; returns the model's state."""
    with tf.Graph().as_default(), v1.Session(config=harness.session_config()) as session:
        v1.set_random_seed(7)
        model = Model()
        step = make_train_op(model)
        session.run(v1.global_variables_initializer())
        for number in range(steps):
            session.run(step, model.feed(number))
        return model.state(session)


def enabled(function):
    """Calls `function` with collective training enabled."""
    tf.config.experimental.enable_distributed_strategy(strategy="collective")
    try:
        return function()
    finally:
        collective.disable_distributed_strategy()


def check_optimizers():
    return enabled(
        lambda: [
            trained(lambda m, make=make: make().minimize(m.loss, global_step=m.step))
            for make in OPTIMIZERS.values()
        ]
    )


def clipped(clip):
    """Trains with gradients that `clip` changes, which maps a list to a list."""

    def make_train_op(model):
        optimizer = train.AdagradOptimizer(0.1)
        gradients, variables = zip_equal(*optimizer.compute_gradients(model.loss))
        return optimizer.apply_gradients(zip_equal(clip(list(gradients)), variables), model.step)

    return trained(make_train_op)


def check_clipping():
    return enabled(
        lambda: [
            clipped(lambda gradients: tf.clip_by_global_norm(tuple(gradients), 0.05)[0]),
            clipped(lambda gradients: [tf.clip_by_norm(one, 0.01) for one in gradients]),
            clipped(lambda gradients: [tf.clip_by_value(one, -0.01, 0.002) for one in gradients]),
        ]
    )


def check_scopes():
    strategy = deeprec.CollectiveStrategy()
    assert (strategy.rank(), strategy.world_size()) == (communicator().rank, communicator().size)
    with strategy.scope():
        return trained(lambda m: train.AdagradOptimizer(0.1).minimize(m.loss, global_step=m.step))


def check_an_explicit_optimizer_goes_first():
    """sok.DistributedOptimizer, with a loss divided by the global batch size and summed gradients."""

    def make_train_op(model):
        optimizer = sok.DistributedOptimizer(train.AdagradOptimizer(0.1), op="sum")
        return optimizer.minimize(model.loss / communicator().size, global_step=model.step)

    def by_hand(model):
        optimizer = sok.DistributedOptimizer(train.AdagradOptimizer(0.1), op="sum")
        variables = [model.table, model.ordinary, model.kernel]
        # Gated, because a reference variable may change while gradients that need it are computed.
        gradients = tf.gradients(model.loss / communicator().size, variables, gate_gradients=True)
        pairs = optimizer.combine_gradients(zip_equal(gradients, variables))
        return optimizer.apply_gradients(pairs, model.step)

    return enabled(lambda: [trained(make_train_op), trained(by_hand)])


def check_loss_scaling():
    def make_train_op(model):
        scaled = sok.tf.keras.mixed_precision.LossScaleOptimizer(
            train.AdagradOptimizer(0.1), initial_scale=8.0
        )
        # Without reference variables, which cannot be assigned in a branch.
        return scaled.minimize(model.loss, model.step, [model.table, model.ordinary])

    return enabled(lambda: trained(make_train_op))


def check_gradients_of_one_rank_are_refused():
    def make_train_op(model):
        optimizer = train.AdagradOptimizer(0.1)
        variables = [model.table, model.kernel]
        pairs = zip_equal(tf.gradients(model.loss, variables), variables)
        if communicator().size == 1:
            return optimizer.apply_gradients(pairs)
        with pytest.raises(ValueError, match="not averaged over the ranks"):
            optimizer.apply_gradients(pairs)
        return tf.no_op()

    enabled(lambda: trained(make_train_op, steps=1))


def check_the_programs_own_allreduce():
    """Gradients of tf.gradients, of which the program averages those of ordinary variables."""

    def make_train_op(model):
        variables = [model.table, model.ordinary, model.kernel]
        of_table, *others = tf.gradients(model.loss, variables, gate_gradients=True)
        if communicator().size > 1:
            import horovod.tensorflow as hvd

            others = [
                hvd.allreduce(gradient, op=hvd.Average, name=f"own_{number}")
                for number, gradient in enumerate(others)
            ]
        optimizer = train.AdagradOptimizer(0.1)
        pairs = zip_equal([of_table, *others], variables)
        return optimizer.apply_gradients(pairs, model.step, gradients_are_averaged=True)

    return enabled(lambda: trained(make_train_op))


def check_initial_values_are_those_of_rank_0():
    rank = communicator().rank

    def make():
        with tf.Graph().as_default(), v1.Session() as session:
            rng = np.random.default_rng(rank)
            found = {
                "resource": v1.get_variable("a", initializer=rng.normal(size=3), use_resource=True),
                "reference": v1.get_variable("b", initializer=rng.normal(size=3), use_resource=False),
                "drawn": v1.get_variable("c", [3], initializer=v1.random_normal_initializer(seed=rank)),
                "flag": v1.Variable(rank == 0, trainable=False),
                "count": v1.Variable(tf.constant(rank), trainable=False),
                "half": v1.Variable(tf.constant(float(rank), tf.bfloat16), trainable=False),
                "local": v1.Variable(rank, collections=[v1.GraphKeys.LOCAL_VARIABLES]),
                "text": v1.Variable(str(rank), trainable=False),
            }
            session.run([v1.global_variables_initializer(), v1.local_variables_initializer()])
            return session.run(found)

    shared = enabled(make)
    assert (shared["flag"], shared["count"], float(shared["half"])) == (True, 0, 0.0)
    assert (shared.pop("local"), shared.pop("text")) == (rank, str(rank).encode())
    if rank:
        assert not np.array_equal(make()["resource"], shared["resource"])
    return {name: np.asarray(value, np.float64) for name, value in shared.items()}


def _shared_folder():
    """A new folder that all ranks share."""
    with tf.Graph().as_default(), v1.Session() as session:
        name = np.frombuffer(tempfile.mkdtemp().encode().ljust(200), np.uint8)
        found = session.run(communicator().broadcast(tf.constant(name), 0, "folder"))
    return found.tobytes().decode().strip()


def check_monitored_sessions():
    """Trains in two sessions, the second of which continues from the first one's checkpoint."""

    def run(folder, steps):
        with tf.Graph().as_default():
            v1.set_random_seed(7)
            model = Model()
            step = train.AdamOptimizer(0.01).minimize(model.loss, global_step=model.step)
            with train.MonitoredTrainingSession(checkpoint_dir=folder, save_checkpoint_steps=5) as session:
                for _ in range(steps):
                    session.run(step, model.feed(session.run(model.step)))
                return model.state(session)

    def both():
        folder = _shared_folder()
        run(folder, 5)
        return run(folder, 5)

    return enabled(both)


def check_an_estimator():
    if not hasattr(v1, "estimator"):
        return None

    def model_fn(features, labels, mode):
        table = v1.get_embedding_variable("table", 2, initializer=v1.random_normal_initializer())
        kernel = v1.get_variable("kernel", [2, 1], initializer=v1.random_normal_initializer(seed=3))
        logits = tf.matmul(tf.nn.embedding_lookup(table, features["id"]), kernel)[:, 0]
        if mode == tf.estimator.ModeKeys.PREDICT:
            return tf.estimator.EstimatorSpec(mode, predictions={"logits": logits})
        loss = tf.reduce_mean(tf.square(logits - labels))
        step = train.AdagradOptimizer(0.5).minimize(loss, train.get_global_step())
        return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=step)

    def input_fn():
        ids = np.arange(BATCH) % 7
        part = BATCH // communicator().size
        mine = ids[part * communicator().rank :][:part]
        return tf.data.Dataset.from_tensors(({"id": mine}, mine.astype(np.float32))).repeat(10)

    config = tf.estimator.RunConfig(tf_random_seed=7, save_checkpoints_steps=5)
    estimator = deeprec.CollectiveStrategy().estimator(model_fn, model_dir=_shared_folder(), config=config)
    estimator.train(input_fn)
    everything = estimator.evaluate(input_fn, steps=1)
    inputs = lambda: 2 * ({"id": v1.placeholder(tf.int64, [None])},)  # noqa: E731
    exported = estimator.export_saved_model(
        _shared_folder(), lambda: tf.estimator.export.ServingInputReceiver(*inputs())
    )
    assert harness.served(exported.decode(), id=range(7))["logits"].shape == (7,)
    return [estimator.get_variable_value("kernel"), everything["global_step"]]


def check_an_exported_model():
    strategy = deeprec.CollectiveStrategy()
    folder = _shared_folder()
    with strategy.scope(), tf.Graph().as_default(), v1.Session() as session:
        v1.set_random_seed(7)
        model = Model()
        step = train.AdagradOptimizer(0.1).minimize(model.loss, global_step=model.step)
        saver = train.Saver()
        session.run(v1.global_variables_initializer())
        session.run(step, model.feed(0))
        saver.save(session, f"{folder}/model.ckpt")
        expected = session.run(model.all_rows)

    def signature():
        served = Model()
        rows = tf.nn.embedding_lookup(served.table, served.ids)
        return v1.saved_model.predict_signature_def({"ids": served.ids}, {"rows": rows})

    exported = strategy.export_saved_model(f"{folder}/export", f"{folder}/model.ckpt", signature)
    assert (exported is None) == (communicator().rank > 0)
    if exported:
        rows = harness.served(exported, ids=range(VOCABULARY))["rows"]
        np.testing.assert_array_equal(rows, expected)


# By number of ranks: what a rank does with averaged gradients, and all else.
CHECKS = {
    2: [
        check_optimizers,
        check_clipping,
        check_gradients_of_one_rank_are_refused,
        check_an_exported_model,
    ],
    3: [
        check_scopes,
        check_an_explicit_optimizer_goes_first,
        check_the_programs_own_allreduce,
        check_loss_scaling,
        check_initial_values_are_those_of_rank_0,
        check_monitored_sessions,
        check_an_estimator,
    ],
}


def _arrays(value):
    """All arrays in nested lists and dicts."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return [array for one in value for array in _arrays(one)]
    return [] if value is None else [np.asarray(value)]


@pytest.fixture(scope="module")
def one_process():
    return ranks.run_checks(sum(CHECKS.values(), []), ranks=1, timeout=300)


@pytest.mark.parametrize("size", CHECKS)
def test_ranks_train_as_one_process(size, one_process):
    for name, by_rank in ranks.run_checks(CHECKS[size], ranks=size, timeout=400).items():
        for rank in range(size):
            results, wanted = _arrays(by_rank[rank]), _arrays(one_process[name][0])
            assert len(results) == len(wanted), name
            for number, (result, want) in enumerate(zip_equal(results, wanted)):
                np.testing.assert_allclose(
                    result, want, rtol=2e-4, atol=2e-5, err_msg=f"{name} {number} on rank {rank}"
                )
