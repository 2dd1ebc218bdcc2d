"""Random features of a batch on embedding and ordinary variables, compared with TensorFlow's lookups."""

import numpy as np
import tensorflow as tf

import harness
import sparse_operation_kit as sok
from same_length import zip_equal
from sparse_operation_kit import compat
from sparse_operation_kit.lookup.embedding_lookup import group_embedding_lookup_sparse

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
