# Tags: slow
"""SokExchange on several ranks: received words, for any sizes, orders and numbers of concurrent exchanges."""

import os
import time
from unittest import mock

import numpy as np
import pytest
import tensorflow as tf

import ranks
from same_length import zip_equal
from sparse_operation_kit import native
from sparse_operation_kit.ranks.communicator import communicator
from sparse_operation_kit.ranks.exchange_names import exchange_statistics

_LAUNCHES = [("gloo", 3), ("mpi", 2)]


class _Rank:
    """This process as a rank: a graph with a session, exchanges of fed words, and their expected results."""

    def __init__(self, threads=2):
        self.rank, self.size = communicator().rank, communicator().size
        self.ops = native.horovod_ops()
        self.graph = tf.Graph()
        # Of this session: the process's would be as many as its first session asked for.
        config = tf.compat.v1.ConfigProto(inter_op_parallelism_threads=threads, use_per_session_threads=True)
        self.session = tf.compat.v1.Session(graph=self.graph, config=config)

    def fed_exchange(self, name):
        """(words placeholder, splits placeholder, outputs)."""
        with self.graph.as_default():
            words = tf.compat.v1.placeholder(tf.int64, [None])
            splits = tf.compat.v1.placeholder(tf.int32, [None])
            return words, splits, self.ops.sok_exchange(words, splits, exchange_name=name)

    def feed(self, exchange, parts):
        words, splits, _ = exchange
        return {words: np.concatenate(parts), splits: [len(part) for part in parts]}

    def check(self, got, parts):
        np.testing.assert_array_equal(got.received, np.concatenate(parts))
        np.testing.assert_array_equal(got.received_splits, [len(part) for part in parts])

    def exchanged(self):
        """The statistics of the process's exchanges so far."""
        with self.graph.as_default():
            return self.session.run(exchange_statistics())


def _words(source, target, key, largest=40):
    """The words that `source` sends to `target`, the same on every rank; often none, or none to any."""
    rng = np.random.default_rng([source, target, key])
    silent = np.random.default_rng([source, key]).random() < 0.2
    size = 0 if silent else max(0, int(rng.integers(-largest // 2, largest)))
    return rng.integers(-(2**63), 2**63, size)


def _parts(me, key, largest=40):
    """(the words that this rank sends, those that it receives), by the other rank."""
    others = range(me.size)
    sent = [_words(me.rank, other, key, largest) for other in others]
    return sent, [_words(other, me.rank, key, largest) for other in others]


def check_random_sizes():
    me = _Rank()
    exchange = me.fed_exchange("random")
    for key in range(40):
        sent, received = _parts(me, key, largest=40 if key % 10 else 20_000)
        me.check(me.session.run(exchange[2], me.feed(exchange, sent)), received)


def check_nothing_at_all():
    me = _Rank()
    exchange = me.fed_exchange("nothing")
    nothing = [np.zeros(0, np.int64)] * me.size
    for _ in range(3):
        me.check(me.session.run(exchange[2], me.feed(exchange, nothing)), nothing)


def check_megabytes():
    me = _Rank()
    exchange = me.fed_exchange("megabytes")
    size = 2**21 // me.size + 1
    sent = [np.arange(size) * (me.rank + 1) + other for other in range(me.size)]
    received = [np.arange(size) * (other + 1) + me.rank for other in range(me.size)]
    for _ in range(2):
        me.check(me.session.run(exchange[2], me.feed(exchange, sent)), received)


def check_words_beyond_the_splits_stay_here():
    me = _Rank()
    words, splits, outputs = me.fed_exchange("beyond")
    got = me.session.run(outputs, {words: np.arange(100) + me.rank, splits: [1] * me.size})
    me.check(got, [np.array([other + me.rank]) for other in range(me.size)])


def _many_in_flight(threads, steps):
    me = _Rank(threads)
    names = [f"flight{i}" for i in range(8)]
    # Built and fetched in different orders on the ranks.
    exchanges = {name: me.fed_exchange(f"{name}.{threads}") for name in _rotated(names, 3 * me.rank)}
    fetches = {name: exchange[2] for name, exchange in exchanges.items()}
    for step in range(steps):
        feed, expected = {}, {}
        for i, name in enumerate(names):
            sent, expected[name] = _parts(me, 1000 * step + i)
            feed.update(me.feed(exchanges[name], sent))
        for name, got in me.session.run(fetches, feed).items():
            me.check(got, expected[name])


def _rotated(items, by):
    return items[by % len(items) :] + items[: by % len(items)]


def check_many_in_flight_with_one_thread():
    _many_in_flight(threads=1, steps=12)


def check_many_in_flight_with_eight_threads():
    _many_in_flight(threads=8, steps=12)


def check_a_chain_in_which_each_feeds_the_next():
    me = _Rank(threads=1)
    words, splits, there = me.fed_exchange("there")
    with me.graph.as_default():
        back = me.ops.sok_exchange(there.received + 1, there.received_splits, exchange_name="back")
    for key in range(10):
        sent, _ = _parts(me, key)
        got = me.session.run(back, {words: np.concatenate(sent), splits: [len(part) for part in sent]})
        me.check(got, [part + 1 for part in sent])


def check_constants_are_not_folded():
    me = _Rank()
    with me.graph.as_default():
        words = tf.constant(np.arange(me.size), tf.int64)
        exchange = me.ops.sok_exchange(words, tf.ones([me.size], tf.int32), exchange_name="folded")
        result = exchange.received + 1
    for step in range(3):
        before = me.exchanged().exchanges
        assert list(me.session.run(result)) == [me.rank + 1] * me.size
        assert me.exchanged().exchanges == before + 1, step


def check_the_same_inputs_are_not_merged():
    me = _Rank()
    with me.graph.as_default():
        words = tf.constant(np.arange(me.size), tf.int64)
        splits = tf.ones([me.size], tf.int32)
        one, two = (me.ops.sok_exchange(words, splits, exchange_name=name) for name in ("one", "two"))
        result = one.received + two.received
    before = me.exchanged().exchanges
    assert list(me.session.run(result)) == [2 * me.rank] * me.size
    assert me.exchanged().exchanges == before + 2


def check_a_control_dependency_is_enough_to_run():
    me = _Rank()
    with me.graph.as_default():
        words = tf.constant(np.arange(me.size), tf.int64)
        exchange = me.ops.sok_exchange(words, tf.ones([me.size], tf.int32), exchange_name="control")
        with tf.control_dependencies([exchange.received]):
            result = tf.no_op()
    before = me.exchanged().exchanges
    me.session.run(result)
    assert me.exchanged().exchanges == before + 1


def check_statistics():
    me = _Rank()
    exchange = me.fed_exchange("counted")
    before = me.exchanged()
    sent = [np.zeros(3 + other, np.int64) for other in range(me.size)]
    me.session.run(exchange[2], me.feed(exchange, sent))
    own = 8 * (3 + me.rank)
    all_sent, all_received = 8 * sum(len(part) for part in sent), own * me.size
    change = type(before)(*(new - old for new, old in zip_equal(me.exchanged(), before)))
    assert change.exchanges == 1
    assert (change.bytes_sent, change.bytes_received) == (all_sent, all_received)
    assert (change.bytes_sent_to_others, change.bytes_received_from_others) == (
        all_sent - own,
        all_received - own,
    )


def check_bad_inputs_are_errors_that_name_the_exchange():
    me = _Rank()
    words, splits, outputs = me.fed_exchange("bad")
    bad_splits = {
        "one number for each": [1] * (me.size + 1),
        "below zero": [2] + [0] * (me.size - 2) + [-1],
        "more than the 2 words": [1] * me.size if me.size > 2 else [1, 2],
        "room for 2147483647": [2**31 - 1, 1] + [0] * (me.size - 2),
    }
    for reason, bad in bad_splits.items():
        error = _error_of(lambda bad=bad: me.session.run(outputs, {words: [7, 7], splits: bad}))
        # A split that is larger than any tensor is larger than this one.
        assert "exchange 'bad': " in error, error
        assert reason in error or "more than the 2 words" in error, error
    got = me.session.run(outputs, {words: np.arange(me.size), splits: [1] * me.size})
    me.check(got, [np.array([me.rank])] * me.size)


def _error_of(run):
    try:
        run()
    except Exception as error:
        return str(error)
    raise AssertionError("there was no error")


def check_an_error_elsewhere_ends_the_step_at_once():
    # Rank 0 fails before the others reach the exchange, and must not wait for them: they run it after a
    # barrier that rank 0 enters when it has its error.
    me = _Rank()
    words, splits, outputs = me.fed_exchange("left")
    barrier = me.fed_exchange("barrier")
    feed = {words: np.arange(me.size) + 10 * me.rank, splits: [1] * me.size}
    all_feed = {**feed, **me.feed(barrier, [np.zeros(0, np.int64)] * me.size)}
    expected = [np.array([me.rank + 10 * other]) for other in range(me.size)]

    def fail():
        time.sleep(0.3)
        raise ValueError("of another kind")

    with me.graph.as_default():
        failing = tf.numpy_function(fail, [], tf.int64)
    if me.rank == 0:
        assert "of another kind" in _error_of(lambda: me.session.run([outputs, failing], feed))
    me.session.run(barrier[2], all_feed)
    if me.rank != 0:
        # The words that rank 0 had sent before its error still arrive.
        me.check(me.session.run(outputs, feed), expected)
    me.session.run(barrier[2], all_feed)
    me.check(me.session.run(outputs, feed), expected)


def check_a_slow_rank_is_waited_for():
    # The launch sets SOK_STALL_SECONDS to 1.
    me = _Rank()
    exchange = me.fed_exchange("slow")
    for slow in range(2):
        if me.rank == slow:
            time.sleep(2)
        sent, received = _parts(me, slow)
        me.check(me.session.run(exchange[2], me.feed(exchange, sent)), received)


def check_stall_seconds_that_are_no_number():
    me = _Rank()
    words, splits, outputs = me.fed_exchange("seconds")
    with mock.patch.dict(os.environ, SOK_STALL_SECONDS="soon"):
        error = _error_of(lambda: me.session.run(outputs, {words: [], splits: [0] * me.size}))
    assert "SOK_STALL_SECONDS is 'soon'" in error, error


_CHECKS = [check for name, check in sorted(globals().items()) if name.startswith("check_")]


@pytest.mark.parametrize(("transport", "size"), _LAUNCHES)
def test_exchanges(transport, size):
    # With Horovod's own cycle, as in programs of users.
    environment = {"SOK_STALL_SECONDS": "1", "HOROVOD_CYCLE_TIME": "1"}
    ranks.run_checks(_CHECKS, ranks=size, transport=transport, env=environment)


def _exchange_varying_sizes():
    me = _Rank()
    exchange = me.fed_exchange("varying")
    for key in range(40):
        sent, received = _parts(me, key)
        me.check(me.session.run(exchange[2], me.feed(exchange, sent)), received)


def test_sizes_that_vary_are_negotiated_fast():
    environment = {"HOROVOD_LOG_LEVEL": "trace", "SOK_STALL_SECONDS": "0"}
    job = ranks.launch(_exchange_varying_sizes, ranks=2, env=environment)
    assert job.returncode == 0, job.report()
    assert job.outputs[0].count("Performing varying") == 40
    # The slow negotiation over rank 0 is needed once for the exchange and once for the round that ends the
    # stall watch, each in one or, if a rank is late, two of Horovod's cycles; not forty times.
    assert 1 <= job.outputs[0].count("Adding messages from process-set rank 0") <= 10
