# Tags: versions
# Not on GPUs: graphs, names and libraries
"""The graph collections of layers and optimizers, and functions of variables that cannot take a table."""

import logging

import pytest
import tensorflow as tf

import harness
import sparse_operation_kit as sok
from sparse_operation_kit.checkpoint import CheckpointError


def collections():
    keys = (sok.GraphKeys.SparseOperationKitEmbeddingLayers, sok.GraphKeys.SparseOperationKitOptimizer)
    return [tf.compat.v1.get_collection(key) for key in keys]


def build():
    layers = [
        sok.DistributedEmbedding("sum", 10, 2, 1, 3, name="pooled"),
        sok.get_embedding(
            "user",
            sok.All2AllDenseEmbedding,
            max_vocabulary_size_per_gpu=10,
            embedding_vec_size=2,
            slot_num=1,
            nnz_per_slot=1,
        ),
    ]
    optimizers = [sok.optimizers.Adam(0.1, name="first"), sok.tf.keras.optimizers.Adam(0.2, name="second")]
    return layers, optimizers


def test_layers_and_optimizers_are_in_their_collections():
    with harness.graph_and_session():
        assert collections() == [[], []]
        layers, optimizers = build()
        assert collections() == [layers, optimizers]
        assert sok.get_embedding("user") is layers[1]
        assert collections() == [layers, optimizers]
    with harness.graph_and_session():
        assert collections() == [[], []]


def test_a_meta_graph_holds_their_names(caplog):
    with harness.graph_and_session():
        (_, dense), _ = build()
        with caplog.at_level(logging.WARNING, logger="tensorflow"):
            described = tf.compat.v1.train.export_meta_graph()
        assert "SparseOperationKit" not in caplog.text
    with tf.Graph().as_default():
        tf.compat.v1.train.import_meta_graph(described)
        assert collections() == [["pooled", dense.name], ["first", "second"]]
        with caplog.at_level(logging.WARNING, logger="tensorflow"):
            tf.compat.v1.train.export_meta_graph()
        assert "SparseOperationKit" not in caplog.text


def test_layers_of_the_original_have_var():
    with harness.graph_and_session():
        (pooled, dense), _ = build()
        assert pooled.var is pooled.embedding_variable
        assert dense.var is dense.embedding_variable


session = harness.session


@pytest.mark.parametrize("options", [{}, {"capacity": 3}, {"capacity": 3, "use_hashtable": False}])
@pytest.mark.parametrize("strategy", ["mod", "div"])
def test_a_list_of_tables_is_no_partitioned_variable(session, options, strategy):
    one = sok.EmbeddingVariable(name="scope/one", dim=2, **options)
    two = sok.EmbeddingVariable(name="two", dim=2, **options)
    ordinary = tf.compat.v1.get_variable("ordinary", [3, 2])
    bags = tf.sparse.from_dense(tf.constant([[1, 2]], tf.int64))
    nn = tf.compat.v1.nn
    lookups = [
        lambda params: nn.embedding_lookup(params, [1], partition_strategy=strategy),
        lambda params: nn.embedding_lookup_sparse(params, bags, None, partition_strategy=strategy),
        lambda params: nn.safe_embedding_lookup_sparse(params, bags, partition_strategy=strategy),
    ]
    for look_up in lookups:
        with pytest.raises(TypeError, match="'scope/one', 'two' .*list of 2.*group_embedding_lookup"):
            look_up([one, two])
        with pytest.raises(TypeError, match="Embedding variable 'two' .*list of 3"):
            look_up([ordinary, two, ordinary])
    with pytest.raises(TypeError, match="'scope/one', 'two' .*list of 2"):
        nn.embedding_lookup((one, two), [1], partition_strategy=strategy)
    rows = [look_up([one]) for look_up in lookups]
    harness.initialize(session)
    assert [of_lookup.shape for of_lookup in session.run(rows)] == [(1, 2)] * 3


@pytest.mark.parametrize("options", [{}, {"capacity": 3}])
@pytest.mark.parametrize("kind", [list, tuple])
def test_a_table_among_tensors_is_named(session, options, kind):
    table = sok.EmbeddingVariable(name="scope/table", dim=2, **options)
    ordinary = tf.compat.v1.get_variable("ordinary", [3, 2])
    for one, other in [(table, table), (ordinary, table)]:
        for join in [lambda values: tf.concat(values, 0), tf.stack, tf.convert_to_tensor]:
            with pytest.raises((TypeError, NotImplementedError), match="'scope/table' has no dense value"):
                join(kind([one, other]))


def test_a_tuple_of_tables_is_no_variable(session):
    one = sok.EmbeddingVariable(name="scope/one", dim=2)
    two = sok.EmbeddingVariable(name="two", dim=2)
    bags = tf.sparse.from_dense(tf.constant([[1, 2]], tf.int64))
    error = pytest.raises((TypeError, NotImplementedError), match="'scope/one'.*group_embedding_lookup")
    for nn in (tf.nn, tf.compat.v1.nn):
        for params in [(one, two), (one,)]:
            with error:
                nn.embedding_lookup(params, [1])
            with error:
                nn.embedding_lookup_sparse(params, bags, None)
            with error:
                nn.safe_embedding_lookup_sparse(params, bags)


@pytest.mark.parametrize("options", [{}, {"capacity": 3, "use_hashtable": False}])
def test_counting_up_and_averages_of_variables(session, options):
    table = sok.EmbeddingVariable(name="scope/table", dim=2, **options)
    ordinary = tf.compat.v1.get_variable("ordinary", [2])
    counter = tf.compat.v1.get_variable("counter", initializer=0, trainable=False)
    with pytest.raises(TypeError, match="'scope/table' cannot be assigned"):
        tf.compat.v1.count_up_to(table, 3)
    averages = tf.train.ExponentialMovingAverage(0.9)
    with pytest.raises(TypeError, match="'scope/table'"):
        averages.apply([table])
    step = [averages.apply([ordinary]), tf.compat.v1.count_up_to(counter, 3)]
    restored = averages.variables_to_restore()
    assert restored["scope/table"] is table and restored["ordinary/ExponentialMovingAverage"] is ordinary
    harness.initialize(session)
    assert session.run(step)[1] == 0


def test_tables_are_frozen_or_left(session):
    """`serving_test` compares the numbers of frozen graphs."""
    graph_util = tf.compat.v1.graph_util
    table = sok.EmbeddingVariable(name="scope/table", dim=2)
    other = sok.EmbeddingVariable(name="other", dim=2, initializer=1.0)
    kernel = tf.compat.v1.get_variable("kernel", [2, 1])
    rows = tf.nn.embedding_lookup(table, [1, 2])
    tf.matmul(rows, kernel, name="logits")
    tf.identity(kernel, "kernel_alone")
    tf.identity(rows + tf.nn.embedding_lookup(other, [1, 2]), "both")
    harness.initialize(session)
    graph = tf.compat.v1.get_default_graph().as_graph_def()
    with pytest.raises(CheckpointError, match="'scope/table': gives ids without a row random initial rows"):
        graph_util.convert_variables_to_constants(session, graph, ["logits"])
    with pytest.raises(ValueError, match="or none: 'other' would be left"):
        graph_util.convert_variables_to_constants(session, graph, ["both"], ["scope/table"])
    for outputs, options in [
        (["kernel_alone"], {}),
        (["logits"], {"variable_names_whitelist": ["kernel"]}),
        (["logits"], {"variable_names_blacklist": ["scope/table"]}),
    ]:
        frozen = graph_util.convert_variables_to_constants(session, graph, outputs, **options)
        assert [node.op for node in frozen.node if node.name == "kernel"] == ["Const"]
