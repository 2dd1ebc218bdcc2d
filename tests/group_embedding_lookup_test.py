# Tags: slow
"""Groups of lookups on embedding and ordinary variables equal TensorFlow's separate lookups."""

import numpy as np
import pytest
import tensorflow as tf

import harness
import sparse_operation_kit as sok
from same_length import zip_equal
from sparse_operation_kit import compat
from sparse_operation_kit.compat.tensors import with_values
from sparse_operation_kit.lookup.embedding_lookup import (
    group_embedding_lookup,
    group_embedding_lookup_sparse,
)

pytestmark = pytest.mark.cases_on_gpu(1)
session = harness.session

COMBINERS = ("sum", "mean", "sqrtn")
KINDS = ("table", "resource", "reference", "partitioned")
VOCABULARY = 60
BATCH = 14


class Rows:
    """A variable of VOCABULARY rows. Row i of `source`, for TensorFlow, equals the row of `keys[i]`."""

    def __init__(self, name, dim, kind, key_dtype=tf.int64):
        rng = np.random.default_rng(dim)
        self.dim = dim
        self.is_table = kind == "table"
        self.keys = np.arange(VOCABULARY)
        if self.is_table:
            self.keys = _keys(rng, key_dtype.as_numpy_dtype)
            self.variable = sok.EmbeddingVariable(name, dim, key_dtype=key_dtype, initializer="random_normal")
            self.source = tf.compat.v1.get_variable(f"mirror_of_{name}", [VOCABULARY, dim])
            self._initial = tf.nn.embedding_lookup(self.variable, tf.constant(self.keys, key_dtype))
            return
        partitioner = tf.compat.v1.fixed_size_partitioner(3) if kind == "partitioned" else None
        self.variable = self.source = tf.compat.v1.get_variable(
            name,
            [VOCABULARY, dim],
            initializer=tf.compat.v1.random_normal_initializer(seed=dim),
            partitioner=partitioner,
            use_resource=kind != "reference",
        )

    def load(self, session):
        """Copies the rows of the table to the source."""
        if self.is_table:
            self.source.load(session.run(self._initial), session)

    def parts(self):
        """The variables that our lookup and TensorFlow's read."""
        if self.is_table:
            return [self.variable], [self.source]
        parts = [self.variable] if isinstance(self.variable, tf.Variable) else list(self.variable)
        return parts, parts

    def gradient_arrays(self, session, gradients):
        """The gradients by row: ours and TensorFlow's, of the lists of gradients of `parts`."""
        got, want = gradients
        want = tf.concat([tf.convert_to_tensor(part) for part in want], axis=0)
        if self.is_table:
            return harness.gradient_by_key(session, self.variable, got[0], self.keys), session.run(want)
        return session.run([tf.concat([tf.convert_to_tensor(part) for part in got], axis=0), want])


def gradients(losses, rows, weights=()):
    """The gradients of our loss and of TensorFlow's, each side in one pass.

    Returns:
      For each of `rows`, what `Rows.gradient_arrays` takes; for each side, the gradients of `weights`.
    """
    pairs, of_weights = [], []
    for side, loss in enumerate(losses):
        parts = [each.parts()[side] for each in rows]
        found = iter(tf.gradients(loss, [*sum(parts, []), *weights]))
        pairs.append([[next(found) for _ in of_rows] for of_rows in parts])
        of_weights.append([tf.convert_to_tensor(one) for one in found])
    return list(zip_equal(*pairs)), of_weights


def _keys(rng, dtype):
    limits = np.iinfo(dtype)
    drawn = rng.integers(limits.min, limits.max, 2 * VOCABULARY, dtype)
    some = np.unique(np.concatenate([drawn, np.array([limits.min, limits.max, 0, 1], dtype)]))
    return rng.permutation(np.concatenate([some[:5], some[-5:], some[5 : VOCABULARY - 5]]))


class Features:
    """Random features of a batch."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.rows, self.ids, self.combiners, self.weights = [], [], [], []
        self.wanted = []
        self.weight_tensors = []

    def add(self, rows, combiner, layout="sparse", weighted=False, most=6):
        """Adds a feature with bags of up to `most` ids; a bag in the middle and the last bag are empty."""
        lengths = self.rng.integers(0, most + 1, BATCH)
        lengths[[3, BATCH - 1]] = 0
        count = lengths.sum()
        positions = np.minimum(self.rng.zipf(1.3, count), VOCABULARY) - 1
        columns = np.concatenate([np.arange(n) for n in lengths])
        indices = np.stack([np.repeat(np.arange(BATCH), lengths), columns], axis=1).astype(np.int64)
        weights = tf.constant(self.rng.uniform(-0.5, 2.0, count), tf.float32) if weighted else None

        def sparse(values):
            return tf.SparseTensor(indices, values, [BATCH, most])

        # For tables, bags in any order, whose ids have the order that they have in sorted bags.
        order = np.argsort(self.rng.permutation(BATCH)[indices[:, 0]], kind="stable")

        def bags(values):
            if layout == "unsorted" and rows.is_table:
                return tf.SparseTensor(indices[order], tf.gather(values, order), [BATCH, most])
            if layout in ("sparse", "unsorted"):
                return sparse(values)
            dtype = tf.int32 if layout == "ragged of int32" else tf.int64
            return tf.RaggedTensor.from_row_lengths(values, tf.constant(lengths, dtype))

        self.rows.append(rows)
        self.ids.append(bags(rows.keys[positions]))
        self.combiners.append(combiner)
        self.weights.append(bags(weights) if weighted else None)
        self.weight_tensors += [weights] if weighted else []
        with harness.reference():
            wanted = tf.compat.v1.nn.embedding_lookup_sparse(
                rows.source, sparse(positions), sparse(weights) if weighted else None, combiner=combiner
            )
            self.wanted.append(tf.pad(wanted, [[0, BATCH - tf.shape(wanted)[0]], [0, 0]]))

    def look_up(self, **kwargs):
        """The group's outputs."""
        params = [rows.variable for rows in self.rows]
        weights = self.weights if self.weight_tensors else None
        return group_embedding_lookup_sparse(params, self.ids, self.combiners, sp_weights=weights, **kwargs)

    def _ulps(self):
        """By how many of the last bits TensorFlow's outputs may differ from ours."""
        if compat.VERSION < (2, 0):
            # 1.15 multiplies by the inverse of a bag's weights or number of ids, and its roots are not exact.
            return 0 if set(self.combiners) == {"sum"} else 2
        # TensorFlow 2.21 differs if it divides by the root of the sum of squared weights.
        return 0 if compat.HAS_KERAS_2 or not self.weight_tensors else 4

    def compare(self, session, outputs):
        """Compares outputs, gradients of variables and gradients of weights with TensorFlow's."""
        assert all("CPU:0" in wanted.device for wanted in self.wanted)
        losses = [
            tf.add_n([tf.reduce_sum(tf.sin(output * (i + 1.0))) for i, output in enumerate(side)])
            for side in (outputs, self.wanted)
        ]
        distinct = list({id(rows): rows for rows in self.rows}.values())
        of_rows, of_weights = gradients(losses, distinct, self.weight_tensors)
        harness.initialize(session)
        for rows in distinct:
            rows.load(session)
        for got, want, rows in zip_equal(*session.run([outputs, self.wanted]), self.rows):
            assert got.shape == (BATCH, rows.dim)
            np.testing.assert_array_max_ulp(got, _without_nans_of_old_versions(want), self._ulps())
        for rows, of_both in zip_equal(distinct, of_rows):
            assert_close(*rows.gradient_arrays(session, of_both))
        for got, want in zip_equal(*session.run(of_weights)):
            assert_close(got, want)


def _without_nans_of_old_versions(outputs):
    """TensorFlow 1.15 divides the zeros of weighted bags without ids by zero; other versions return zeros."""
    return np.nan_to_num(outputs) if compat.VERSION < (2, 0) else outputs


def assert_close(got, want):
    """Compares with errors relative to the largest entry, because weights of different signs may cancel."""
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5 * np.max(np.abs(want), initial=1.0))


# Each pair of a layout, a combiner and weights; test_random_groups has more combinations.
@pytest.mark.parametrize(
    ("layout", "combiner", "weighted"),
    [
        ("sparse", "sum", False),
        ("sparse", "mean", True),
        ("sparse", "sqrtn", False),
        ("ragged", "sum", True),
        ("ragged", "mean", False),
        ("ragged", "sqrtn", True),
        ("unsorted", "mean", True),
        ("ragged of int32", "sum", False),
    ],
)
def test_each_kind_of_lookup_is_tensorflows_bit_for_bit(session, layout, combiner, weighted):
    features = Features(1)
    for dim, kind in zip_equal((1, 3, 16, 5), KINDS):
        features.add(Rows(kind, dim, kind), combiner, layout, weighted)
    # TensorFlow sums 16 or more weighted rows in an order that depends on the machine.
    features.add(Rows("long_bags", 24, "table"), combiner, layout, weighted, most=15 if weighted else 60)
    features.compare(session, features.look_up())


@pytest.mark.parametrize("combiner", COMBINERS)
def test_gradients_without_weights_are_tensorflows_bit_for_bit(session, combiner):
    features = Features(5)
    tables = [Rows(f"table_{dim}", dim, "table") for dim in (1, 4, 17)]
    for rows in tables:
        features.add(rows, combiner, most=40)
    losses = [
        tf.add_n([tf.reduce_sum(tf.sin(output)) for output in side])
        for side in (features.look_up(), features.wanted)
    ]
    of_tables, _ = gradients(losses, tables)
    harness.initialize(session)
    for rows, of_rows in zip_equal(tables, of_tables):
        rows.load(session)
        np.testing.assert_array_equal(*rows.gradient_arrays(session, of_rows))


@pytest.mark.parametrize("seed", range(5))
def test_random_groups(session, seed):
    rng = np.random.default_rng(seed)
    rows = [
        Rows(f"{KINDS[k]}_{i}", int(rng.choice([1, 2, 3, 8, 17, 64])), KINDS[k])
        for i, k in enumerate([0, 0, *rng.integers(0, 4, 3)])
    ]
    features = Features(seed)
    for _ in range(rng.integers(1, 10)):
        features.add(
            rows[rng.integers(len(rows))],
            str(rng.choice(COMBINERS)),
            str(rng.choice(["sparse", "unsorted", "ragged"])),
            bool(rng.integers(2)),
            int(rng.choice([0, 1, 3, 8, 15])),
        )
    features.compare(session, features.look_up(name=f"group_{seed}"))


def test_tables_are_looked_up_by_one_op(session):
    features = Features(2)
    rows = [Rows(f"{kind}_{dim}", dim, kind) for kind in ("table", "resource") for dim in (2, 4, 8)]
    for i in range(30):
        features.add(rows[i % 6], COMBINERS[i % 3])
    before = len(session.graph.get_operations())
    features.look_up(name="some_name")
    added = session.graph.get_operations()[before:]
    assert [op.type for op in added].count("SokGroupLookup") == 1
    assert all(op.name.startswith("some_name/") for op in added if op.type == "SokGroupLookup")


def _operations_of_a_step(features):
    """The number of ops of a group of `features` features and its gradients."""
    with harness.graph_and_session() as session:
        tables = [sok.EmbeddingVariable(f"table_{i}", 2 + i % 3) for i in range(features)]
        bags = [tf.compat.v1.sparse_placeholder(tf.int64, [None, None]) for _ in tables]
        before = len(session.graph.get_operations())
        output = group_embedding_lookup_sparse(tables, bags, ["mean"] * features, side_by_side=True)
        tf.gradients(output, tables)
        return len(session.graph.get_operations()) - before


def test_the_number_of_operations_does_not_depend_on_that_of_features():
    assert _operations_of_a_step(107) == _operations_of_a_step(26) < 20


@pytest.mark.parametrize("seed", range(3))
def test_outputs_side_by_side_are_those_of_the_list(session, seed):
    rows = [Rows(f"{kind}_{dim}", dim, kind) for dim, kind in enumerate([*KINDS, "table"], 1)]
    features = Features(seed)
    for i in np.random.default_rng(seed).integers(0, 5, 8):
        features.add(rows[i], "sum", weighted=bool(i % 2))
    together = features.look_up(side_by_side=True)
    apart = tf.concat(features.look_up(), axis=1)
    assert together.shape == apart.shape
    harness.initialize(session)
    np.testing.assert_array_equal(*session.run([together, apart]))


IDS_DTYPES = (tf.int8, tf.uint8, tf.int16, tf.uint16, tf.int32, tf.int64, tf.uint32)


@pytest.mark.parametrize("key_dtype", [tf.int64, tf.int32, tf.uint32])
def test_ids_are_widened_and_never_cut(session, key_dtype):
    table = sok.EmbeddingVariable("table", 2, key_dtype=key_dtype, initializer="random_normal")
    pairs = []
    for ids_dtype in IDS_DTYPES:
        values = np.array([3, 100, 3], ids_dtype.as_numpy_dtype)
        if ids_dtype.min < 0:
            values[1] = -1
        ids = tf.RaggedTensor.from_row_lengths(tf.constant(values), [1, 1, 1])
        if ids_dtype.min < key_dtype.min or ids_dtype.max > key_dtype.max:
            message = rf"params\[0\].*'table'.*{ids_dtype.name}.*{key_dtype.name}"
            with pytest.raises(TypeError, match=message):
                group_embedding_lookup_sparse([table], [ids], ["sum"])
            continue
        (output,) = group_embedding_lookup_sparse([table], [ids], ["sum"])
        keys = tf.constant(values.astype(key_dtype.as_numpy_dtype))
        pairs.append([output, tf.nn.embedding_lookup(table, keys)])
    harness.initialize(session)
    for output, expected in session.run(pairs):
        np.testing.assert_array_equal(output, expected)
    assert pairs


def test_weights_of_other_dtypes_are_cast_as_tensorflow_does(session):
    table = sok.EmbeddingVariable("table", 2, initializer="ones")
    indices = [[0, 0], [0, 1], [1, 0]]
    ids = tf.SparseTensor(indices, tf.constant([1, 2, 3], tf.int64), [2, 2])
    weights = [
        tf.SparseTensor(indices, tf.constant([1, 2, 4], dtype), [2, 2])
        for dtype in (tf.float64, tf.float16, tf.int32)
    ]
    outputs = group_embedding_lookup_sparse([table] * 3, [ids] * 3, ["sum"] * 3, sp_weights=weights)
    harness.initialize(session)
    for output in session.run(outputs):
        assert output.tolist() == [[3, 3], [4, 4]]


def test_without_training_nothing_is_inserted(session):
    table = sok.EmbeddingVariable("table", 2, initializer=3.0)
    ids = tf.RaggedTensor.from_row_lengths(tf.constant([1, 2], tf.int64), [2, 0])
    training = tf.compat.v1.placeholder(tf.bool, [])
    (pooled,) = group_embedding_lookup_sparse([table], [ids], ["sum"], training=training)
    (rows,) = group_embedding_lookup([table], [ids.values], training=training)
    harness.initialize(session)
    got = session.run([pooled, rows], {training: False})
    assert [array.tolist() for array in got] == [[[6, 6], [0, 0]], [[3, 3], [3, 3]]]
    assert session.run(table.size()) == 0
    session.run(pooled, {training: True})
    assert session.run(table.size()) == 2


def test_group_embedding_lookup_of_any_shape(session):
    rng = np.random.default_rng(0)
    rows = [Rows(kind, dim, kind) for dim, kind in zip_equal((3, 1, 8, 5), KINDS)]
    shapes = [(), (4,), (2, 3), (2, 0, 3), (3, 1), (5,), (2, 2), (7,)]
    positions = [rng.integers(0, 60, shape) for shape in shapes]

    def fed(values):
        # 1.15 fails to build a lookup of constant ids, if there are none, in a partitioned variable.
        return tf.compat.v1.placeholder_with_default(values, values.shape)

    outputs = group_embedding_lookup(
        [rows[i % 4].variable for i in range(8)],
        [fed(rows[i % 4].keys[at]) for i, at in enumerate(positions)],
    )
    wanted = [tf.compat.v1.nn.embedding_lookup(rows[i % 4].source, fed(at)) for i, at in enumerate(positions)]
    types = [op.type for op in session.graph.get_operations()]
    assert types.count("SokGroupLookup") == 2  # the group's, and that of the table's initial rows
    harness.initialize(session)
    for each in rows:
        each.load(session)
    for got, want, shape in zip_equal(*session.run([outputs, wanted]), shapes):
        assert got.shape[:-1] == shape
        np.testing.assert_array_equal(got, want)


def test_group_embedding_lookup_of_ragged_ids_and_of_python_numbers(session):
    table = sok.EmbeddingVariable("table", 2, initializer=1.0)
    plain = tf.compat.v1.get_variable("plain", initializer=tf.ones([9, 3]))
    ids = tf.ragged.constant([[1, 2], [], [3]], dtype=tf.int32)
    deep = tf.ragged.constant([[[1], [2, 3]], []], dtype=tf.int64)
    ragged, deeper, of_plain, of_list = group_embedding_lookup(
        [table, table, plain, table], [ids, deep, ids, [5, 2**40]]
    )
    harness.initialize(session)
    assert session.run(ragged).to_list() == [[[1, 1], [1, 1]], [], [[1, 1]]]
    assert session.run(deeper).to_list() == [[[[1, 1]], [[1, 1], [1, 1]]], []]
    assert session.run(of_plain).to_list() == [[[1] * 3] * 2, [], [[1] * 3]]
    assert session.run(of_list).tolist() == [[1, 1], [1, 1]]
    assert session.run(table.size()) == 5


@pytest.mark.parametrize("layout", ["sparse", "ragged"])
@pytest.mark.parametrize("kind", KINDS)
def test_weights_that_are_no_finite_numbers(session, kind, layout):
    rows = Rows("some_name", 2, kind)
    ids = tf.RaggedTensor.from_row_lengths(tf.constant(rows.keys[:3]), [2, 1])
    fed = tf.compat.v1.placeholder(tf.float32, [3])
    weights = with_values(ids, fed)
    if layout == "sparse":
        ids, weights = ids.to_sparse(), weights.to_sparse()
    (output,) = group_embedding_lookup_sparse([rows.variable], [ids], ["mean"], sp_weights=[weights])
    harness.initialize(session)
    session.run(output, {fed: [1, 2, 3]})
    for value in (np.nan, np.inf, -np.inf):
        with pytest.raises(tf.errors.InvalidArgumentError, match="(?is)some_name.*(nan|inf)"):
            session.run(output, {fed: [1, value, 3]})


@pytest.mark.parametrize("shape", [[2], [2, 1, 1]])
@pytest.mark.parametrize("kind", KINDS)
def test_sparse_ids_of_another_rank_than_two(session, kind, shape):
    rows = Rows("some_name", 2, kind)
    ids = tf.SparseTensor(np.zeros([1, len(shape)], np.int64), tf.constant(rows.keys[:1]), shape)
    with pytest.raises(ValueError, match="(?s)ids of a SparseTensor must be \\[batch, any\\], not of shape"):
        group_embedding_lookup_sparse([rows.variable], [ids], ["sum"])


def _sparse(values=(1, 2), dtype=tf.int64):
    return tf.SparseTensor([[i, 0] for i in range(len(values))], tf.constant(values, dtype), [2, 1])


BAD = {
    "params no list": ({"params": "t"}, TypeError, "params must be a list"),
    "no params": (
        {"params": [], "sp_ids": [], "combiners": []},
        ValueError,
        "params must have at least one",
    ),
    "more ids": ({"sp_ids": [1, 2]}, ValueError, "params has 1 .*sp_ids has 2"),
    "fewer combiners": ({"combiners": []}, ValueError, "params has 1 .*combiners has 0"),
    "a combiner alone": ({"combiners": "mean"}, TypeError, "combiners must be a list.*'mean'"),
    "no combiners": ({"combiners": None}, TypeError, "combiners must be a list.*None"),
    "more weights": ({"sp_weights": [None, None]}, ValueError, "params has 1 .*sp_weights has 2"),
    "unknown combiner": ({"combiners": ["max"]}, ValueError, r"params\[0\].*'t'.*'max'.*sum, mean, sqrtn"),
    "combiner None": ({"combiners": [None]}, ValueError, r"params\[0\].*'t'.*None"),
    "strategy": ({"partition_strategy": "hash"}, ValueError, "partition_strategy 'hash'.*mod, div"),
    "dense ids": ({"sp_ids": [[1, 2]]}, TypeError, r"params\[0\].*'t'.*SparseTensor or a RaggedTensor"),
    "float ids": ({"sp_ids": [_sparse]}, TypeError, r"params\[0\].*'t'.*float32.*int64"),
    "params number": ({"params": [3]}, TypeError, r"params\[0\].*not 3"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_arguments_fail_before_the_graph_runs(case):
    changes, error, message = BAD[case]
    with harness.graph_and_session():
        table = sok.EmbeddingVariable("t", 2)
        if case == "float ids":
            changes = {"sp_ids": [_sparse((1.0, 2.0), tf.float32)]}
        sound = {"params": [table], "sp_ids": [_sparse()], "combiners": ["sum"]}
        before = len(tf.compat.v1.get_default_graph().get_operations())
        with pytest.raises(error, match=f"group_embedding_lookup_sparse.*{message}"):
            group_embedding_lookup_sparse(**{**sound, **changes})
        types = {op.type for op in tf.compat.v1.get_default_graph().get_operations()[before:]}
        assert "SokGroupLookup" not in types


@pytest.mark.parametrize("kind", KINDS)
def test_bad_tensors_name_the_variable(session, kind):
    rows = Rows("some_name", 2, kind)

    def refused(error, message, ids, weights=None):
        with pytest.raises(error, match=rf"params\[0\].*'some_name.*{message}"):
            group_embedding_lookup_sparse([rows.variable], [ids], ["sum"], sp_weights=[weights])

    ragged = tf.ragged.constant([[1], [2]], dtype=tf.int64)
    refused(TypeError, "float32", _sparse((1.0,), tf.float32))
    refused(TypeError, "uint64", _sparse((1,), tf.uint64))
    refused(TypeError, "SparseTensor", _sparse(), tf.constant([1.0]))
    refused(TypeError, "SparseTensor", _sparse(), ragged)
    refused(TypeError, "RaggedTensor", ragged, _sparse((1.0, 2.0), tf.float32))
    refused(TypeError, "not string", _sparse(), _sparse(("a", "b"), tf.string))
    refused(ValueError, "1 weights for 2 ids", _sparse(), _sparse((1.0,), tf.float32))
    refused(ValueError, r"\[batch, any\]", tf.ragged.constant([[[1]]], dtype=tf.int64))
    refused(ValueError, r"\[batch, any\]", tf.RaggedTensor.from_row_splits(tf.ones([2, 3], tf.int64), [0, 2]))
    with pytest.raises(TypeError, match=r"params\[0\].*'some_name.*group_embedding_lookup_sparse"):
        group_embedding_lookup([rows.variable], [_sparse()])
    with pytest.raises(TypeError, match=r"params\[0\].*'some_name.*float32"):
        group_embedding_lookup([rows.variable], [[1.5]])


def test_lists_of_variables(session):
    table = sok.EmbeddingVariable("t", 2, initializer=1.0)
    parts = [tf.Variable(tf.fill([2, 2], float(i)), name=f"part_{i}") for i in range(2)]
    outputs = group_embedding_lookup([[table], parts], [[5], [1, 2]])
    harness.initialize(session)
    assert [output.tolist() for output in session.run(outputs)] == [[[1, 1]], [[1, 1], [0, 0]]]
    with pytest.raises(TypeError, match=r"params\[0\].*'t' in a list of 2"):
        group_embedding_lookup([[table, parts[0]]], [[5]])
    with pytest.raises(ValueError, match=r"params\[1\] is an empty list"):
        group_embedding_lookup([table, []], [[5], [5]])


@pytest.mark.parametrize("strategy", ["mod", "div"])
def test_partition_strategies(session, strategy):
    rows = Rows("partitioned", 3, "partitioned")
    ids = tf.constant([0, 7, 59, 31])
    (got,) = group_embedding_lookup([rows.variable], [ids], strategy)
    bags = tf.RaggedTensor.from_row_lengths(ids, [1, 1, 1, 1])
    (pooled,) = group_embedding_lookup_sparse([rows.variable], [bags], ["sum"], strategy)
    want = tf.compat.v1.nn.embedding_lookup(rows.variable, ids, partition_strategy=strategy)
    harness.initialize(session)
    got, pooled, want = session.run([got, pooled, want])
    np.testing.assert_array_equal(got, want)
    np.testing.assert_array_equal(pooled, want)


def test_outputs_have_known_shapes(session):
    table = sok.EmbeddingVariable("t", 3)
    plain = tf.compat.v1.get_variable("plain", [9, 5])
    fed = tf.compat.v1.sparse_placeholder(tf.int64, [None, None])
    outputs = group_embedding_lookup_sparse(
        [table, plain, table, plain], [_sparse(), _sparse(), fed, fed], ["sum", "mean"] * 2
    )
    shapes = [output.shape.as_list() for output in outputs]
    assert shapes == [[2, 3], [2, 5], [None, 3], [None, 5]]
