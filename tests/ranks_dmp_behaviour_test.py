# Tags: slow
# Not on GPUs: ordinary variables, for which the fake GPU has few of TensorFlow's kernels
"""dist_model_parallel over ranks: exchanges, errors, checkpoints, broadcasts and Keras' fit."""

import os

import numpy as np
import pytest
import tensorflow as tf

import dmp_model
import harness
import ranks
import sparse_operation_kit as sok
from same_length import zip_equal
from sparse_operation_kit import compat
from sparse_operation_kit import dist_model_parallel as dmp
from sparse_operation_kit.dist_model_parallel.keras import keras
from sparse_operation_kit.ranks.communicator import communicator
from sparse_operation_kit.ranks.exchange_names import exchange_statistics

train = tf.compat.v1.train
FIT_STEPS = 5


def _tables(number, rows=10, columns=4, combiner=None):
    return [dmp.Embedding(rows, columns, combiner=combiner, name=f"t{i}") for i in range(number)]


def check_exchanges_of_a_step():
    """A lookup has one exchange each way, and a step one more, of any number of tables; gives their names."""
    names = []
    for number in (communicator().size, 7):
        with tf.Graph().as_default(), tf.compat.v1.Session(config=harness.session_config()) as session:
            layer = dmp.DistributedEmbedding(_tables(number), column_slice_threshold=20)
            outputs = layer([tf.constant([[1, 2], [3, 3]])] * number)
            loss = tf.add_n([tf.reduce_sum(tf.square(output)) for output in outputs])
            step = dmp.DistributedOptimizer(train.AdagradOptimizer(0.1)).minimize(loss)
            exchanges = exchange_statistics().exchanges
            session.run(tf.compat.v1.global_variables_initializer())
            before = session.run(exchanges)
            session.run(outputs)
            between = session.run(exchanges)
            session.run(step)
            assert (int(between - before), int(session.run(exchanges) - between)) == (2, 3)
            for op in session.graph.get_operations():
                if op.type == "SokExchange":
                    names.append(op.get_attr("exchange_name").decode())
                elif op.type.startswith("Horovod"):
                    names.append(op.name)
    assert len(names) >= 3
    return sorted(names)


def check_rows_travel_once():
    """A lookup sends as many bytes for an id that occurs a thousand times as for one that occurs once."""
    sent = []
    for times in (1, 1000):
        with tf.Graph().as_default(), tf.compat.v1.Session(config=harness.without_optimizations()) as session:
            layer = dmp.DistributedEmbedding(_tables(communicator().size, columns=64))
            outputs = layer([tf.fill([times, 1], 3)] * communicator().size)
            statistics = exchange_statistics().bytes_sent_to_others
            session.run(tf.compat.v1.global_variables_initializer())
            before = session.run(statistics)
            session.run(outputs)
            sent.append(int(session.run(statistics) - before))
    assert sent[0] == sent[1] > 0


def check_gradients():
    """Gradients of a replicated table and of one that this rank has are combined as Horovod combines them."""
    with tf.Graph().as_default(), tf.compat.v1.Session(config=harness.without_optimizations()) as session:
        tables = [dmp.Embedding(3, 2, name="small"), *_tables(communicator().size)]
        layer = dmp.DistributedEmbedding(tables, data_parallel_threshold=6)
        outputs = layer([[[0]]] * len(tables))
        loss = tf.add_n([tf.reduce_sum(output) for output in outputs]) * (1.0 + communicator().rank)
        variables = layer.trainable_variables
        gradients = {"raw": tf.gradients(loss, variables)}
        for options in ({}, {"op": "sum"}, {"op": "sum", "sparse_as_dense": True}):
            optimizer = dmp.DistributedOptimizer(train.GradientDescentOptimizer(1.0), **options)
            pairs = optimizer.compute_gradients(loss, variables)
            gradients[str(options)] = [gradient for gradient, _ in pairs]
        session.run(tf.compat.v1.global_variables_initializer())
        total = float(sum(range(1, communicator().size + 1)))
        expected = {
            "raw": [1.0 + communicator().rank, total],
            "{}": [total / communicator().size] * 2,
            "{'op': 'sum'}": [total] * 2,
            "{'op': 'sum', 'sparse_as_dense': True}": [total] * 2,
        }
        for name, of_variables in gradients.items():
            dense = [tf.convert_to_tensor(gradient)[0, 0] for gradient in of_variables]
            assert session.run(dense) == expected[name]


def check_bad_ids():
    """They are an error on every rank; the tables stay as they were and train on."""
    last = communicator().rank == communicator().size - 1
    for options in ({}, {"row_slice_threshold": 1}, {"data_parallel_threshold": 1000}, {"dp_input": False}):
        with tf.Graph().as_default(), tf.compat.v1.Session(config=harness.without_optimizations()) as session:
            layer = dmp.DistributedEmbedding(_tables(4), **options)
            bad = tf.compat.v1.placeholder(tf.int64, [None, 1])
            inputs = [bad if number == 1 else tf.zeros([12, 1], tf.int64) for number in _inputs(layer)]
            loss = tf.add_n([tf.reduce_sum(tf.square(output)) for output in layer(inputs)])
            step = dmp.DistributedOptimizer(train.AdagradOptimizer(0.1)).minimize(loss)
            session.run(tf.compat.v1.global_variables_initializer())
            before = layer.get_weights(all_ranks=True)
            for number in (10, -1, 2**40):
                # With the inputs of tables, the rank that has table 1 has the bad id.
                is_bad = last if layer.dp_input else 1 in _inputs(layer)
                value = np.full([12, 1], number if is_bad else 0)
                with pytest.raises(tf.errors.InvalidArgumentError) as error:
                    session.run(step, {bad: value})
                of_rank = 2 if layer.dp_input else 1
                assert (
                    f"Table 1 ('t1') has ids in [0, 10), but input 1 on rank {of_rank} has {number}"
                    in str(error.value)
                )
            harness.assert_equal_arrays(layer.get_weights(all_ranks=True), before)
            session.run(step, {bad: np.zeros([12, 1])})
            assert not np.array_equal(layer.get_weights(all_ranks=True)[1], before[1])


def _inputs(layer):
    every = list(range(len(layer.strategy.input_table_map)))
    return every if layer.dp_input else layer.strategy.input_ids_list[communicator().rank]


def check_two_lookups_in_a_step():
    """A layer that is called twice, as for an encoder and a decoder, and the same with a shared table."""
    rank, trained = communicator().rank, []
    for calls in ([[0], [1]], [[0, 1]]):
        with tf.Graph().as_default(), tf.compat.v1.Session(config=harness.without_optimizations()) as session:
            ids = [tf.constant([[1, 2], [rank, 3]]), tf.constant([[rank, 4]])]
            layer = dmp.DistributedEmbedding(
                _tables(1, combiner="sum"), input_table_map=[0] * len(calls[0]), column_slice_threshold=20
            )
            outputs = [output for numbers in calls for output in layer([ids[number] for number in numbers])]
            loss = tf.add_n([tf.reduce_sum(tf.square(output)) for output in outputs])
            step = dmp.DistributedOptimizer(train.AdagradOptimizer(0.1)).minimize(loss)
            session.run(tf.compat.v1.global_variables_initializer())
            for _ in range(3):
                session.run(step)
            trained.append(layer.get_weights(all_ranks=True)[0])
    # Gradients of a row that both calls read are added up in another order.
    np.testing.assert_allclose(trained[0], trained[1], rtol=1e-6, atol=1e-8)


def check_loss_scaling():
    """A gradient that is not finite, of a table that one rank has, and then one that is."""
    scaled = sok.tf.keras.mixed_precision.LossScaleOptimizer
    for wrap in (
        lambda inner: scaled(dmp.DistributedOptimizer(inner), initial_scale=8.0),
        lambda inner: dmp.DistributedOptimizer(scaled(inner, initial_scale=8.0)),
    ):
        with tf.Graph().as_default(), tf.compat.v1.Session(config=harness.without_optimizations()) as session:
            layer = dmp.DistributedEmbedding(_tables(communicator().size))
            factor = tf.compat.v1.placeholder(tf.float32, [])
            first, *others = layer([[[1]]] * communicator().size)
            loss = tf.reduce_sum(first) * factor + tf.add_n([tf.reduce_sum(other) for other in others])
            step = wrap(train.GradientDescentOptimizer(0.5)).minimize(loss)
            session.run(tf.compat.v1.global_variables_initializer())
            before = layer.get_weights(all_ranks=True)
            for value, moved in ((np.inf, 0.0), (1.0, 0.5)):
                session.run(step, {factor: value})
                for got, want in zip_equal(layer.get_weights(all_ranks=True), before):
                    np.testing.assert_allclose(want[1] - got[1], moved, rtol=1e-6)


def _ranks_loss(outputs, kernel):
    total = tf.add_n([tf.reduce_sum(output) for output in outputs]) + kernel
    return total * (1.0 + communicator().rank)


def check_clipping():
    """A global norm counts the tables of all ranks; gives the step of a variable that all ranks have."""
    size = communicator().size
    steps = []
    # In each table, all ranks look up one row, of 4 columns: its gradient is the average over ranks.
    mean = sum(range(1, size + 1)) / size
    norm = np.sqrt(size * 4 * mean**2 + mean**2)
    with tf.Graph().as_default(), tf.compat.v1.Session(config=harness.without_optimizations()) as session:
        layer, kernel = dmp.DistributedEmbedding(_tables(size)), tf.Variable(0.0, name="kernel")
        loss = _ranks_loss(layer([[[0]]] * size), kernel)
        optimizer = dmp.DistributedOptimizer(train.GradientDescentOptimizer(1.0))
        pairs = optimizer.compute_gradients(loss, [*layer.trainable_variables, kernel])
        clipped, of_all = tf.clip_by_global_norm([gradient for gradient, _ in pairs], 1.0)
        step = optimizer.apply_gradients(zip_equal(clipped, [variable for _, variable in pairs]))
        session.run(tf.compat.v1.global_variables_initializer())
        np.testing.assert_allclose(session.run([of_all, step])[0], norm, rtol=1e-6)
        steps.append(session.run(kernel))
    # The optimizers of Keras in TensorFlow 1.15 have no global_clipnorm.
    kinds = (keras.optimizers.SGD, keras.optimizers.legacy.SGD) if compat.IS_TENSORFLOW_2 else ()
    for make in kinds:
        layer, kernel = dmp.DistributedEmbedding(_tables(size)), tf.Variable(0.0, name="kernel")
        with tf.GradientTape() as tape:
            loss = _ranks_loss(layer([[[0]]] * size), kernel)
        variables = [*layer.trainable_variables, kernel]
        optimizer = dmp.DistributedOptimizer(make(1.0, global_clipnorm=1.0))
        optimizer.apply_gradients(zip_equal(tape.gradient(loss, variables), variables))
        steps.append(kernel.numpy())
    np.testing.assert_allclose(steps, -mean / norm, rtol=1e-6)
    return steps


def check_eager_lookups():
    """Lookups and a tape without a function."""
    layer = dmp.DistributedEmbedding(_tables(communicator().size), row_slice_threshold=40)
    for _ in range(2):
        with tf.GradientTape() as tape:
            outputs = layer([[[communicator().rank, 9]]] * communicator().size)
            loss = tf.add_n([tf.reduce_sum(output) for output in outputs])
        gradients = dmp.DistributedGradientTape(tape).gradient(loss, layer.trainable_variables)
        assert all(isinstance(gradient, tf.IndexedSlices) for gradient in gradients)
        for output, table in zip_equal(outputs, layer.get_weights(all_ranks=True)):
            np.testing.assert_array_equal(output, table[np.array([[communicator().rank, 9]])])
    with pytest.raises(tf.errors.InvalidArgumentError, match="has 10"):
        layer([[[10 * communicator().rank]]] * communicator().size)


def check_concatenated_features():
    """A ConcatOneHotEmbedding on one rank, or sliced by rows or columns; inputs of samples and of tables."""
    size, rank = communicator().size, communicator().rank
    table, ids = np.arange(14.0).reshape(7, 2), np.array([[2, 0], [0, 3], [1, 1]] * size)
    for options in (
        {},
        {"row_slice_threshold": 14},
        {"column_slice_threshold": 7},
        {"row_slice_threshold": 14, "dp_input": False},
    ):
        others = _tables(2)
        layer = dmp.DistributedEmbedding([dmp.ConcatOneHotEmbedding([3, 4], 2), *others], **options)
        layer.build()
        layer.set_weights([table, *(np.zeros([10, 4]) for _ in others)])
        own = ids[3 * rank :][:3] if layer.dp_input else ids
        inputs = {0: own, 1: own[:, :1], 2: own[:, :1]}
        outputs = layer([inputs[number] for number in _inputs(layer)])
        np.testing.assert_array_equal(outputs[0], table[np.array([[2, 3], [0, 6], [1, 4]])])
        inputs[0] = own + [[1, 0]] if rank == 1 else own
        with pytest.raises(tf.errors.InvalidArgumentError, match="input 0 on rank 1 has 3"):
            layer([inputs[number] for number in _inputs(layer)])


def check_ranks_with_other_tables():
    with tf.Graph().as_default(), tf.compat.v1.Session(config=harness.without_optimizations()) as session:
        layer = dmp.DistributedEmbedding(_tables(4, rows=10 + communicator().rank))
        outputs = layer([[[1]]] * 4)
        session.run(tf.compat.v1.global_variables_initializer())
        with pytest.raises(
            tf.errors.InvalidArgumentError, match="other tables or options on rank [0-9] than"
        ):
            session.run(outputs)


def check_a_batch_that_ranks_do_not_divide():
    with tf.Graph().as_default(), tf.compat.v1.Session(config=harness.without_optimizations()) as session:
        layer = dmp.DistributedEmbedding(_tables(4), dp_input=False)
        count = len(_inputs(layer))
        for ids in (tf.zeros([13, 1], tf.int64), tf.zeros([13], tf.int64)):
            with pytest.raises(ValueError, match="global batch of 13 is not divisible by [0-9] ranks"):
                layer([ids] * count)
        unknown = tf.compat.v1.placeholder_with_default(np.zeros([13, 1], np.int64), [None, 1])
        outputs = layer([unknown] * count)
        session.run(tf.compat.v1.global_variables_initializer())
        with pytest.raises(tf.errors.InvalidArgumentError, match="global batch of 13 is not divisible by"):
            session.run(outputs)
    # One rank has another batch than the others, and each raises.
    layer = dmp.DistributedEmbedding(_tables(4), dp_input=False)
    batch = 12 + (communicator().rank == 1)
    message = "on rank 1: the global batch of 13 is not divisible by [0-9] ranks"
    with pytest.raises(ValueError, match=message):
        layer([tf.zeros([batch, 1], tf.int64)] * len(_inputs(layer)))


def check_ids_of_one_dimension():
    """With dp_input=False, ids [batch] give [batch, columns]: eagerly, in a function, and in a session."""
    size, rank = communicator().size, communicator().rank
    tables = [np.arange(40.0).reshape(10, 4) + 100 * number for number in range(size + 1)]
    ids = [np.arange(2 * size) + number for number in range(size + 1)]
    for options in ({}, {"row_slice_threshold": 1}, {"data_parallel_threshold": 40}):
        layer = dmp.DistributedEmbedding(_tables(size + 1), dp_input=False, **options)
        layer.build()
        layer.set_weights(tables)
        signature = [[tf.TensorSpec([None], tf.int64)] * len(_inputs(layer))]
        call = tf.function(lambda inputs, layer=layer: layer(inputs), input_signature=signature)
        shapes = call.get_concrete_function().structured_outputs
        assert [output.shape.as_list() for output in shapes] == [[None, 4]] * (size + 1)
        for look_up in (layer, call):
            outputs = look_up([tf.constant(ids[number]) for number in _inputs(layer)])
            for output, table, of_table in zip_equal(outputs, tables, ids):
                np.testing.assert_array_equal(output, table[of_table[2 * rank :][:2]])
        # Some ids [batch, 2], some [batch]: eagerly each has its shape.
        mixed = [one if number % 2 else np.stack([one, one * 0], 1) for number, one in enumerate(ids)]
        outputs = layer([tf.constant(mixed[number]) for number in _inputs(layer)])
        for output, table, of_table in zip_equal(outputs, tables, mixed):
            np.testing.assert_array_equal(output, table[of_table[2 * rank :][:2]])
    # In a graph, a rank with one kind would expect it of the others.
    layer = dmp.DistributedEmbedding(_tables(size), dp_input=False)
    function = tf.function(lambda ids: layer([ids]))
    with pytest.raises(
        tf.errors.InvalidArgumentError, match=r"some ids are \[batch\] and some \[batch, hotness"
    ):
        function(tf.zeros([size, 1] if rank else [size], tf.int64))


def check_broadcast():
    """Ordinary variables and replicas get the last rank's values; slots and tables of one rank stay."""
    rank = communicator().rank
    with tf.Graph().as_default(), tf.compat.v1.Session(config=harness.without_optimizations()) as session:
        tables = [dmp.Embedding(3, 2, name="small"), *_tables(communicator().size)]
        layer = dmp.DistributedEmbedding(tables, data_parallel_threshold=6)
        kernel = tf.Variable([float(rank)])
        loss = tf.add_n([tf.reduce_sum(output) for output in layer([[[0]]] * len(tables))]) * kernel[0]
        step = dmp.DistributedOptimizer(train.MomentumOptimizer(0.1, 0.9)).minimize(loss)
        replica, dealt = layer.trainable_variables
        spread = [variable.assign_add(tf.ones_like(variable) * rank) for variable in (replica, dealt)]
        root = communicator().size - 1
        start = dmp.broadcast_variables(tf.compat.v1.global_variables(), root)
        session.run(tf.compat.v1.global_variables_initializer())
        initial = session.run(replica)
        session.run(spread)
        before = session.run(dealt)
        session.run(start)
        np.testing.assert_array_equal(session.run(dealt), before)
        np.testing.assert_array_equal(session.run(replica), initial + root)
        assert session.run(kernel) == [root]
        session.run(step)
        return session.run([kernel, replica])


class _EndedError(Exception):
    """What ends a training between two checkpoints."""


_SAVED = dmp_model.Case(
    ((11, 4, "sum"), (30, 4, "sum"), (7, 6, None)),
    ((0, 1), (1, 3), (2, 2)),
    {"strategy": "memory_balanced", "column_slice_threshold": 40},
)


def check_checkpoints(folder):
    """A MonitoredTrainingSession on every rank, with its own files, goes on from its last checkpoint."""
    options = {
        "checkpoint_dir": os.path.join(folder, f"{communicator().size}.{communicator().rank}"),
        "save_checkpoint_steps": 2,
        "config": harness.without_optimizations(),
    }

    def build():
        layer = dmp_model.layer_of(_SAVED)
        inputs = dmp_model.as_tensors(_SAVED, range(len(_SAVED.inputs)), dmp_model.batch(_SAVED, 0))
        loss = tf.add_n([tf.reduce_sum(tf.square(output)) for output in layer(inputs)])
        step = train.get_or_create_global_step()
        optimizer = dmp.DistributedOptimizer(train.AdamOptimizer(0.1))
        return layer, optimizer.minimize(loss, global_step=step), step

    with tf.Graph().as_default():
        layer, step, _ = build()
        # An error ends a session without another checkpoint.
        with pytest.raises(_EndedError), train.MonitoredTrainingSession(**options) as session:
            for _ in range(3):
                session.run(step)
            straight = layer.get_weights(all_ranks=True, session=session)
            raise _EndedError
    with tf.Graph().as_default():
        layer, step, count = build()
        with train.MonitoredTrainingSession(**options) as session:
            assert session.run(count) == 2
            session.run(step)
            resumed = layer.get_weights(all_ranks=True, session=session)
    harness.assert_equal_arrays(resumed, straight)


def _keras_model(embedding):
    inputs = [keras.Input([hotness], dtype=tf.int64) for hotness in (1, 2, 3)]
    vectors = embedding(inputs)
    features = keras.layers.Concatenate()([keras.layers.Flatten()(vector) for vector in vectors])
    return keras.Model(inputs, keras.layers.Dense(1, kernel_initializer="ones")(features))


def _keras_layers():
    return [dmp.Embedding(20, 4, combiner=combiner) for combiner in ("sum", "mean", None)]


def _keras_data():
    rng = np.random.default_rng(3)
    ids = [rng.integers(0, 20, [FIT_STEPS * 12, hotness]) for hotness in (1, 2, 3)]
    return ids, rng.normal(size=FIT_STEPS * 12).astype(np.float32)


def check_fit(optimizer_name, plain, folder):
    """Keras' fit trains the tables and other weights as on plain layers."""
    known = communicator()
    weights, *expected = plain
    layer = dmp.DistributedEmbedding(_keras_layers(), column_slice_threshold=40)
    model = _keras_model(layer)
    layer.set_weights(weights)
    dense = model.layers[-1]
    dense.set_weights([value + known.rank for value in dense.get_weights()])
    ids, labels = _keras_data()
    model.compile(dmp.DistributedOptimizer(KERAS[optimizer_name]()), "mse")
    part = 12 // known.size
    mine = np.arange(len(labels)).reshape(FIT_STEPS, known.size, part)[:, known.rank].reshape(-1)
    callback = dmp.BroadcastGlobalVariablesCallback(0)
    data = [array[mine] for array in ids], labels[mine]
    model.fit(*data, part, shuffle=False, verbose=0, callbacks=[callback])
    trained, others = layer.get_weights(all_ranks=True), dense.get_weights()
    path = os.path.join(folder, f"{optimizer_name}.{known.size}.{known.rank}.h5")
    model.save_weights(path)
    layer.set_weights(weights)
    model.load_weights(path)
    harness.assert_equal_arrays(layer.get_weights(all_ranks=True), trained)
    harness.assert_close_arrays([*trained, *others], [*expected[0], *expected[1]], rtol=1e-5, atol=1e-5)


KERAS = {
    "adam": lambda: keras.optimizers.Adam(0.1),
    "legacy adagrad": lambda: compat.legacy_keras_optimizers()[0][1].Adagrad(0.1),
}
# The first list runs on 2 ranks: checks whose results depend on the number. All run on 3.
CHECKS_ON_TWO = [
    check_exchanges_of_a_step,
    check_gradients,
    check_ids_of_one_dimension,
]
CHECKS = [
    *CHECKS_ON_TWO,
    check_rows_travel_once,
    check_eager_lookups,
    check_a_batch_that_ranks_do_not_divide,
    check_bad_ids,
    check_two_lookups_in_a_step,
    check_loss_scaling,
    check_clipping,
    check_concatenated_features,
    check_ranks_with_other_tables,
    check_broadcast,
]
# The kinds of optimizers are independent, so each is fitted on one number of ranks.
FITS = {2: "legacy adagrad", 3: "adam"}


@pytest.fixture(scope="module")
def plain_fits():
    """By optimizer, initial tables, and tables and other weights of plain layers after Keras' fit."""
    fits = {}
    for name, optimizer in KERAS.items():
        layers = _keras_layers()
        model = _keras_model(lambda inputs, layers=layers: [x(i) for x, i in zip_equal(layers, inputs)])
        initial = [layer.get_weights()[0] for layer in layers]
        ids, labels = _keras_data()
        model.compile(optimizer(), "mse")
        model.fit(ids, labels, 12, shuffle=False, verbose=0)
        fits[name] = initial, [layer.get_weights()[0] for layer in layers], model.layers[-1].get_weights()
    return fits


def _all_checks(folder, plain):
    size = communicator().size
    results = {check.__name__: check() for check in (CHECKS if size == 3 else CHECKS_ON_TWO)}
    if size == 3:
        check_checkpoints(folder)
    check_fit(FITS[size], plain[FITS[size]], folder)
    return results


@pytest.mark.parametrize("size", FITS)
def test_on_ranks(tmp_path, plain_fits, size):
    results = ranks.run(_all_checks, str(tmp_path), plain_fits, ranks=size, timeout=300)
    # What a check returns is the same on all ranks.
    for of_rank in results:
        tf.nest.map_structure(np.testing.assert_array_equal, of_rank, results[0])
