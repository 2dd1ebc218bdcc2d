"""Tables in 16 bits over ranks: rows travel as they are kept, and all numbers are those of one process."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

import harness
import ranks
import sparse_operation_kit as sok
from same_length import zip_equal
from sparse_operation_kit.lookup import group
from sparse_operation_kit.ranks.communicator import communicator

v1 = tf.compat.v1
STEPS = 4
BAG = 2


def _keys_of(step: int) -> np.ndarray:
    """The keys of all ranks."""
    return harness.zipf_keys(np.random.default_rng(step), 60, vocabulary=50)


def _trained() -> dict[str, list]:
    """Trains two tables of one group. Sums are exact, so that they do not depend on the number of ranks."""
    known = communicator()
    with harness.graph_and_session() as session:
        of_rows, of_sums = (
            sok.EmbeddingVariable(name, 3, dtype=dtype, slot_dtype=tf.bfloat16)
            for name, dtype in (("of_rows", tf.bfloat16), ("of_sums", tf.float16))
        )
        keys = v1.placeholder(tf.int64, [None])
        at = tf.range(tf.shape(keys, out_type=tf.int64)[0])
        bags = tf.SparseTensor(
            tf.stack([at // BAG, at % BAG], 1), keys, [tf.size(keys, tf.int64) // BAG, BAG]
        )
        outputs = group.lookup_group(
            [group.DenseLookup(of_rows, keys), group.SparseLookup(of_sums, bags, "sum", exchange="sums")]
        )
        loss = tf.add_n([tf.reduce_sum(output * 0.25) for output in outputs])
        step = sok.tf.keras.optimizers.LazyAdamOptimizer(0.05).minimize(loss, var_list=[of_rows, of_sums])
        harness.initialize(session)
        found = []
        for number in range(STEPS):
            whole_bags = np.array_split(_keys_of(number).reshape(-1, BAG), known.size)
            fed = {keys: whole_bags[known.rank].reshape(-1)}
            found.append([output.tolist() for output in session.run([*outputs, step], fed)[:2]])
        contents = harness.TableReader(of_rows, of_sums).read(session)
        return {"outputs": found, "rows": [dict(zip_equal(k.tolist(), r.tolist())) for k, r in contents]}


def test_ranks_give_the_bits_of_one_process():
    (alone,) = ranks.run(_trained, ranks=1)
    for size in (2, 3, 4):
        results = ranks.run(_trained, ranks=size)
        for table in (0, 1):
            together = {}
            for result in results:
                together.update(result["rows"][table])
            assert together == alone["rows"][table], f"table {table} on {size} ranks"
        for step in range(STEPS):
            dense = [row for result in results for row in result["outputs"][step][0]]
            assert dense == alone["outputs"][step][0]
            sums = np.array([row for result in results for row in result["outputs"][step][1]])
            np.testing.assert_allclose(sums, alone["outputs"][step][1], rtol=1e-6, atol=1e-7)
