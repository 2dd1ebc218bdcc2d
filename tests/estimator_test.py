# Tags: versions
"""A tf.estimator.Estimator trains, evaluates and restores a model on the layers."""

import numpy as np
import pytest
import tensorflow as tf

import harness
import sparse_operation_kit as sok
from same_length import zip_equal
from sparse_operation_kit import feature_columns

if not hasattr(tf, "estimator"):
    pytest.skip(f"TensorFlow {tf.__version__} has no Estimator", allow_module_level=True)

v1 = tf.compat.v1
SLOTS = 2
MAX_NNZ = 3


def samples(count):
    """Keys [count, SLOTS, MAX_NNZ], and labels that depend on the first key of each sample."""
    rng = np.random.default_rng(0)
    keys = rng.integers(0, 40, [count, SLOTS, MAX_NNZ])
    return keys, (keys[:, 0, 0] % 2).astype(np.float32)


def input_fn(repeat):
    keys, labels = samples(256)
    data = tf.data.Dataset.from_tensor_slices(({"keys": keys}, labels))
    return data.repeat(repeat).batch(harness.GLOBAL_BATCH_SIZE)


def model_fn(features, labels, mode):
    training = mode == tf.estimator.ModeKeys.TRAIN
    sok.Init(global_batch_size=harness.GLOBAL_BATCH_SIZE, seed=harness.SEED)
    pooled = sok.DistributedEmbedding("mean", 1000, 4, SLOTS, MAX_NNZ)
    plain = sok.All2AllDenseEmbedding(1000, 4, SLOTS, MAX_NNZ)
    keys = features["keys"]
    ids = tf.sparse.from_dense(tf.reshape(keys + 1, [-1, MAX_NNZ]))
    parts = [pooled(ids, training=training), plain(keys, training=training)]
    flat = tf.concat([tf.reshape(part, [-1, size]) for part, size in zip_equal(parts, (8, 24))], axis=1)
    kernel = v1.get_variable("kernel", [32, 1])
    logits = tf.matmul(flat, kernel)[:, 0]
    if mode == tf.estimator.ModeKeys.PREDICT:
        return tf.estimator.EstimatorSpec(mode, predictions={"logits": logits})
    loss = tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=logits))
    metrics = {"rows": v1.metrics.mean(tf.cast(plain.embedding_variable.size(), tf.float32))}
    optimizer = sok.optimizers.Adam(0.05)
    step = optimizer.minimize(loss, global_step=v1.train.get_global_step())
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=step, eval_metric_ops=metrics)


def make_estimator(directory):
    config = tf.estimator.RunConfig(tf_random_seed=1, save_checkpoints_steps=20, log_step_count_steps=None)
    return tf.estimator.Estimator(model_fn, model_dir=str(directory), config=config)


def predictions(estimator):
    keys, _ = samples(harness.GLOBAL_BATCH_SIZE)
    found = estimator.predict(
        lambda: tf.data.Dataset.from_tensors({"keys": tf.constant(keys)}), yield_single_examples=False
    )
    return next(found)["logits"]


def test_it_trains_evaluates_and_restores(tmp_path):
    estimator = make_estimator(tmp_path / "whole")
    estimator.train(lambda: input_fn(None), steps=1)
    before = estimator.evaluate(lambda: input_fn(1))
    estimator.train(lambda: input_fn(None), steps=39)
    after = estimator.evaluate(lambda: input_fn(1))
    assert after["global_step"] == 40
    assert after["rows"] == 40
    assert after["loss"] < 0.5 * before["loss"]
    again = make_estimator(tmp_path / "whole")
    assert again.evaluate(lambda: input_fn(1))["loss"] == after["loss"]
    np.testing.assert_array_equal(predictions(again), predictions(estimator))


def test_training_in_two_parts_equals_training_in_one(tmp_path):
    """Each call of `train` starts at the beginning of the data, so all steps are on the first batch."""
    whole, parts = make_estimator(tmp_path / "whole"), make_estimator(tmp_path / "parts")
    one_batch = lambda: input_fn(1).take(1).repeat()  # noqa: E731
    whole.train(one_batch, steps=6)
    parts.train(one_batch, steps=2)
    parts.train(one_batch, steps=4)
    np.testing.assert_allclose(predictions(parts), predictions(whole), rtol=1e-5, atol=1e-6)


COLUMNS = "dnn/input_from_feature_columns/input_layer"


def clicks(user="user", city=lambda cities: cities):
    """Samples for `classifier`; `city` maps the ids of cities to others."""
    keys, labels = samples(48)
    features = {user: keys[:, 0, :2], "city": city(keys[:, 1, :1] % 9)}
    return tf.data.Dataset.from_tensor_slices((features, labels[:, np.newaxis])).batch(16)


def classifier(directory, warm_start_from=None, user="user", rate=0.5):
    """A canned Estimator with a column of unbounded keys, and one of nine."""
    users = feature_columns.categorical_column_with_embedding(user, tf.int64)
    cities = tf.feature_column.categorical_column_with_identity("city", 9)
    return v1.estimator.DNNClassifier(
        hidden_units=[5],
        feature_columns=[tf.feature_column.embedding_column(column, 4) for column in (users, cities)],
        model_dir=str(directory),
        optimizer=v1.train.GradientDescentOptimizer(rate),
        config=tf.estimator.RunConfig(tf_random_seed=1, log_step_count_steps=None),
        warm_start_from=warm_start_from,
    )


def logits_of(estimator, *arguments):
    """The logits by the estimator's checkpoint or, if it has none, by its warm start."""
    found = estimator.predict(lambda: clicks(*arguments), yield_single_examples=False)
    return np.concatenate([batch["logits"] for batch in found])


class _Interrupt(v1.train.SessionRunHook):
    def after_run(self, run_context, run_values):
        del run_values
        if run_context.session.run(v1.train.get_global_step()) == 7:
            raise InterruptedError


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """(directory, logits) of a classifier, whose newest checkpoint is an incremental one."""
    directory = str(tmp_path_factory.mktemp("trained"))
    estimator = classifier(directory)
    hooks = [sok.IncrementalCheckpointHook(directory, save_steps=2), _Interrupt()]
    with pytest.raises(InterruptedError):
        estimator.train(lambda: clicks().repeat(), hooks=hooks)
    assert tf.train.latest_checkpoint(directory).endswith("-6")
    return directory, logits_of(estimator)


def test_a_warm_start_loads_all_variables_and_undoes_no_checkpoint(tmp_path, trained):
    source, logits = trained
    estimator = classifier(tmp_path, source)
    np.testing.assert_array_equal(logits_of(estimator), logits)
    estimator.train(clicks, steps=2)
    later = logits_of(estimator)
    assert np.all(later != logits)
    again = classifier(tmp_path, source, rate=0.0)
    again.train(clicks, steps=1)
    np.testing.assert_array_equal(logits_of(again), later)


def test_a_warm_start_with_other_names_and_another_vocabulary(tmp_path, trained):
    source, logits = trained
    for name, order in (("old", 1), ("new", -1)):
        (tmp_path / name).write_text("\n".join("abcdefghi"[::order]))
    vocabulary = tf.estimator.VocabInfo(str(tmp_path / "new"), 9, 0, str(tmp_path / "old"))
    city, member, user = (
        f"{COLUMNS}/{name}_embedding/embedding_weights" for name in ("city", "member", "user")
    )
    settings = tf.estimator.WarmStartSettings(
        source, ".*", var_name_to_vocab_info={city: vocabulary}, var_name_to_prev_var_name={member: user}
    )
    estimator = classifier(tmp_path / "model", settings, "member")
    np.testing.assert_array_equal(logits_of(estimator, "member", lambda cities: 8 - cities), logits)
    settings = settings._replace(var_name_to_vocab_info={member: vocabulary})
    with pytest.raises(ValueError, match=f"'{member}'.*VocabInfo"):
        logits_of(classifier(tmp_path / "model", settings, "member"), "member")


def test_a_strategy_with_replicas_names_the_table_and_what_is_supported(tmp_path):
    config = tf.estimator.RunConfig(train_distribute=tf.distribute.MirroredStrategy(["/cpu:0"]))
    estimator = tf.estimator.Estimator(model_fn, model_dir=str(tmp_path), config=config)
    data = lambda: input_fn(1)  # noqa: E731
    with pytest.raises(RuntimeError, match="Embedding variable '.*' .*MirroredStrategy.*horovodrun"):
        estimator.train(data, steps=1)
