# Tags: versions
# Not on GPUs: ordinary variables, for which the fake GPU has few of TensorFlow's kernels
"""Ops of distributed embeddings: one combines the rows of all inputs, as TensorFlow's ops do, another gives
the gradients, and a third trains a variable with TensorFlow's arithmetic."""

import numpy as np
import pytest
import tensorflow as tf

import harness
import sparse_operation_kit as sok
import sparse_operation_kit.dist_model_parallel as dmp
from same_length import zip_equal
from sparse_operation_kit import compat, native
from sparse_operation_kit.dist_model_parallel import inputs
from sparse_operation_kit.dist_model_parallel.keras import keras
from sparse_operation_kit.optimizers import dense_updates
from sparse_operation_kit.optimizers.mapping import known_optimizers

# TensorFlow 1.15 executes eagerly only if it is asked to.
tf.compat.v1.enable_v2_behavior()

ROWS, DIM, STEPS = 12, 3, 5
((_, LEGACY),) = compat.legacy_keras_optimizers()
CASES = [
    pytest.param(entry, rule, id=f"{entry.public_name}-{rule}")
    for entry in known_optimizers()
    for rule in entry.rules
]


def _fuses(entry, rule):
    return dense_updates.trains_dense_tables(rule) and not entry.for_tables_only


FUSED = [case for case in CASES if _fuses(*case.values)]
OF_KERAS = [case for case in FUSED if not issubclass(case.values[0].cls, tf.compat.v1.train.Optimizer)]
OTHERS = [case for case in CASES if not _fuses(*case.values)]


def _initial():
    return np.random.default_rng(0).normal(size=[ROWS, DIM]).astype(np.float32)


def _ids(step):
    """Ids that occur twice, or not at all; the last row's never."""
    return np.random.default_rng(step).integers(0, ROWS - 1, 0 if step == 3 else 9)


def _loss(variable, ids):
    return tf.reduce_sum(tf.square(tf.gather(variable, ids) - 0.3))


def _graph_of_step(entry, rule, is_dense_table):
    """(the variable and its slots, ids to feed, the op of a step), in the default graph."""
    variable = tf.compat.v1.get_variable("table", initializer=_initial(), use_resource=True)
    if is_dense_table:
        dense_updates.make_dense_table(variable)
    ids = tf.compat.v1.placeholder(tf.int64, [None])
    optimizer = entry.make(rule, 0.05)
    gradients = tf.gradients(_loss(variable, ids), [variable])
    step = optimizer.apply_gradients(zip_equal(gradients, [variable]))
    slots = [optimizer.get_slot(variable, name) for name in sorted(optimizer.get_slot_names())]
    return [variable, *slots], ids, step


def _fused_ops():
    return [op.type for op in tf.compat.v1.get_default_graph().get_operations()].count("SokTrainRows")


def _trained_in_session(entry, rule, is_dense_table):
    """(values of the variable and its slots, the number of fused ops)."""
    with tf.Graph().as_default(), tf.compat.v1.Session(config=harness.without_optimizations()) as session:
        variables, ids, step = _graph_of_step(entry, rule, is_dense_table)
        session.run(tf.compat.v1.global_variables_initializer())
        for number in range(STEPS):
            session.run(step, {ids: _ids(number)})
        return session.run(variables), _fused_ops()


@pytest.mark.parametrize(("entry", "rule"), FUSED)
def test_one_op_does_what_tensorflows_ops_do(entry, rule):
    expected, none = _trained_in_session(entry, rule, False)
    actual, ops = _trained_in_session(entry, rule, True)
    assert (none, ops) == (0, 1)
    harness.assert_close_arrays(actual, expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(actual[0][-1], _initial()[-1])
    assert not np.allclose(actual[0], _initial())


@pytest.mark.parametrize(("entry", "rule"), OTHERS)
def test_other_optimizers_keep_their_ops(entry, rule):
    with tf.Graph().as_default():
        _graph_of_step(entry, rule, True)
        assert _fused_ops() == 0


def test_a_variable_that_does_not_decay_beside_one_that_does():
    def trained(is_dense_table):
        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            variables = [
                tf.compat.v1.get_variable(name, initializer=_initial(), use_resource=True)
                for name in ("decays", "stays")
            ]
            if is_dense_table:
                for variable in variables:
                    dense_updates.make_dense_table(variable)
            loss = tf.add_n([_loss(variable, tf.constant([1, 3, 1])) for variable in variables])
            optimizer = sok.optimizers.AdamWOptimizer(0.25, 0.1)
            step = optimizer.minimize(loss, var_list=variables, decay_var_list=variables[:1])
            session.run(tf.compat.v1.global_variables_initializer())
            for _ in range(2):
                session.run(step)
            return session.run(variables), _fused_ops()

    expected, none = trained(False)
    actual, ops = trained(True)
    assert (none, ops) == (0, 2)
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6)
    assert not np.allclose(actual[0][[1, 3]], actual[1][[1, 3]])


def test_a_subclass_with_updates_of_its_own_keeps_them():
    class Twice(tf.compat.v1.train.GradientDescentOptimizer):
        def _resource_apply_sparse_duplicate_indices(self, grad, handle, indices):
            return super()._resource_apply_sparse_duplicate_indices(2 * grad, handle, indices)

    class Renamed(tf.compat.v1.train.GradientDescentOptimizer):
        pass

    for cls, factor, expected_ops in ((Twice, 2, 0), (Renamed, 1, 1)):
        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            variable = tf.compat.v1.get_variable("table", initializer=_initial(), use_resource=True)
            dense_updates.make_dense_table(variable)
            step = cls(0.5).minimize(tf.reduce_sum(tf.gather(variable, [1, 1])), var_list=[variable])
            session.run(tf.compat.v1.global_variables_initializer())
            session.run(step)
            moved = _initial()
            moved[1] -= factor * 2 * 0.5
            np.testing.assert_allclose(session.run(variable), moved, rtol=1e-6)
            assert _fused_ops() == expected_ops


@pytest.mark.parametrize(("entry", "rule"), OF_KERAS[::4])
def test_in_functions(entry, rule):
    values = []
    for is_dense_table in (False, True):
        variable = tf.Variable(_initial())
        if is_dense_table:
            dense_updates.make_dense_table(variable)
        optimizer = entry.make(rule, 0.05)

        @tf.function(input_signature=[tf.TensorSpec([None], tf.int64)])
        def step(ids):
            with tf.GradientTape() as tape:
                loss = _loss(variable, ids)  # noqa: B023 - called in this round only
            gradients = tape.gradient(loss, [variable])  # noqa: B023
            optimizer.apply_gradients(zip_equal(gradients, [variable]))  # noqa: B023

        for number in range(STEPS):
            step(tf.constant(_ids(number)))
        values.append([variable.numpy(), *(slot.numpy() for slot in optimizer.variables()[1:])])
        ops = [op.type for op in step.get_concrete_function().graph.get_operations()]
        assert ops.count("SokTrainRows") == int(is_dense_table)
    harness.assert_close_arrays(*values, rtol=1e-5, atol=1e-6)


def _embedding():
    tables = [dmp.Embedding(20, 4, combiner="sum"), dmp.Embedding(9, 4, combiner="sum"), dmp.Embedding(5, 2)]
    return dmp.DistributedEmbedding(tables)


def _losses_of_fit(make):
    embedding = _embedding()
    inputs = [keras.Input([width], dtype=tf.int64) for width in (3, 2, 1)]
    vectors = [keras.layers.Flatten()(vector) for vector in embedding(inputs)]
    outputs = keras.layers.Dense(1, kernel_initializer="ones")(keras.layers.concatenate(vectors))
    model = keras.Model(inputs, outputs)
    model.compile(dmp.DistributedOptimizer(make()), "mse")
    rng = np.random.default_rng(1)
    data = [rng.integers(0, rows, [32, width]) for rows, width in ((20, 3), (9, 2), (5, 1))]
    history = model.fit(data, rng.normal(size=[32, 1]), batch_size=8, epochs=2, shuffle=False, verbose=0)
    return history.history["loss"], embedding.get_weights()


@pytest.mark.parametrize(
    "make",
    [
        lambda: LEGACY.Adagrad(0.1),
        lambda: keras.optimizers.Adagrad(0.1),
    ],
    ids=["legacy Adagrad", "Adagrad"],
)
def test_fit_trains_as_with_tensorflows_ops(make, monkeypatch):
    calls = []
    train_rows = native.ops.sok_train_rows
    monkeypatch.setattr(
        native.ops, "sok_train_rows", lambda **inputs: calls.append(inputs) or train_rows(**inputs)
    )
    losses, weights = _losses_of_fit(make)
    # A variable for each width and combiner; Keras may trace the step twice.
    names = {inputs["variable_name"] for inputs in calls}
    assert len(names) == (2 if isinstance(make(), LEGACY.Optimizer) else 0)
    monkeypatch.setattr(dense_updates, "trains_dense_tables", lambda rule: False)
    expected_losses, expected_weights = _losses_of_fit(make)
    np.testing.assert_allclose(losses, expected_losses, rtol=1e-5)
    harness.assert_close_arrays(weights, expected_weights, rtol=1e-5, atol=1e-6)


def test_embedding_variables_and_dense_tables_in_one_step():
    with harness.graph_and_session() as session:
        table = sok.EmbeddingVariable("table", 4, initializer="ones")
        embedding = _embedding()
        ids = tf.constant([[1], [1], [2], [0]], tf.int64)
        outputs = embedding([ids, ids, ids])
        loss = tf.add_n([tf.reduce_sum(output) for output in outputs])
        loss += tf.reduce_sum(tf.nn.embedding_lookup(table, ids))
        optimizer = tf.compat.v1.train.MomentumOptimizer(0.5, 0.9)
        step = optimizer.minimize(loss, var_list=[table, *embedding.trainable_variables])
        read = tf.nn.embedding_lookup(table, [1, 2])
        harness.initialize(session)
        before = embedding.get_weights()
        session.run(step)
        for first, second in zip_equal(before, embedding.get_weights()):
            moved = np.outer([0.5, 1, 0.5], np.ones(first.shape[1]))
            np.testing.assert_allclose(first[:3] - second[:3], moved, rtol=1e-5)
            np.testing.assert_array_equal(first[3:], second[3:])
        np.testing.assert_allclose(session.run(read)[:, 0], [0.0, 0.5])
        assert _fused_ops() == 2


def _op(variable, slots=(), **changed):
    given = {
        "hyper": [0.1],
        "rows": tf.constant([0, 2], tf.int64),
        "gradients": tf.ones([2, DIM]),
        "optimizer": "sgd",
        "variable_name": "my_table",
    }
    native.ops.sok_train_rows(
        variable=variable.handle, slots=[slot.handle for slot in slots], **{**given, **changed}
    )


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"rows": tf.constant([0, ROWS], tf.int64)}, rf"'my_table': row {ROWS} is not in \[0, {ROWS}\)"),
        ({"rows": tf.constant([-1, 0], tf.int64)}, rf"'my_table': row -1 is not in \[0, {ROWS}\)"),
        ({"rows": tf.constant([0], tf.int64)}, r"'my_table' of shape \[12,3\].*\[1\] and \[2,3\]"),
        ({"gradients": tf.ones([2, 4])}, r"'my_table' of shape \[12,3\].*\[2,4\], not .*\[m, 3\]"),
        ({"hyper": [float("nan")]}, "'my_table': .*'sgd': learning_rate must be .* got -?nan"),
        ({"hyper": [0.1, 0.2]}, "'my_table': .*'sgd'"),
        ({"optimizer": "adam"}, "'my_table': Optimizer 'adam' changes rows without a gradient"),
        ({"optimizer": "momentum", "hyper": [0.1, 0.9]}, "'my_table': optimizer 'momentum' has 1 slots"),
    ],
    ids=str,
)
def test_bad_steps_name_the_variable_and_change_nothing(changed, message):
    variable = tf.Variable(_initial())
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        _op(variable, **changed)
    np.testing.assert_array_equal(variable.numpy(), _initial())


def test_variables_that_do_not_fit():
    momentum = {"optimizer": "momentum", "hyper": [0.1, 0.9]}
    variable = tf.Variable(_initial())
    with pytest.raises(tf.errors.InvalidArgumentError, match="'my_table': its slot 'momentum' is of float"):
        _op(variable, [tf.Variable(_initial()[1:])], **momentum)
    with pytest.raises(tf.errors.InvalidArgumentError, match="'my_table' and its slots are not different"):
        _op(variable, [variable], **momentum)
    with pytest.raises(tf.errors.InvalidArgumentError, match="'my_table' is of double and shape"):
        _op(tf.Variable(_initial().astype(np.float64)))
    np.testing.assert_array_equal(variable.numpy(), _initial())


def test_what_was_read_before_a_step_stays():
    variable = tf.Variable(_initial())
    before = variable.read_value()
    _op(variable)
    np.testing.assert_array_equal(before, _initial())
    np.testing.assert_allclose(variable.numpy()[[0, 2]], _initial()[[0, 2]] - 0.1, rtol=1e-6)


def test_a_variable_without_rows_can_be_trained():
    """A rank that has no part of a table has such a variable."""
    variable, slot = tf.Variable(tf.zeros([0, DIM])), tf.Variable(tf.zeros([0, DIM]))
    nothing = {"rows": tf.zeros([0], tf.int64), "gradients": tf.zeros([0, DIM])}
    _op(variable, [slot], optimizer="momentum", hyper=[0.1, 0.9], **nothing)
    assert variable.shape == slot.shape == [0, DIM]


def test_an_uninitialized_slot_is_an_error():
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        variable = tf.compat.v1.get_variable("table", initializer=_initial(), use_resource=True)
        dense_updates.make_dense_table(variable)
        optimizer = tf.compat.v1.train.MomentumOptimizer(0.1, 0.9)
        step = optimizer.minimize(_loss(variable, [1]), var_list=[variable])
        session.run(variable.initializer)
        with pytest.raises(tf.errors.FailedPreconditionError, match="'table:0': its slot 'momentum' is not"):
            session.run(step)


SIZES = [(9, 3, "sum"), (7, 3, "sum"), (6, 3, "mean"), (8, 2, None), (5, 4, "mean")]
INPUTS = [0, 1, 2, 3, 4, 0, 3]


def _inputs():
    rng = np.random.default_rng(3)
    bags = [[1, 1, 4], [], [2], [0, 3]]
    ragged = tf.ragged.constant(bags, dtype=tf.int64)
    return [
        rng.integers(0, 9, [4, 2]),
        ragged,
        ragged.to_sparse(),
        rng.integers(0, 8, [4, 3]),
        rng.integers(0, 5, [4, 0]),
        rng.integers(0, 9, [4, 1]),
        ragged,
    ]


def _bags(ids, combiner):
    """The ids of each row of an input's output."""
    if isinstance(ids, tf.SparseTensor):
        ids = tf.RaggedTensor.from_sparse(ids)
    rows = ids.to_list() if isinstance(ids, tf.RaggedTensor) else ids.tolist()
    return rows if combiner else [[i] for row in rows for i in row]


def _by_multiplication(tables):
    """The outputs as products of the tables with matrices of how often a bag has an id."""
    outputs = []
    for table, ids in zip_equal(INPUTS, _inputs()):
        combiner = SIZES[table][2]
        bags = _bags(ids, combiner)
        counts = np.zeros([len(bags), SIZES[table][0]], np.float32)
        for bag, row in zip_equal(bags, counts):
            np.add.at(row, bag, 1 / len(bag) if combiner == "mean" and bag else 1)
        outputs.append(counts @ tables[table])
    return outputs


def _by_layer(layer):
    outputs = [getattr(output, "flat_values", output) for output in layer(_inputs())]
    return [tf.reshape(output, [-1, output.shape[-1]]) for output in outputs]


def _with_gradients(outputs_of, variables, second):
    """(outputs, gradients of a loss, gradients of the sum of their squares)."""
    with tf.GradientTape() as outer:
        with tf.GradientTape() as tape:
            outputs = outputs_of()
            loss = tf.add_n([tf.reduce_sum(tf.sin(output)) for output in outputs])
        gradients = [tf.convert_to_tensor(g) for g in tape.gradient(loss, variables)]
        squares = tf.add_n([tf.reduce_sum(tf.square(gradient)) for gradient in gradients])
    seconds = outer.gradient(squares, variables) if second else []
    return outputs, gradients, [tf.convert_to_tensor(gradient) for gradient in seconds]


def _of_tables(layer, gradients):
    """The gradients of a layer's variables, cut into those of its tables."""
    of_tables = {}
    for group, gradient in zip_equal(layer.strategy.layout.groups[0], gradients):
        for piece in group.pieces:
            of_tables[piece.table] = gradient[piece.offset : piece.offset + SIZES[piece.table][0]]
    return [of_tables[table] for table in range(len(SIZES))]


def test_outputs_and_gradients_are_those_of_products_and_of_tensorflows_ops(monkeypatch):
    embeddings = [dmp.Embedding(rows, columns, combiner=combiner) for rows, columns, combiner in SIZES]
    layer = dmp.DistributedEmbedding(embeddings, input_table_map=INPUTS)
    tables = [tf.Variable(table) for table in layer.get_weights()]
    variables = layer.trainable_variables
    outputs, gradients, seconds = _with_gradients(lambda: _by_layer(layer), variables, second=True)
    expected = _with_gradients(lambda: _by_multiplication(tables), tables, second=True)
    harness.assert_close_arrays(outputs, expected[0])
    harness.assert_close_arrays(_of_tables(layer, gradients), expected[1])
    harness.assert_close_arrays(_of_tables(layer, seconds), expected[2])
    # What a layer on a GPU does.
    monkeypatch.setattr(inputs, "may_be_on_gpu", lambda variable: True)
    by_tensorflow = _with_gradients(lambda: _by_layer(layer), variables, second=False)
    harness.assert_close_arrays(outputs, by_tensorflow[0])
    harness.assert_close_arrays(gradients, by_tensorflow[1])


def test_a_lookup_has_one_op_for_all_inputs():
    counts = []
    for tables in (2, 9):
        with tf.Graph().as_default() as graph:
            layer = dmp.DistributedEmbedding([dmp.Embedding(9, 4, combiner="sum") for _ in range(tables)])
            ids = tf.compat.v1.placeholder(tf.int64, [None, 3])
            outputs = layer([ids] * tables)
            tf.gradients(tf.add_n(outputs), layer.trainable_variables)
            ops = [op.type for op in graph.get_operations()]
            names = ("SokMergeIds", "SokCombineRows", "SokCombineRowsGrad")
            assert [ops.count(name) for name in names] == [1, 1, 1]
            counts.append(len(ops))
    # For each further table the constants and shapes of its ids and its initial value.
    assert counts[1] - counts[0] < 7 * 40


def _merged(ids, sizes=((9,), (4,)), units=(0, 0), bases=(0, 9)):
    return native.ops.sok_merge_ids(
        ids=[tf.constant(of_input, tf.int64) for of_input in ids],
        units=2,
        unit_of=units,
        bases=bases,
        features=[len(of_input) for of_input in sizes],
        sizes=[size for of_input in sizes for size in of_input],
    )


def test_ids_are_merged_in_order_and_bad_ones_found():
    merged = _merged([[8, 2, 8], [1, 1]])
    np.testing.assert_array_equal(merged.distinct[0], [8, 2, 10])
    np.testing.assert_array_equal(merged.places[0], [0, 1, 0, 2, 2])
    assert merged.distinct[1].shape == merged.places[1].shape == [0]
    np.testing.assert_array_equal(merged.finding, [0, 0, 0])
    # The error names the first input with bad ids, also of another unit.
    lowest = -(2**63)
    for ids, finding in (
        ([[8, 9], [4]], [1, 0, 9]),
        ([[8], [4, 2**63 - 1]], [1, 1, 2**63 - 1]),
        ([[8], [4, lowest, -1]], [1, 1, lowest]),
    ):
        for units in ((0, 0), (1, 0)):
            np.testing.assert_array_equal(_merged(ids, units=units).finding, finding)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"units": (0, 2)}, r"unit_of\[1\] is 2, not in \[0, 2\)"),
        ({"units": (0,)}, "unit_of has 1 values for 2 inputs"),
        ({"bases": (0,)}, "bases, features and sizes do not fit 2 inputs"),
        ({"sizes": ((9,), ())}, "bases, features and sizes do not fit 2 inputs"),
    ],
    ids=str,
)
def test_attributes_that_do_not_fit(changed, message):
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        _merged([[1], [1]], **changed)


def _bags_and_rows(**changed):
    given = {
        "rows": [tf.ones([2, 3])],
        "places": [tf.constant([0, 1, 1])],
        "bags": [tf.constant([1, 2], tf.int64), tf.constant([0, 1], tf.int64)],
        "unit_of": [0, 0],
        "combiners": ["sum"],
        "kinds": ["fixed", "splits"],
    }
    return {**given, **changed}


def test_malformed_bags_and_places_are_errors():
    first, second = native.ops.sok_combine_rows(**_bags_and_rows())
    np.testing.assert_array_equal(first, 2 * np.ones([1, 3]))
    np.testing.assert_array_equal(second, np.ones([1, 3]))
    huge = tf.constant([2**50, 2], tf.int64)
    for changed, message in (
        ({"places": [tf.constant([0, 2, 1])]}, r"Place 2 is not in \[0, 2\)"),
        ({"places": [tf.constant([0, -1, 1])]}, r"Place -1 is not in \[0, 2\)"),
        ({"places": [tf.constant([0, 1])]}, "There are 2 places of 3 ids"),
        ({"rows": [tf.ones([2])]}, r"rank|\[u, d\]"),
        ({"kinds": ["fixed", "numbers"]}, "There are 3 places of|Input 1: id 0 is in row 1 of 0"),
        ({"bags": [huge, tf.constant([0, 1], tf.int64)]}, "Input 0: cannot allocate|There are 3 places"),
        (
            {"bags": [tf.constant([1, 2], tf.int64), tf.constant([1, 2], tf.int64)]},
            "Input 1: row splits do not",
        ),
        ({"combiners": ["sum", "sum"]}, "combiners and kinds do not fit 1 units and 2 inputs"),
    ):
        errors = (tf.errors.InvalidArgumentError, tf.errors.ResourceExhaustedError)
        with pytest.raises(errors, match=message):
            native.ops.sok_combine_rows(**_bags_and_rows(**changed))
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"gradient of output 1 has the shape \[2,3\]"):
        native.ops.sok_combine_rows_grad(**_bags_and_rows(gradients=[tf.ones([1, 3]), tf.ones([2, 3])]))
