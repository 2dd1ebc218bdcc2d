# Tags: versions
"""Lookups have the values and gradients of TensorFlow's on tf.Variables, also with weights; those of a group
that write to one output have the bits of separate outputs, without a copy."""

import re
import types

import numpy as np
import pytest
import tensorflow as tf

import harness
import sparse_operation_kit as sok
from same_length import zip_equal
from sparse_operation_kit import compat
from sparse_operation_kit.lookup import group

pytestmark = pytest.mark.cases_on_gpu(4)
session = harness.session

DIMS = [1, 2, 3, 7, 16, 63, 64, 129, 1025]
VOCABULARY = 50


class Pair:
    """A table and a tf.Variable with the same rows: the row of keys[i] equals row i of the variable."""

    def __init__(self, session, dim):
        rng = np.random.default_rng(dim)
        drawn = rng.integers(-(2**63), 2**63 - 1, VOCABULARY - len(harness.HOSTILE_KEYS), dtype=np.int64)
        self.session = session
        self.keys = np.concatenate([harness.HOSTILE_KEYS, drawn])
        self.table = sok.EmbeddingVariable(name="table", dim=dim, initializer="random_normal")
        self.plain = tf.Variable(np.zeros([VOCABULARY, dim], np.float32), name="plain")
        self.all_rows = tf.nn.embedding_lookup(self.table, self.keys)

    def start(self):
        harness.initialize(self.session)
        self.plain.load(self.session.run(self.all_rows), self.session)

    def compare(self, on_table, on_plain, weights=None):
        """Compares the outputs, their gradients by row, and those by weight."""
        factors = tf.cos(tf.cast(tf.reshape(tf.range(tf.size(on_plain)), tf.shape(on_plain)), tf.float32))
        sources = [] if weights is None else [weights]
        of_table, *by_weight = tf.gradients(tf.reduce_sum(factors * on_table), [self.table, *sources])
        of_plain, *by_plain_weight = tf.gradients(tf.reduce_sum(factors * on_plain), [self.plain, *sources])
        self.start()
        got, want = self.session.run([on_table, on_plain])
        assert got.shape == want.shape
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
        gradient = harness.gradient_by_key(self.session, self.table, of_table, self.keys)
        dense = self.session.run(tf.convert_to_tensor(of_plain))
        np.testing.assert_allclose(gradient, dense, rtol=1e-5, atol=2e-5)
        if by_weight:
            got, want = (
                self.session.run(tf.convert_to_tensor(gradient))
                for gradient in (*by_weight, *by_plain_weight)
            )
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)
        assert self.session.run(self.table.size()) == VOCABULARY


def positions_of(kind, count, seed=0):
    rng = np.random.default_rng(seed)
    if kind == "zipf":
        return np.minimum(rng.zipf(1.3, count), VOCABULARY) - 1
    return {"random": rng.integers(0, VOCABULARY, count), "empty": np.zeros([0], np.int64)}[kind]


def bags_of(positions, rows, seed=0):
    """Row ids, sorted, for a SparseTensor of `rows` rows; some are empty."""
    rng = np.random.default_rng(seed)
    row_ids = np.sort(rng.integers(0, rows, len(positions)))
    columns = np.arange(len(positions))
    return np.stack([row_ids, columns], axis=1).reshape(-1, 2).astype(np.int64)


@pytest.mark.parametrize("dim", DIMS)
@pytest.mark.parametrize("kind", ["random", "zipf", "empty"])
def test_embedding_lookup(session, kind, dim):
    pair = Pair(session, dim)
    positions = positions_of(kind, 60)
    on_table = tf.nn.embedding_lookup(pair.table, pair.keys[positions])
    pair.compare(on_table, tf.nn.embedding_lookup(pair.plain, positions))


@pytest.mark.parametrize("shape", [(), (4,), (3, 5), (2, 3, 4), (2, 0), (0, 3, 1)])
def test_embedding_lookup_of_any_shape(session, shape):
    pair = Pair(session, 3)
    positions = np.random.default_rng(1).integers(0, VOCABULARY, shape)
    on_table = tf.nn.embedding_lookup(pair.table, pair.keys[positions])
    assert on_table.shape.as_list() == [*shape, 3]
    pair.compare(on_table, tf.nn.embedding_lookup(pair.plain, positions))


@pytest.mark.parametrize(
    "look_up",
    [
        tf.gather,
        lambda params, ids: tf.compat.v1.nn.embedding_lookup([params], ids, name="of_list"),
        lambda params, ids: tf.nn.embedding_lookup(params, ids, max_norm=0.05),
    ],
    ids=["gather", "in a list and with a name", "max_norm"],
)
def test_other_functions_of_tensorflow(session, look_up):
    pair = Pair(session, 5)
    positions = positions_of("zipf", 40).reshape(8, 5)
    pair.compare(look_up(pair.table, pair.keys[positions]), look_up(pair.plain, positions))


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("combiner", ["sum", "mean", "sqrtn"])
@pytest.mark.parametrize(("dim", "kind"), [*((dim, "zipf") for dim in DIMS), (6, "random"), (6, "empty")])
def test_embedding_lookup_sparse(session, dim, kind, combiner, weighted):
    compare_sparse(Pair(session, dim), kind, combiner, weighted)


@pytest.mark.parametrize("device", [None, "/cpu:0", "/job:localhost/replica:0/task:0/device:CPU:0"])
def test_embedding_lookup_sparse_on_a_device(device):
    with harness.graph_and_session() as session, tf.device(device):
        compare_sparse(Pair(session, 6), "zipf", "mean", False)


def compare_sparse(pair, kind, combiner, weighted):
    positions = positions_of(kind, 80)
    rows = 30
    indices = bags_of(positions, rows)
    shape = [rows, 80]
    weights = None
    sp_weights = None
    if weighted:
        drawn = np.random.default_rng(2).uniform(0.1, 2.0, len(positions)).astype(np.float32)
        weights = tf.constant(drawn)
        sp_weights = tf.SparseTensor(indices, weights, shape)
    outputs = [
        tf.nn.embedding_lookup_sparse(
            params, tf.SparseTensor(indices, ids, shape), sp_weights, combiner=combiner
        )
        for params, ids in ((pair.table, pair.keys[positions]), (pair.plain, positions.astype(np.int64)))
    ]
    pair.compare(*outputs, weights)


def test_keys_of_a_placeholder(session):
    pair = Pair(session, 4)
    keys = tf.compat.v1.placeholder(tf.int64, [None, None])
    rows = tf.nn.embedding_lookup(pair.table, keys)
    assert rows.shape.as_list() == [None, None, 4]
    pair.start()
    for shape in ((3, 2), (1, 9), (0, 4)):
        positions = np.random.default_rng(3).integers(0, VOCABULARY, shape)
        got, want = session.run([rows, pair.plain], {keys: pair.keys[positions]})
        np.testing.assert_array_equal(got, want[positions])


BATCH = 8
WEIGHTED = 20


@pytest.fixture(params=["one op", "sharded ops"])
def _both_ways(request, monkeypatch):
    """Lookups in one op, and in the ops for several ranks, on one rank."""
    if request.param == "sharded ops":
        monkeypatch.setattr(group, "communicator", lambda: types.SimpleNamespace(size=2))


def _lookup(table, layout, indices, keys, weights, combiner, **kwargs):
    """A lookup whose weights have their own indices."""
    ids, weights = (
        tf.SparseTensor(tf.constant(indices), values, [BATCH, 9]) for values in (tf.constant(keys), weights)
    )
    if layout == "sparse":
        return group.SparseLookup(table, ids, combiner, weights, **kwargs)
    ids, weights = (tf.RaggedTensor.from_sparse(sparse) for sparse in (ids, weights))
    return group.RaggedLookup(table, ids, combiner, weights, **kwargs)


def _batch(seed):
    rng = np.random.default_rng(seed)
    lengths = rng.integers(0, 6, BATCH)
    columns = np.concatenate([np.arange(length) for length in lengths])
    indices = np.stack([np.repeat(np.arange(BATCH), lengths), columns], axis=1).astype(np.int64)
    weights = rng.choice([-1.0, 0.0, 0.5, 1.0, 2.0], len(indices)).astype(np.float32)
    return indices, rng.integers(0, WEIGHTED, len(indices)), weights


@pytest.mark.parametrize("combiner", ["mean", "sqrtn"])
@pytest.mark.parametrize("layout", ["sparse", "ragged"])
@pytest.mark.usefixtures("_both_ways")
def test_ids_without_a_positive_weight_are_left_out_as_tensorflow_leaves_them_out(session, layout, combiner):
    indices, keys, drawn = _batch(3)
    table = sok.EmbeddingVariable("table", 5)
    other = sok.EmbeddingVariable("other", 5)  # has two lookups, whose ids are copied into one tensor
    weights = tf.constant(drawn)
    lookups = [
        _lookup(each, layout, indices, keys, weights, combiner, positive_weights_only=True)
        for each in (table, other, other)
    ]
    outputs = group.lookup_group(lookups)
    with harness.reference():
        plain = tf.compat.v1.get_variable("plain", [WEIGHTED, 5])
        want = tf.nn.safe_embedding_lookup_sparse(
            plain,
            tf.SparseTensor(indices, keys, [BATCH, 9]),
            tf.SparseTensor(indices, weights, [BATCH, 9]),
            combiner,
        )
    losses = [tf.reduce_sum(tf.sin(output)) for output in (outputs[0], outputs[2], want)]
    by_weight = [tf.convert_to_tensor(tf.gradients(loss, weights)[0]) for loss in losses]
    sizes = [table.size(), other.size()]
    with tf.control_dependencies(outputs):
        all_rows = [tf.nn.embedding_lookup(each, np.arange(WEIGHTED)) for each in (table, other)]
    harness.initialize(session)
    session.run(outputs)
    assert session.run(sizes) == [len(set(keys[drawn > 0]))] * 2
    for rows, got, gradient in zip_equal(session.run(all_rows), (outputs[0], outputs[2]), by_weight[:2]):
        plain.load(rows, session)
        # The square roots of 1.15 are not exact.
        inexact = combiner == "sqrtn" and not compat.IS_TENSORFLOW_2
        np.testing.assert_allclose(*session.run([got, want]), rtol=1e-6 if inexact else 0)
        got_gradient, want_gradient = session.run([gradient, by_weight[2]])
        assert not np.any(got_gradient[drawn <= 0])
        np.testing.assert_allclose(got_gradient, want_gradient, rtol=1e-4, atol=1e-5)


@pytest.mark.usefixtures("_both_ways")
def test_unsorted_ids_and_those_that_are_all_left_out(session):
    table = sok.EmbeddingVariable("table", 1, initializer=1.0)
    fed = tf.compat.v1.placeholder(tf.float32, [4])
    ids = tf.SparseTensor([[2, 0], [0, 0], [2, 1], [0, 1]], tf.constant([1, 2, 3, 4], tf.int64), [3, 2])
    lookup = group.SparseLookup(table, ids, "sum", fed, positive_weights_only=True)
    (output,) = group.lookup_group([lookup])
    gradients = tf.gradients(tf.reduce_sum(output), [table, fed])
    harness.initialize(session)
    for weights, want in (
        ([1, 2, 4, 8], [10, 0, 5]),
        ([1, -2, 4, 8], [8, 0, 5]),
        ([-1, 2, 4, -8], [2, 0, 4]),
        ([0, -1, -1, 0], [0, 0, 0]),
    ):
        got, (of_table, of_weights) = session.run([output, gradients], {fed: weights})
        assert got[:, 0].tolist() == want
        positive = np.array(weights) > 0
        assert of_weights.tolist() == positive.tolist()
        assert sorted(of_table.values[:, 0]) == sorted(np.array(weights)[positive])


@pytest.mark.usefixtures("_both_ways")
def test_only_the_weights_of_the_last_lookup_are_differentiated(session):
    table = sok.EmbeddingVariable("table", 1, initializer=1.0)
    weights = [tf.constant([1.0, 2.0]), tf.constant([3.0]), tf.constant([4.0, 5.0, 6.0])]
    ids = [tf.ragged.constant([keys], tf.int64) for keys in ([1, 2], [1], [3, 4, 5])]
    lookups = [group.RaggedLookup(table, of, "sum", one) for of, one in zip_equal(ids, weights)]
    outputs = group.lookup_group(lookups)
    loss = tf.add_n([tf.reduce_sum(tf.square(output)) for output in outputs])
    (gradient,) = tf.gradients(loss, [weights[2]])
    harness.initialize(session)
    assert session.run(gradient).tolist() == [30, 30, 30]


@pytest.mark.parametrize("layout", ["sparse", "ragged"])
@pytest.mark.usefixtures("_both_ways")
def test_weights_at_other_places_than_the_ids(session, layout):
    table = sok.EmbeddingVariable("some_name", 2, initializer=1.0)
    places = tf.compat.v1.placeholder(tf.int64)
    if layout == "sparse":
        sound, moved, more = [[0, 0], [1, 0]], [[0, 0], [1, 1]], [[0, 0], [1, 0], [1, 1]]
        # As many places, or as many numbers, in other shapes.
        others = (
            [0, 1],
            [[0], [1]],
            [[0, 0, 0], [1, 0, 0]],
            [[0, 0, 1, 0]],
            [0, 0, 1, 0],
            [[[0, 0]], [[1, 0]]],
            7,
        )
        ids = tf.SparseTensor(sound, tf.constant([1, 2], tf.int64), [3, 2])
        weights = tf.SparseTensor(places, tf.constant([1.0, 2.0]), [3, 2])
        lookup = group.SparseLookup(table, ids, "sum", weights)
    else:
        sound, moved, more = [0, 1, 2, 2], [0, 2, 2, 2], [0, 1, 2]
        others = [0, 1, 2, 2, 2], [0]
        ids = tf.RaggedTensor.from_row_splits(tf.constant([1, 2], tf.int64), sound)
        given = tf.ensure_shape(places, [None])
        weights = tf.RaggedTensor.from_row_splits(tf.constant([1.0, 2.0]), given, validate=False)
        lookup = group.RaggedLookup(table, ids, "sum", weights)
    (output,) = group.lookup_group([lookup])
    harness.initialize(session)
    assert session.run(output, {places: sound})[:, 0].tolist() == [1, 2, 0]
    for wrong in (moved, more, *others):
        with pytest.raises(tf.errors.InvalidArgumentError, match="some_name.*places"):
            session.run(output, {places: wrong})


def test_positive_weights_only_needs_weights(session):
    table = sok.EmbeddingVariable("some_name", 2)
    ids = tf.RaggedTensor.from_row_lengths(tf.constant([1], tf.int64), [1])
    with pytest.raises(ValueError, match="some_name.*no weights"):
        group.lookup_group([group.RaggedLookup(table, ids, "sum", positive_weights_only=True)])


def test_zero_divisors_give_zeros(session):
    table = sok.EmbeddingVariable(name="table", dim=2, initializer=1.0)
    ids = tf.RaggedTensor.from_row_splits(tf.constant([1, 2, 3], tf.int64), [0, 2, 3])
    weights = tf.constant([1.5, -1.5, 0.0])
    outputs = [
        group.lookup_group([group.RaggedLookup(table, ids, combiner, weights)])[0]
        for combiner in ("mean", "sqrtn")
    ]
    gradients = [tf.gradients(tf.reduce_sum(output), [table, weights]) for output in outputs]
    harness.initialize(session)
    mean, sqrtn = session.run(outputs)
    np.testing.assert_array_equal(mean, np.zeros([2, 2]))
    np.testing.assert_array_equal(sqrtn, np.zeros([2, 2]))
    for table_gradient, weight_gradient in gradients:
        assert np.all(np.isfinite(session.run(table_gradient.values)))
        assert np.all(np.isfinite(session.run(weight_gradient)))


def test_bad_descriptions_fail_before_the_graph_runs(session):
    table = sok.EmbeddingVariable(name="table", dim=2)
    ids = tf.RaggedTensor.from_row_splits(tf.constant([1], tf.int64), [0, 1])
    with pytest.raises(ValueError, match="at least one"):
        group.lookup_group([])
    with pytest.raises(ValueError, match="table.*max.*sum"):
        group.lookup_group([group.RaggedLookup(table, ids, "max")])
    with pytest.raises(TypeError, match="table.*float64"):
        group.lookup_group([group.RaggedLookup(table, ids, "sum", tf.constant([1.0], tf.float64))])
    with pytest.raises(TypeError, match="table.*int32.*int64"):
        group.lookup_group([group.DenseLookup(table, tf.constant([1], tf.int32))])


BATCH_SIDE = 9
DIMS_SIDE = (1, 3, 8, 17, 64)


class Group:
    """Lookups of all kinds in several tables."""

    def __init__(self, seed, count, kinds=("sparse", "ragged", "dense")):
        self.rng = np.random.default_rng(seed)
        self.tables = [sok.EmbeddingVariable(f"table_{dim}", dim) for dim in DIMS_SIDE]
        self.weights = []
        self.lookups = [self.lookup(str(self.rng.choice(kinds))) for _ in range(count)]

    def lookup(self, kind):
        table = self.tables[self.rng.integers(len(DIMS_SIDE))]
        if kind == "dense":
            return group.DenseLookup(table, tf.constant(harness.zipf_keys(self.rng, BATCH_SIDE)))
        lengths = self.rng.integers(0, 4, BATCH_SIDE)
        keys = harness.zipf_keys(self.rng, lengths.sum())
        combiner = str(self.rng.choice(group.COMBINERS))
        weights = None
        if self.rng.integers(2):
            weights = tf.constant(self.rng.uniform(-1, 2, len(keys)), tf.float32)
            self.weights.append(weights)
        if kind == "ragged":
            return group.RaggedLookup(
                table, tf.RaggedTensor.from_row_lengths(tf.constant(keys), lengths), combiner, weights
            )
        order = self.rng.permutation(len(keys))
        indices = np.stack([np.repeat(np.arange(BATCH_SIDE), lengths)[order], order], axis=1).astype(np.int64)
        return group.SparseLookup(table, tf.SparseTensor(indices, keys, [BATCH_SIDE, 99]), combiner, weights)

    def run(self, session, beside, numbers):
        """Outputs and gradients of the group, written side by side or concatenated by TensorFlow."""
        if beside:
            outputs = group.lookup_group(self.lookups, side_by_side=numbers)
        else:
            each = iter(group.lookup_group(self.lookups))
            outputs = [tf.concat([next(each) for _ in range(number)], axis=-1) for number in numbers]
        loss = tf.add_n([tf.reduce_sum(tf.sin(output * (i + 1.0))) for i, output in enumerate(outputs)])
        used = [t for t in self.tables if any(lookup.variable is t for lookup in self.lookups)]
        gradients = tf.gradients(loss, [*used, *self.weights])
        harness.initialize(session)
        shapes = [output.shape.as_list() for output in outputs]
        return shapes, session.run([outputs, gradients])


def _numbers(rng, total):
    cuts = np.sort(rng.choice(np.arange(1, total), rng.integers(0, total), replace=False))
    return np.diff([0, *cuts, total]).tolist()


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.usefixtures("_both_ways")
def test_random_groups_equal_concatenated_ones(seed):
    results = []
    for beside in (False, True):
        with harness.graph_and_session() as session:
            of_group = Group(seed, 7)
            results.append(of_group.run(session, beside, _numbers(np.random.default_rng(seed), 7)))
    (shapes, (outputs, gradients)), (shapes_beside, (outputs_beside, gradients_beside)) = results
    assert shapes == shapes_beside
    harness.assert_equal_arrays(outputs_beside, outputs)
    for got, want in zip_equal(gradients_beside, gradients):
        if hasattr(got, "indices"):
            np.testing.assert_array_equal(got.indices, want.indices)
            got, want = got.values, want.values
        np.testing.assert_array_equal(got, want)


@pytest.mark.usefixtures("_both_ways")
def test_lookups_whose_owners_answer_with_sums():
    results = []
    for beside in (False, True):
        with harness.graph_and_session() as session:
            of_group = Group(7, 3, kinds=("dense",))
            rng = np.random.default_rng(7)
            for table, combiner in zip_equal(of_group.tables[:3], group.COMBINERS):
                table = sok.EmbeddingVariable(f"alone_{combiner}", table.dim)
                indices = np.stack([np.sort(rng.integers(0, BATCH_SIDE, 40)), np.arange(40)], axis=1)
                ids = tf.SparseTensor(indices, harness.zipf_keys(rng, 40), [BATCH_SIDE, 40])
                of_group.tables.append(table)
                of_group.lookups.append(group.SparseLookup(table, ids, combiner, exchange="sums"))
            results.append(of_group.run(session, beside, [1, 4, 1])[1])
    (outputs, gradients), (outputs_beside, gradients_beside) = results
    harness.assert_equal_arrays(outputs_beside, outputs)
    for got, want in zip_equal(gradients_beside, gradients):
        np.testing.assert_array_equal(got.values, want.values)


@pytest.mark.usefixtures("_both_ways")
def test_nothing_is_copied_to_put_outputs_together(session):
    of_group = Group(1, 12)
    before = len(session.graph.get_operations())
    (output,) = group.lookup_group(of_group.lookups, side_by_side=True)
    assert output.shape.as_list() == [BATCH_SIDE, sum(lookup.variable.dim for lookup in of_group.lookups)]
    tf.gradients(tf.reduce_sum(tf.square(output)), of_group.tables)
    types_of_ops = {op.type for op in session.graph.get_operations()[before:]}
    assert not types_of_ops & {"ConcatV2", "Concat", "Split", "SplitV", "Slice"}


@pytest.mark.usefixtures("_both_ways")
def test_slots_and_dense_lookups_of_several_dimensions(session):
    first = sok.EmbeddingVariable("first", 2, initializer=1.0)
    second = sok.EmbeddingVariable("second", 3, initializer=2.0)
    ids = tf.SparseTensor([[0, 0], [5, 0]], tf.constant([1, 2], tf.int64), [6, 1])
    lookups = [
        group.SparseLookup(first, ids, "sum", slots=3),
        group.DenseLookup(second, tf.ones([2, 3], tf.int64)),
    ]
    (output,) = group.lookup_group(lookups, side_by_side=[2])
    harness.initialize(session)
    got = session.run(output)
    assert output.shape.as_list() == [2, 3, 5]
    want = np.zeros([2, 3, 5])
    want[..., 2:] = 2
    want[0, 0, :2] = want[1, 2, :2] = 1
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("numbers", [[], [0, 3], [-1, 4], [2], [4], [1, 1, 1, 1]])
def test_numbers_that_do_not_cover_the_lookups(session, numbers):
    of_group = Group(1, 3)
    with pytest.raises(ValueError, match="side_by_side.*3 lookups"):
        group.lookup_group(of_group.lookups, side_by_side=numbers)


def test_shapes_known_to_differ(session):
    first, second = (sok.EmbeddingVariable(name, 2) for name in ("first", "second"))
    lookups = [
        group.DenseLookup(first, tf.ones([3], tf.int64)),
        group.DenseLookup(second, tf.ones([4], tf.int64)),
    ]
    with pytest.raises(ValueError, match=r"'second'.*\(4, 2\).*'first'.*\(3, 2\)"):
        group.lookup_group(lookups, side_by_side=True)


@pytest.mark.usefixtures("_both_ways")
def test_shapes_that_differ_when_the_graph_runs(session):
    tables = [sok.EmbeddingVariable(name, 2) for name in ("first", "second")]
    fed = [tf.compat.v1.placeholder(tf.int64, [None]) for _ in tables]
    lookups = [group.DenseLookup(*pair) for pair in zip_equal(tables, fed)]
    (output,) = group.lookup_group(lookups, side_by_side=True)
    assert output.shape.as_list() == [None, 4]
    harness.initialize(session)
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"'second'.*\[2,2\].*'first'.*\[1,2\]"):
        session.run(output, {fed[0]: [1], fed[1]: [1, 2]})
    assert session.run([table.size() for table in tables]) == [0, 0]
    assert session.run(output, {fed[0]: [], fed[1]: []}).shape == (0, 4)
    assert session.run(output, {fed[0]: [5, 6], fed[1]: [7, 8]}).shape == (2, 4)


@pytest.mark.parametrize(
    ("first_shape", "second_shape"), [([2, 3], [3, 2]), ([6], [2, 3]), ([2, 0], [0, 2]), ([1, 3], [3])]
)
@pytest.mark.usefixtures("_both_ways")
def test_shapes_that_differ_in_more_than_the_number_of_rows(session, first_shape, second_shape):
    tables = [sok.EmbeddingVariable(name, 2) for name in ("first", "second")]
    fed = [tf.compat.v1.placeholder(tf.int64) for _ in tables]
    lookups = [group.DenseLookup(*pair) for pair in zip_equal(tables, fed)]
    (output,) = group.lookup_group(lookups, side_by_side=True)
    harness.initialize(session)
    shapes = [str([*shape, 2]).replace(" ", "") for shape in (second_shape, first_shape)]
    message = "'second'.*{}.*'first'.*{}".format(*(re.escape(shape) for shape in shapes))
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        session.run(output, {fed[0]: np.ones(first_shape), fed[1]: np.ones(second_shape)})
    assert session.run([table.size() for table in tables]) == [0, 0]
    for shape in (first_shape, second_shape):
        assert session.run(output, {ids: np.ones(shape) for ids in fed}).shape == (*shape, 4)
