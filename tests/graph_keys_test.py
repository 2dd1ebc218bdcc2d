"""The graph collections of layers and optimizers."""

import logging

import tensorflow as tf

import harness
import sparse_operation_kit as sok


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
