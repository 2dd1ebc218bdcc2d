# Tags: versions
# Not on GPUs: graphs, names and libraries
"""WorkQueue: each work is taken once per epoch, by readers and datasets; checkpoints have the rest."""

import contextlib
import threading

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
import tensorflow as tf

import local_cluster
from sparse_operation_kit import deeprec
from sparse_operation_kit.deeprec import DataFrame, ParquetDataset, WorkQueue

v1 = tf.compat.v1
WORKS = [f"part-{number}" for number in range(7)]


def run_to_end(session, fetched):
    values = []
    with contextlib.suppress(tf.errors.OutOfRangeError):
        while True:
            values.append(session.run(fetched))
    return values


def take_all(session, work):
    return [tf.compat.as_str(name) for name in run_to_end(session, work)]


def started(session):
    session.run([v1.global_variables_initializer(), v1.local_variables_initializer()])
    return session


def test_it_comes_from_deeprecs_module():
    from tensorflow.python.ops.work_queue import WorkQueue as found

    assert found is deeprec.WorkQueue


@pytest.mark.parametrize("epochs", [1, 3])
def test_works_come_in_order_without_shuffling(epochs):
    with tf.Graph().as_default(), v1.Session() as session:
        queue = WorkQueue(WORKS, num_epochs=epochs, shuffle=False, prefix="dir/", num_slices=4)
        work = queue.take()
        assert take_all(started(session), work) == [f"dir/{one}" for one in WORKS] * epochs
        assert len(queue) == 7 * epochs and queue.works == [one.encode() for one in WORKS]


def shuffled(seed=None, graph_seed=None, epochs=4, works=WORKS):
    with tf.Graph().as_default(), v1.Session() as session:
        if graph_seed is not None:
            v1.set_random_seed(graph_seed)
        work = WorkQueue(works, num_epochs=epochs, seed=seed).take()
        taken = take_all(started(session), work)
    return [taken[start : start + 7] for start in range(0, len(taken), 7)]


def test_epochs_are_shuffled_by_the_seed():
    epochs = shuffled(seed=1)
    assert [sorted(epoch) for epoch in epochs] == [WORKS] * 4
    assert len({tuple(epoch) for epoch in epochs}) > 1
    assert shuffled(seed=1) == epochs and shuffled(seed=2) != epochs
    assert shuffled(graph_seed=1) == epochs and shuffled(seed=1, graph_seed=5) == epochs
    assert shuffled() == shuffled() and shuffled() != shuffled(works=[f"{one}." for one in WORKS])


def test_a_dataset_of_works_ends_with_the_works(tmp_path):
    files = []
    for number in range(4):
        files.append(str(tmp_path / f"{number}.txt"))
        (tmp_path / f"{number}.txt").write_text(f"{number}a\n{number}b\n")
    with tf.Graph().as_default(), v1.Session() as session:
        queue = WorkQueue(files, num_epochs=2, shuffle=False)
        lines = tf.data.TextLineDataset(queue.input_dataset()).batch(3).prefetch(1)
        iterator = v1.data.make_initializable_iterator(lines)
        batch = iterator.get_next()
        started(session).run(iterator.initializer)
        found = np.concatenate(run_to_end(session, batch))
    assert [line.decode() for line in found] == [f"{n}{part}" for n in [*range(4)] * 2 for part in "ab"]


def test_columns_of_parquet_files_are_those_of_the_first_work(tmp_path):
    for name, values in (("a", [1, 2]), ("b", [3])):
        table = pyarrow.table({"key": [str(value) for value in values], "label": values})
        pyarrow.parquet.write_table(table, str(tmp_path / name))
    with tf.Graph().as_default(), v1.Session() as session:
        batches = []
        for fields in (None, ["key"]):
            queue = WorkQueue(["a", "b"], shuffle=False, prefix=f"{tmp_path}/")
            dataset = ParquetDataset(queue.input_dataset(), 2, fields)
            batches.append(v1.data.make_initializable_iterator(dataset))
        nexts = [iterator.get_next() for iterator in batches]
        started(session).run([iterator.initializer for iterator in batches])
        assert [sorted(one) for one in nexts] == [["key", "label"], ["key"]]
        found = [session.run(nexts) for _ in range(2)]
    assert [both[0]["label"].tolist() for both in found] == [[1, 2], [3]]
    assert [both[1]["key"].tolist() for both in found] == [[b"1", b"2"], [b"3"]]


def zoo_dataset(path, fields, num_epochs, **options):
    """Batches of a file of keys beside those of a file of labels, as DeepRec's model zoo makes them."""
    names = [f"{path}/keys", f"{path}/labels"]
    works = [WorkQueue([name], num_epochs).input_dataset() for name in names]
    datasets = [ParquetDataset(*both, **options) for both in zip(works, (4, 4), fields)]
    dataset = tf.data.Dataset.zip(tuple(datasets)).shuffle(20000, seed=2021)
    return dataset.map(lambda keys, labels: (keys, labels["label"]), num_parallel_calls=28).prefetch(2)


@pytest.mark.parametrize(
    ("fields", "options"),
    [
        ((None, None), {}),
        ((["key"], ["label"]), {"num_parallel_reads": 2}),
        (
            ([DataFrame.Field("key")], [DataFrame.Field("label", tf.int64)]),
            {"num_parallel_reads": tf.data.experimental.AUTOTUNE},
        ),
        (([DataFrame.Field("key", tf.string, 0)], [DataFrame.Field("label", tf.int64, ragged_rank=0)]), {}),
        ((None, None), {"num_parallel_reads": tf.data.experimental.AUTOTUNE}),
    ],
)
def test_the_zoos_pipelines_read_parquet_files_of_queues(tmp_path, fields, options):
    numbers = list(range(10))
    tables = {"keys": {"key": [f"key {number}" for number in numbers]}, "labels": {"label": numbers}}
    for name, table in tables.items():
        pyarrow.parquet.write_table(pyarrow.table(table), f"{tmp_path}/{name}")
    with tf.Graph().as_default(), v1.Session() as session:
        train, test = (zoo_dataset(tmp_path, fields, epochs, **options) for epochs in (2, 1))
        types, shapes = v1.data.get_output_types(train), v1.data.get_output_shapes(test)
        iterator = v1.data.Iterator.from_structure(types, shapes)
        features, labels = iterator.get_next()
        for dataset, epochs in ((train, 2), (test, 1)):
            started(session).run(iterator.make_initializer(dataset))
            batches = run_to_end(session, [features["key"], labels])
            found = [pair for keys, values in batches for pair in zip(keys.tolist(), values.tolist())]
            wanted = [(f"key {number}".encode(), number) for number in numbers]
            assert sorted(found) == sorted(wanted * epochs)


@pytest.mark.parametrize("servers", [0, 2])
def test_readers_take_works_from_a_queue(tmp_path, servers):
    (tmp_path / "1.txt").write_text("one\ntwo\n")
    (tmp_path / "2.txt").write_text("three\n")
    with local_cluster.graph_on(servers) as graph:
        queue = WorkQueue(["1.txt", "2.txt"], shuffle=False, prefix=f"{tmp_path}/")
        queue.add_summary()
        _, line = v1.TextLineReader().read(queue.input_producer())
        summary = v1.summary.merge_all()
        found = []
        with v1.train.MonitoredTrainingSession(graph._target) as session:
            value = v1.Summary.FromString(session.run(summary)).value[0]
            assert value.tag == "work_queue/fraction_of_2_full"
            while not session.should_stop():
                found.append(session.run(line).decode())
    assert found == ["one", "two", "three"]


def test_summaries_show_what_is_left():
    with tf.Graph().as_default(), v1.Session() as session:
        queue = WorkQueue(WORKS + ["last"])
        queue.add_summary()
        work, summary = queue.take(), v1.summary.merge_all()
        started(session)
        for left in (1, 0.875, 0.75):
            value = v1.Summary.FromString(session.run(summary)).value[0]
            assert value.tag == "work_queue/fraction_of_8_full" and value.simple_value == left
            session.run(work)


def test_threads_take_different_works():
    works = [str(number) for number in range(400)]
    with tf.Graph().as_default(), v1.Session() as session:
        work = WorkQueue(works).take()
        started(session)
        taken = [[] for _ in range(4)]
        threads = [
            threading.Thread(target=lambda found=found: found.extend(take_all(session, work)))
            for found in taken
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(sum(taken, [])) == sorted(works)


def test_checkpoints_have_what_is_left(tmp_path):
    with tf.Graph().as_default(), v1.Session() as session:
        work = WorkQueue(WORKS, num_epochs=2, seed=4).take()
        saver = v1.train.Saver()
        everything = take_all(started(session), work)
    for stop in (0, 5, 9, 14):
        with tf.Graph().as_default(), v1.Session() as session:
            work = WorkQueue(WORKS, num_epochs=2, seed=4).take()
            saver = v1.train.Saver()
            taken = [tf.compat.as_str(session.run(work)) for _ in range(stop if started(session) else 0)]
            path = saver.save(session, str(tmp_path / f"{stop}"))
        with tf.Graph().as_default(), v1.Session() as session:
            # A different seed: the remaining works come from the checkpoint.
            work = WorkQueue(WORKS, num_epochs=2, seed=9).take()
            saver = v1.train.Saver()
            saver.restore(session, path)
            session.run(v1.local_variables_initializer())
            again = str(tmp_path / f"again{stop}")
            saver.save(session, again)
            assert taken + take_all(session, work) == everything
            saver.restore(session, again)
            assert taken + take_all(session, work) == everything


def test_other_works_begin_anew(tmp_path, capfd):
    with tf.Graph().as_default(), v1.Session() as session:
        work = WorkQueue(WORKS, shuffle=False).take()
        session.run(work if started(session) else [])
        path = v1.train.Saver().save(session, str(tmp_path / "saved"))
    with tf.Graph().as_default(), v1.Session() as session:
        work = WorkQueue(WORKS[:2], shuffle=False).take()
        v1.train.Saver().restore(session, path)
        assert take_all(session, work) == WORKS[:2]
    assert "the checkpoint has other works" in capfd.readouterr().err


def test_monitored_sessions_go_on_where_they_stopped(tmp_path):
    taken = []
    for last in (3, 7):
        with tf.Graph().as_default():
            work = WorkQueue(WORKS, seed=2).take()
            table = deeprec.get_embedding_variable("work_queue/table", 2)
            rows = tf.nn.embedding_lookup(table, tf.strings.to_hash_bucket_fast([work], 100))
            step = v1.train.get_or_create_global_step()
            train = v1.train.GradientDescentOptimizer(0.1).minimize(tf.reduce_sum(rows), step)
            hooks = [v1.train.StopAtStepHook(last_step=last)]
            with v1.train.MonitoredTrainingSession(
                checkpoint_dir=str(tmp_path), hooks=hooks, save_checkpoint_steps=100
            ) as session:
                while not session.should_stop():
                    taken.append(session.run([work, train])[0].decode())
    assert sorted(taken) == WORKS


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"works": []}, "at least one name"),
        ({"works": "file"}, "at least one name, not 'file'"),
        ({"works": [1]}, "must be texts"),
        ({"num_epochs": 0}, "num_epochs must be at least 1, but is 0"),
        ({"local_work_mgr": object()}, "local_work_mgr"),
    ],
)
def test_arguments_that_are_wrong(options, message):
    with tf.Graph().as_default(), pytest.raises(ValueError, match=message):
        WorkQueue(**{"works": WORKS, **options})


def test_eager_execution_is_an_error():
    if tf.executing_eagerly():  # not in 1.15
        with pytest.raises(RuntimeError, match="not eagerly"):
            WorkQueue(WORKS)
