"""Lookups of a group that write to one output: the same bits as separate outputs, without a copy."""

import re
import types

import numpy as np
import pytest
import tensorflow as tf

import harness
import sparse_operation_kit as sok
from same_length import zip_equal
from sparse_operation_kit.lookup import group

pytestmark = pytest.mark.cases_on_gpu(2)
session = harness.session

BATCH = 9
DIMS = (1, 3, 8, 17, 64)


@pytest.fixture(params=["one op", "sharded ops"])
def _both_ways(request, monkeypatch):
    """Lookups in one op, and in the ops for several ranks, on one rank."""
    if request.param == "sharded ops":
        monkeypatch.setattr(group, "communicator", lambda: types.SimpleNamespace(size=2))


class Group:
    """Lookups of all kinds in several tables."""

    def __init__(self, seed, count, kinds=("sparse", "ragged", "dense")):
        self.rng = np.random.default_rng(seed)
        self.tables = [sok.EmbeddingVariable(f"table_{dim}", dim) for dim in DIMS]
        self.weights = []
        self.lookups = [self.lookup(str(self.rng.choice(kinds))) for _ in range(count)]

    def lookup(self, kind):
        table = self.tables[self.rng.integers(len(DIMS))]
        if kind == "dense":
            return group.DenseLookup(table, tf.constant(harness.zipf_keys(self.rng, BATCH)))
        lengths = self.rng.integers(0, 4, BATCH)
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
        indices = np.stack([np.repeat(np.arange(BATCH), lengths)[order], order], axis=1).astype(np.int64)
        return group.SparseLookup(table, tf.SparseTensor(indices, keys, [BATCH, 99]), combiner, weights)

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
                indices = np.stack([np.sort(rng.integers(0, BATCH, 40)), np.arange(40)], axis=1)
                ids = tf.SparseTensor(indices, harness.zipf_keys(rng, 40), [BATCH, 40])
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
    assert output.shape.as_list() == [BATCH, sum(lookup.variable.dim for lookup in of_group.lookups)]
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
