# Tags: old_version
# Not on GPUs: ordinary variables, for which the fake GPU has few of TensorFlow's kernels
"""Bags of ordinary variables in DeepRec's lookups: values and gradients against a slow reference."""

import numpy as np
import pytest
import tensorflow as tf

import harness
from sparse_operation_kit import deeprec

ROWS = np.arange(1, 25, dtype=np.float32).reshape(8, 3) / 7
# Bags in the middle and at the end have no ids; the weights of the fourth add up to zero.
BAGS = [[1, 7, 1], [], [3], [2, 5], [6], []]
WEIGHTS = [[1.0, -0.5, 2.0], [], [0.25], [1.0, -1.0], [3.0], []]


def factors(weights, combiner):
    """The factor of each row of a bag."""
    divisor = {"sum": 1.0, "mean": sum(weights), "sqrtn": np.sqrt(sum(w * w for w in weights))}[combiner]
    return [weight / divisor if divisor else 0.0 for weight in weights]


def tensor(layout, bags, dtype):
    values = tf.constant(sum(bags, []), dtype)
    if layout == "ragged":
        return tf.RaggedTensor.from_row_lengths(values, [len(bag) for bag in bags])
    places = [(bag, place) for bag, members in enumerate(bags) for place in range(len(members))]
    return tf.SparseTensor(places, values, [len(bags), 3])


@pytest.mark.parametrize("combiner", ["sum", "mean", "sqrtn"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(
    ("kind", "layout"), [("resource", "sparse"), ("reference", "ragged"), ("partitioned", "ragged")]
)
def test_values_and_gradients(kind, layout, weighted, combiner):
    used = WEIGHTS if weighted else [[1.0] * len(bag) for bag in BAGS]
    output_gradient = np.arange(1, 19, dtype=np.float32).reshape(6, 3)
    want, want_gradient = np.zeros([6, 3]), np.zeros([8, 3])
    for number, (bag, weights) in enumerate(zip(BAGS, used)):
        for row, factor in zip(bag, factors(weights, combiner)):
            want[number] += factor * ROWS[row]
            want_gradient[row] += factor * output_gradient[number]
    with harness.graph_and_session() as session:
        parts = [
            tf.compat.v1.get_variable(f"v{number}", initializer=rows, use_resource=kind == "resource")
            for number, rows in enumerate(np.split(ROWS, 2 if kind == "partitioned" else 1))
        ]
        ids = tensor(layout, BAGS, tf.int64)
        weights = tensor(layout, WEIGHTS, tf.float32) if weighted else None
        lookup = deeprec.group_embedding_lookup_sparse
        rows = lookup([parts], [ids], [combiner], [weights], "div")[0]
        gradients = [tf.convert_to_tensor(g) for g in tf.gradients(rows, parts, [output_gradient])]
        harness.initialize(session)
        found, found_gradient = session.run([rows, tf.concat(gradients, axis=0)])
    np.testing.assert_allclose(found, want, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(found_gradient, want_gradient, rtol=1e-6, atol=1e-6)
