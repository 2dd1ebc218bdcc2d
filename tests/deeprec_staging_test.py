# Tags: versions
# Not on GPUs: graphs, names and libraries
"""tf.staged: same batches in the same order, in monitored sessions, plain sessions and Estimators."""

import threading

import numpy as np
import pytest
import tensorflow as tf

import harness
from sparse_operation_kit import deeprec
from sparse_operation_kit.deeprec import DataFrame, staging

v1 = tf.compat.v1


@pytest.fixture(autouse=True)
def told_nothing():
    """Each test starts with nothing logged, in a graph of its own."""
    staging._told.clear()
    with tf.Graph().as_default():
        yield


def batches_of(fetches, scaffold=None, hooks=()):
    """What each run of a session gives, until the data ends. The session hides the error that ends it."""
    found = []
    creator = v1.train.ChiefSessionCreator(scaffold=scaffold)
    hooks = [*hooks, deeprec.make_prefetch_hook()]
    with v1.train.MonitoredSession(session_creator=creator, hooks=hooks) as session:
        while not session.should_stop():
            found.append(session.run(fetches))
    return found


def numbers(count=20):
    """An iterator over 0, 1, ... that a hook or a script initializes."""
    return v1.data.make_initializable_iterator(tf.data.Dataset.range(count))


def initialized(iterator):
    return v1.train.Scaffold(local_init_op=tf.group(v1.local_variables_initializer(), iterator.initializer))


@pytest.mark.parametrize("capacity", [1, 3, 40])
@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize("hooks", [0, 1, 2])
def test_every_batch_comes_once_in_order(capacity, threads, hooks):
    iterator = numbers()
    number = deeprec.staged(iterator.get_next(), capacity=capacity, num_threads=threads)
    hooks = [deeprec.make_prefetch_hook() for _ in range(hooks)]
    with v1.train.MonitoredTrainingSession(scaffold=initialized(iterator), hooks=hooks) as session:
        found = []
        while not session.should_stop():
            found.append(session.run(number))
    assert found == [*range(20)]


class Initializes(v1.train.SessionRunHook):
    """Initializes an iterator, as Estimator's hook does."""

    def __init__(self, iterator):
        self._initializer = iterator.initializer

    def after_create_session(self, session, coord):
        del coord
        session.run(self._initializer)


@pytest.mark.parametrize("is_first", [True, False])
def test_a_hook_may_initialize_the_iterator(is_first):
    iterator = numbers()
    number = deeprec.staged(iterator.get_next())
    hooks = [Initializes(iterator), deeprec.make_prefetch_hook()]
    with v1.train.MonitoredTrainingSession(hooks=hooks if is_first else hooks[::-1]) as session:
        assert [session.run(number) for _ in range(5)] == [0, 1, 2, 3, 4]


def test_without_a_hook_the_iterator_may_be_initialized_later():
    iterator = numbers()
    number = deeprec.staged(iterator.get_next())
    with v1.train.MonitoredTrainingSession(hooks=[Initializes(iterator)]) as session:
        assert [session.run(number) for _ in range(5)] == [0, 1, 2, 3, 4]


def test_an_iterator_that_nothing_initializes_is_an_error():
    number = deeprec.staged(numbers().get_next())
    with pytest.raises(tf.errors.FailedPreconditionError, match="terator"):
        with v1.train.MonitoredTrainingSession(hooks=[deeprec.make_prefetch_hook()]) as session:
            session.run(number)


def test_a_plain_loop_with_queue_runners():
    with v1.Session() as session:
        iterator = numbers(5)
        number = deeprec.staged(iterator.get_next(), capacity=2)
        session.run(iterator.initializer)
        coord = v1.train.Coordinator()
        threads = v1.train.start_queue_runners(session, coord)
        for wanted in range(5):
            assert session.run(number) == wanted
        with pytest.raises(tf.errors.OutOfRangeError):
            session.run(number)
        coord.request_stop()
        coord.join(threads, stop_grace_period_secs=30)


def test_training_and_evaluation_in_one_graph_with_one_hook():
    iterator = v1.data.Iterator.from_structure(tf.int64, [])
    number = deeprec.staged(iterator.get_next(), num_threads=4, capacity=40)
    hooks = [deeprec.make_prefetch_hook()]
    for count in (7, 3):
        data = iterator.make_initializer(tf.data.Dataset.range(count))
        found = batches_of(number, v1.train.Scaffold(local_init_op=data), hooks)
        assert found == [*range(count)]


def test_stopping_early_stops_the_thread():
    before = threading.active_count()
    number = deeprec.staged(v1.data.make_one_shot_iterator(tf.data.Dataset.range(10**9)).get_next())
    step = v1.assign_add(v1.train.get_or_create_global_step(), 1)
    found = batches_of([number, step], hooks=[v1.train.StopAtStepHook(last_step=3)])
    assert [batch[0] for batch in found] == [0, 1, 2]
    assert threading.active_count() <= before


def test_structures_keep_their_form():
    number = v1.data.make_one_shot_iterator(tf.data.Dataset.range(1, 4)).get_next()
    vector = tf.range(number)
    features = {
        "dense": tf.reshape(tf.stack([number, number]), [2]),
        "sparse": tf.SparseTensor([[0, 1]], tf.reshape(number, [1]), [2, 3]),
        "ragged": tf.RaggedTensor.from_row_lengths(vector, tf.reshape(number, [1])),
        "frame": DataFrame.Value(vector, [tf.stack([0, number])]),
        "none": None,
        "text": (tf.strings.as_string(number),),
    }
    staged = deeprec.staged(features)
    assert staged["dense"].shape == [2] and staged["none"] is None
    assert isinstance(staged["sparse"], tf.SparseTensor) and isinstance(staged["ragged"], tf.RaggedTensor)
    fetches = {name: value for name, value in staged.items() if value is not None}
    with v1.train.MonitoredTrainingSession(hooks=[deeprec.make_prefetch_hook()]) as session:
        for wanted in (1, 2, 3):
            found = session.run(fetches)
            assert found["dense"].tolist() == [wanted] * 2
            assert found["sparse"].values.tolist() == [wanted]
            assert found["ragged"].to_list() == [[*range(wanted)]]
            assert found["frame"].values.tolist() == [*range(wanted)]
            assert found["text"] == (str(wanted).encode(),)


def test_values_come_from_a_generator():
    def generate(session):
        assert isinstance(session, v1.Session)
        for number in range(4):
            yield [number, [number] * 2]

    one, two = v1.placeholder(tf.int32, []), v1.placeholder(tf.int32, [2])
    total = deeprec.staged(one + two, feed_list=[one, two], feed_generator=generate)
    assert [found.tolist() for found in batches_of(total)] == [[2 * n] * 2 for n in range(4)]


def test_values_come_from_other_tensors():
    number = v1.data.make_one_shot_iterator(tf.data.Dataset.range(3)).get_next()
    fed = v1.placeholder(tf.int64, [])
    staged = deeprec.staged(fed * 10, feed_dict={fed: number})
    assert batches_of(staged) == [0, 10, 20]


def test_errors_end_training_unless_they_are_ignored():
    def broken(number):
        return tf.debugging.check_numerics(1 / tf.cast(number - 2, tf.float32), "batch 2")

    for ignored in ((), [v1.errors.INVALID_ARGUMENT], [tf.errors.InvalidArgumentError]):
        with tf.Graph().as_default():
            number = v1.data.make_one_shot_iterator(tf.data.Dataset.range(4)).get_next()
            staged = deeprec.staged([number, broken(number)], ignored_exception_types=ignored)
            found = []

            def train(fetches=staged, found=found):
                with v1.train.MonitoredTrainingSession(hooks=[deeprec.make_prefetch_hook()]) as session:
                    while not session.should_stop():
                        found.append(session.run(fetches)[0])

            if ignored:
                train()
                assert found == [0, 1, 3]
            else:
                with pytest.raises(tf.errors.InvalidArgumentError, match="batch 2"):
                    train()
                assert found in ([], [0], [0, 1])


def test_an_error_may_mean_the_end():
    number = v1.data.make_one_shot_iterator(tf.data.Dataset.range(9)).get_next()
    checked = tf.debugging.assert_less(number, tf.constant(3, tf.int64))
    with tf.control_dependencies([checked]):
        number = tf.identity(number)
    staged = deeprec.staged(number, closed_exception_types=(v1.errors.INVALID_ARGUMENT,))
    assert batches_of(staged) == [0, 1, 2]


def test_tables_train_as_without_it():
    keys = np.random.default_rng(1).integers(-5, 5, [12, 6])

    def train(stage):
        with tf.Graph().as_default():
            batch = v1.data.make_one_shot_iterator(tf.data.Dataset.from_tensor_slices(keys)).get_next()
            table = deeprec.get_embedding_variable("staged/table", 3)
            rows = tf.nn.embedding_lookup(table, stage(batch))
            loss = tf.reduce_sum(tf.square(rows - 1))
            step = v1.train.AdagradOptimizer(0.1).minimize(loss, v1.train.get_or_create_global_step())
            return [found[0] for found in batches_of([loss, step])]

    losses = train(lambda batch: batch)
    assert len(losses) == 12
    assert train(lambda batch: deeprec.staged(batch, capacity=4, num_threads=2)) == losses


def test_lookups_stay_in_the_step(caplog):
    with harness.graph_and_session() as session:
        table = deeprec.get_embedding_variable("staged/looked_up", 3)
        rows = tf.nn.embedding_lookup(table, tf.constant([1, 2], tf.int64))
        assert deeprec.staged({"rows": rows})["rows"] is rows
        assert deeprec.staged({"rows": rows})["rows"] is rows
        harness.initialize(session)
        assert session.run(rows).shape == (2, 3)
    assert caplog.text.count("sok.LookupPrefetch") == 1


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"capacity": 0}, ValueError, "are 0 and 1"),
        ({"num_threads": 0}, ValueError, "are 1 and 0"),
        ({"feed_list": []}, ValueError, "need each other"),
        ({"ignored_exception_types": ["text"]}, TypeError, "'text' is neither"),
        ({"feed_dict": {"a": 1}}, TypeError, "must be a tensor, not 1"),
    ],
)
def test_arguments_that_are_wrong(options, error, message):
    with tf.Graph().as_default(), pytest.raises(error, match=message):
        deeprec.staged(tf.constant(1), **options)
    with tf.Graph().as_default(), pytest.raises(ValueError, match="no tensor"):
        deeprec.staged([None])


def test_target_nodes_are_taken():
    assert deeprec.mark_target_node([tf.constant(1)]) is None
