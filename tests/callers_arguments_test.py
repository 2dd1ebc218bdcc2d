# Not on GPUs: graphs, names and libraries
"""Functions leave the lists and dicts that they are given as they were."""

import numpy as np
import pytest
import tensorflow as tf

import harness
import sparse_operation_kit as sok
from feature_column_support import fc, features, input_layer, integers, originals_afterwards  # noqa: F401
from sparse_operation_kit import deeprec
from sparse_operation_kit import dist_model_parallel as dmp

v1 = tf.compat.v1


def _tables():
    return [sok.EmbeddingVariable("one", 2), sok.EmbeddingVariable("other", 2)]


def _bags():
    return [tf.sparse.from_dense([[1, 2], [3, 0]]), tf.sparse.from_dense([[4, 0], [5, 6]])]


def _gradients(tables):
    loss = tf.add_n([tf.reduce_sum(tf.nn.embedding_lookup(table, [1, 2])) for table in tables])
    return [*zip(v1.gradients(loss, tables), tables)]


def _in_group(function, **arguments):
    columns = [integers("c", scope="group"), integers("a", scope="group"), fc.numeric_column("n")]
    return function, {"features": features(), "feature_columns": columns, **arguments}


def _of_columns_v1(function):
    return lambda: _in_group(function, weight_collections=["mine"])


def _linear_model():
    category = integers("a").categorical_column
    return fc.linear_model, {
        "features": features(),
        "feature_columns": [fc.numeric_column("n"), category],
        "weight_collections": ["mine"],
    }


def _group_bags():
    weights = [None, tf.sparse.from_dense([[1.0, 0], [2.0, 3.0]])]
    return sok.group_embedding_lookup_sparse, {
        "params": _tables(),
        "sp_ids": _bags(),
        "combiners": ["sum", "mean"],
        "sp_weights": weights,
    }


def _group_rows():
    return sok.group_embedding_lookup, {"params": _tables(), "ids": [tf.constant([1]), tf.constant([2])]}


def _lookup_sparse():
    return sok.experiment.lookup_sparse, {"params": _tables(), "sp_ids": _bags(), "combiners": ["sum"] * 2}


def _table_in_a_list():
    return tf.nn.embedding_lookup_sparse, {
        "params": _tables()[:1],
        "sp_ids": _bags()[0],
        "sp_weights": None,
        "combiner": "sum",
    }


def _apply(optimizer):
    return lambda: (optimizer().apply_gradients, {"grads_and_vars": _gradients(_tables())})


def _combined():
    optimizer = sok.DistributedOptimizer(v1.train.AdagradOptimizer(0.1), op="sum")
    return optimizer.combine_gradients, {"grads_and_vars": _gradients(_tables())}


def _minimize():
    tables = _tables()
    loss = tf.add_n([tf.reduce_sum(tf.nn.embedding_lookup(table, [1, 2])) for table in tables])
    return v1.train.AdamOptimizer().minimize, {"loss": loss, "var_list": tables}


def _saver(as_dict):
    def make():
        tables = [*_tables(), v1.get_variable("dense", [2])]
        names = {"renamed": tables[0], "dense": tables[2]}
        return v1.train.Saver, {"var_list": names if as_dict else tables}

    return make


def _split():
    return sok.split_embedding_variable_from_others, {
        "variables": [v1.get_variable("dense", [2]), *_tables()]
    }


def _statistics():
    return sok.table_statistics, {"variables": _tables()}


def _staged():
    iterator = v1.data.make_one_shot_iterator(tf.data.Dataset.range(3))
    number = iterator.get_next()
    return deeprec.staged, {"features": {"b": number, "a": [number, 2 * number]}, "feed_dict": {}}


def _distributed_layer():
    embeddings = [tf.keras.layers.Embedding(5, 2), tf.keras.layers.Embedding(7, 2)]
    return dmp.DistributedEmbedding, {"embeddings": embeddings, "input_table_map": [1, 0, 1]}


def _call_of_a_layer():
    embeddings = [tf.keras.layers.Embedding(5, 2), tf.keras.layers.Embedding(7, 2)]
    return dmp.DistributedEmbedding(embeddings), {"inputs": [tf.constant([[1]]), tf.constant([[2]])]}


_CALLS = {
    "input_layer": _of_columns_v1(input_layer),
    "linear_model": _linear_model,
    "group_embedding_lookup_sparse": _group_bags,
    "group_embedding_lookup": _group_rows,
    "experiment.lookup_sparse": _lookup_sparse,
    "tf.nn.embedding_lookup_sparse": _table_in_a_list,
    "apply_gradients": _apply(lambda: v1.train.AdamOptimizer()),
    "DistributedOptimizer.combine_gradients": _combined,
    "experiment.OptimizerWrapper.apply_gradients": _apply(
        lambda: sok.experiment.OptimizerWrapper(v1.train.GradientDescentOptimizer(0.1))
    ),
    "minimize": _minimize,
    "Saver of a list": _saver(False),
    "Saver of a dict": _saver(True),
    "split_embedding_variable_from_others": _split,
    "table_statistics": _statistics,
    "deeprec.staged": _staged,
    "DistributedEmbedding": _distributed_layer,
    "DistributedEmbedding.call": _call_of_a_layer,
}


def _contents(value):
    """The containers in a value, copied, with the identities of what they hold."""
    if isinstance(value, dict):
        return [(key, _contents(one)) for key, one in value.items()]
    if isinstance(value, (list, tuple)):
        return [type(value), *map(_contents, value)]
    return id(value)


@pytest.mark.parametrize("call", _CALLS)
def test_arguments_are_as_before(call):
    with harness.graph_and_session():
        function, arguments = _CALLS[call]()
        before = _contents(arguments)
        function(**arguments)
        assert _contents(arguments) == before


def test_weights_given_to_a_layer_are_as_before():
    layer = dmp.DistributedEmbedding([tf.keras.layers.Embedding(3, 2)])
    layer.build()
    weights = [np.arange(6, dtype=np.float32).reshape(3, 2)]
    before = _contents(weights), weights[0].copy()
    layer.set_weights(weights)
    assert _contents(weights) == before[0]
    np.testing.assert_array_equal(weights[0], before[1])
