"""One op combines the rows of all inputs, as TensorFlow's ops do, and another gives the gradients."""

import numpy as np
import pytest
import tensorflow as tf

import harness
import sparse_operation_kit.dist_model_parallel as dmp
from same_length import zip_equal
from sparse_operation_kit import native
from sparse_operation_kit.dist_model_parallel import inputs

# TensorFlow 1.15 executes eagerly only if it is asked to.
tf.compat.v1.enable_v2_behavior()

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


def _assert_close(actual, expected):
    harness.assert_close_arrays(actual, expected, rtol=1e-5, atol=1e-6)


def test_outputs_and_gradients_are_those_of_products_and_of_tensorflows_ops(monkeypatch):
    embeddings = [dmp.Embedding(rows, columns, combiner=combiner) for rows, columns, combiner in SIZES]
    layer = dmp.DistributedEmbedding(embeddings, input_table_map=INPUTS)
    tables = [tf.Variable(table) for table in layer.get_weights()]
    variables = layer.trainable_variables
    outputs, gradients, seconds = _with_gradients(lambda: _by_layer(layer), variables, second=True)
    expected = _with_gradients(lambda: _by_multiplication(tables), tables, second=True)
    _assert_close(outputs, expected[0])
    _assert_close(_of_tables(layer, gradients), expected[1])
    _assert_close(_of_tables(layer, seconds), expected[2])
    # What a layer on a GPU does.
    monkeypatch.setattr(inputs, "may_be_on_gpu", lambda variable: True)
    by_tensorflow = _with_gradients(lambda: _by_layer(layer), variables, second=False)
    _assert_close(outputs, by_tensorflow[0])
    _assert_close(gradients, by_tensorflow[1])


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


def _combined(**changed):
    given = {
        "rows": [tf.ones([2, 3])],
        "places": [tf.constant([0, 1, 1])],
        "bags": [tf.constant([1, 2], tf.int64), tf.constant([0, 1], tf.int64)],
        "unit_of": [0, 0],
        "combiners": ["sum"],
        "kinds": ["fixed", "splits"],
    }
    return native.ops.sok_combine_rows(**{**given, **changed})


def test_malformed_bags_and_places_are_errors():
    first, second = _combined()
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
            _combined(**changed)
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"gradient of output 1 has the shape \[2,3\]"):
        native.ops.sok_combine_rows_grad(
            rows=[tf.ones([2, 3])],
            places=[tf.constant([0, 1, 1])],
            bags=[tf.constant([1, 2], tf.int64), tf.constant([0, 1], tf.int64)],
            gradients=[tf.ones([1, 3]), tf.ones([2, 3])],
            unit_of=[0, 0],
            combiners=["sum"],
            kinds=["fixed", "splits"],
        )
