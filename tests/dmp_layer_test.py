# Not on GPUs: ordinary variables, for which the fake GPU has few of TensorFlow's kernels
"""DistributedEmbedding in one process: shapes, arguments, errors, initial tables and weights."""

import importlib
import json
import os

import numpy as np
import pytest
import tensorflow as tf

import harness
import sparse_operation_kit.dist_model_parallel as dmp
from same_length import zip_equal
from sparse_operation_kit import compat
from sparse_operation_kit.dist_model_parallel.distributed_embedding import initial_value
from sparse_operation_kit.dist_model_parallel.keras import keras, keras_session
from sparse_operation_kit.dist_model_parallel.placement import Piece
from sparse_operation_kit.dist_model_parallel.strategy import table_of

# TensorFlow 1.15 executes eagerly only if it is asked to.
tf.compat.v1.enable_v2_behavior()


def numbered(rows, columns, first=0.0):
    return np.arange(first, first + rows * columns, dtype=np.float32).reshape(rows, columns)


def layer_with_weights(*sizes, **options):
    """A layer of tables (rows, columns, combiner), with weights that are all different."""
    tables = [dmp.Embedding(rows, columns, combiner=combiner) for rows, columns, combiner in sizes]
    layer = dmp.DistributedEmbedding(tables, **options)
    weights = [numbered(rows, columns, 1000.0 * i) for i, (rows, columns, _) in enumerate(sizes)]
    layer.build()
    layer.set_weights(weights)
    return layer, weights


@pytest.mark.parametrize("shape", [[4], [4, 1], [4, 3], [2, 3, 4], [0, 3], [4, 0]], ids=str)
@pytest.mark.parametrize("dtype", [tf.int32, tf.int64, tf.uint8, tf.float32])
def test_without_a_combiner_outputs_have_the_shape_of_ids_and_columns(shape, dtype):
    ids = np.random.default_rng(0).integers(0, 10, shape)
    layer, (weights,) = layer_with_weights((10, 3, None))
    (output,) = layer([tf.cast(ids, dtype)])
    np.testing.assert_array_equal(output, weights[ids])


@pytest.mark.parametrize("combiner", ["sum", "mean"])
@pytest.mark.parametrize("shape", [[4, 1], [4, 3], [2, 3, 4], [0, 3], [4, 0]], ids=str)
def test_a_combiner_takes_the_last_dimension(shape, combiner):
    ids = np.random.default_rng(0).integers(0, 10, shape)
    layer, (weights,) = layer_with_weights((10, 3, combiner))
    (output,) = layer([ids])
    expected = weights[ids].sum(axis=-2) / (max(shape[-1], 1) if combiner == "mean" else 1)
    np.testing.assert_allclose(output, expected, rtol=1e-6)


def test_unsorted_sparse_ids():
    layer, (weights,) = layer_with_weights((10, 3, "sum"))
    ids = tf.SparseTensor([[2, 0], [0, 1], [0, 0], [2, 1]], np.array([4, 5, 6, 7], np.int64), [3, 2])
    (output,) = layer([ids])
    np.testing.assert_array_equal(output, [weights[5] + weights[6], np.zeros(3), weights[4] + weights[7]])


@pytest.mark.parametrize("bags", [[[1, 1, 4], [], [2]], [[], []], []], ids=str)
def test_values_of_ragged_tensors(bags):
    layer, (weights,) = layer_with_weights((10, 3, "sum"))
    ids = np.array([one for bag in bags for one in bag], np.int64)
    splits = np.cumsum([0, *map(len, bags)]).astype(np.int64)
    (output,) = layer([tf.compat.v1.ragged.RaggedTensorValue(ids, splits)])
    np.testing.assert_array_equal(
        output, np.reshape([weights[np.array(bag, int)].sum(axis=0) for bag in bags], [-1, 3])
    )


def test_static_shapes_are_known():
    with tf.Graph().as_default():
        tables = [dmp.Embedding(9, 4), dmp.Embedding(9, 4, combiner="sum")]
        place = tf.compat.v1.placeholder
        outputs = dmp.DistributedEmbedding(tables)([place(tf.int64, [None, 3]), place(tf.int64, [5, None])])
        assert [output.shape.as_list() for output in outputs] == [[None, 3, 4], [5, 4]]


def test_layers_of_keras_and_of_programs():
    class OfProgram:
        input_dim, output_dim = 7, 2

    given = [
        keras.layers.Embedding(5, 2),
        OfProgram(),
        {"input_dim": np.int64(6), "output_dim": 2, "combiner": "sum"},
    ]
    layer = dmp.DistributedEmbedding(given)
    layer.build()
    layer.set_weights([numbered(5, 2), numbered(7, 2), numbered(6, 2)])
    outputs = layer([[[4]], [[6]], [[1, 1]]])
    assert [output.numpy().tolist() for output in outputs] == [[[[8, 9]]], [[[12, 13]]], [[4, 6]]]


def test_concat_one_hot():
    concatenated = dmp.ConcatOneHotEmbedding([3, 4], 2)
    layer = dmp.DistributedEmbedding([concatenated])
    layer.build()
    layer.set_weights([numbered(7, 2)])
    np.testing.assert_array_equal(layer([[[2, 0], [0, 3]]])[0], numbered(7, 2)[np.array([[2, 3], [0, 6]])])
    for ids, bad in (([[3, 0]], 3), ([[0, 4]], 4), ([[0, -1]], -1)):
        with pytest.raises(tf.errors.InvalidArgumentError, match=f"but input 0 on rank 0 has {bad}"):
            layer([ids])


def test_tables_in_one_variable_do_not_serve_each_others_rows():
    layer, _ = layer_with_weights((3, 2, None), (5, 2, None))
    assert len(layer.trainable_variables) == 1
    for ids, message in (
        ([[[3]], [[0]]], r"Table 0 .*has ids in \[0, 3\), but input 0 on rank 0 has 3"),
        ([[[0]], [[-1]]], r"Table 1 .*has ids in \[0, 5\), but input 1 on rank 0 has -1"),
    ):
        with pytest.raises(tf.errors.InvalidArgumentError, match=message):
            layer(ids)


BAD_ARGUMENTS = {
    "no list": ({"embeddings": 3}, TypeError, "embeddings must be a list"),
    "no layer": (
        {"embeddings": [keras.layers.Dense(3, name="d")]},
        TypeError,
        r"Table 0 \('d'\) is no embedding",
    ),
    "no tables": ({"embeddings": []}, ValueError, "no tables"),
    "strategy": ({"strategy": "best"}, ValueError, "strategy must be one of .*'best'"),
    "columns": ({"column_slice_threshold": 0}, ValueError, "column_slice_threshold must be .* not 0"),
    "rows": ({"row_slice_threshold": 1.5}, ValueError, "row_slice_threshold must be .* not 1.5"),
    "data parallel": (
        {"data_parallel_threshold": True},
        ValueError,
        "data_parallel_threshold must .* not True",
    ),
    "dp_input": ({"dp_input": 1}, TypeError, "dp_input must be a bool, not 1"),
    "map": (
        {"input_table_map": [0, 2]},
        ValueError,
        r"input_table_map\[1\] must be a table in \[0, 2\), not 2",
    ),
    "empty map": ({"input_table_map": []}, ValueError, "input_table_map must be a list"),
}


@pytest.mark.parametrize("name", BAD_ARGUMENTS)
def test_bad_arguments(name):
    arguments, error, message = BAD_ARGUMENTS[name]
    given = {"embeddings": [dmp.Embedding(5, 2), dmp.Embedding(5, 2)], **arguments}
    with pytest.raises(error, match=message):
        dmp.DistributedEmbedding(**given)


def test_numpys_integers_are_integers():
    tables = [{"input_dim": 10, "output_dim": 4}, {"input_dim": 3, "output_dim": 2}]
    given = {"column_slice_threshold": 20, "data_parallel_threshold": 6}
    strategy = dmp.DistEmbeddingStrategy(tables, 2, **given)
    numpys = dmp.DistEmbeddingStrategy(tables, np.int64(2), **{k: np.int32(v) for k, v in given.items()})
    assert numpys.placement == strategy.placement
    layer = dmp.DistributedEmbedding([dmp.Embedding(5, 2)], row_slice_threshold=np.int64(7))
    json.dumps(layer.get_config())


def test_what_ranks_take_with_dp_input_false():
    tables = [{"input_dim": rows, "output_dim": 4, "name": f"t{rows}"} for rows in (40, 10, 2, 30)]
    strategy = dmp.DistEmbeddingStrategy(
        tables,
        2,
        input_table_map=[3, 0, 1, 2, 0],
        column_slice_threshold=100,
        row_slice_threshold=120,
        data_parallel_threshold=8,
    )
    # Tables 0 and 3 are sliced by rows, 2 is replicated, and 1 is entirely on the first rank.
    assert strategy.table_ids_list == [[0, 1, 2, 3], [0, 2, 3]]
    assert strategy.input_ids_list == [[0, 1, 2, 3, 4], [0, 1, 3, 4]]
    sizes = [
        [(one["name"], one["input_dim"], one["output_dim"]) for one in of_rank]
        for of_rank in strategy.local_configs
    ]
    assert sizes == [
        [("t40", 20, 4), ("t10", 10, 4), ("t2", 2, 4), ("t30", 15, 4)],
        [("t40", 20, 4), ("t2", 2, 4), ("t30", 15, 4)],
    ]
    assert strategy.table_ids == strategy.table_ids_list


def test_arguments_without_effect():
    dmp.DistEmbeddingStrategy([{"input_dim": 3, "output_dim": 2}], 1, gpu_embedding_size=5)
    tables = [dmp.Embedding(5, 2, use_custom_kernel=False)]
    layer = dmp.DistributedEmbedding(tables, gpu_embedding_size=10)
    assert layer([[[4]]])[0].shape == [1, 1, 2]


@pytest.mark.parametrize("run", [lambda function: in_graph(function), lambda function: function()])
def test_weights_cannot_be_set_before_there_are_any(run):
    def set_weights():
        layer = dmp.DistributedEmbedding([dmp.Embedding(5, 2)], name="rows")
        for session in (None, tf.compat.v1.Session(graph=tf.Graph())):
            with pytest.raises(ValueError, match="'rows' has no weights to set: call it, or its `build"):
                layer.set_weights([numbered(5, 2)], session=session)
        assert not layer.built

    run(set_weights)


def test_strings_are_refused_when_a_graph_is_built():
    with tf.Graph().as_default():
        words = tf.compat.v1.placeholder(tf.string, [None, 1])
        for layer in (
            dmp.Embedding(5, 2),
            dmp.Embedding(5, 2, combiner="sum"),
            dmp.ConcatOneHotEmbedding([5], 2),
            dmp.DistributedEmbedding([dmp.Embedding(5, 2)]),
            lambda ids: dmp.embedding_lookup(tf.zeros([5, 2]), ids),
        ):
            inputs = [words] if isinstance(layer, dmp.DistributedEmbedding) else words
            with pytest.raises(TypeError, match="ids must be integers, not string"):
                layer(inputs)


def test_layers_that_cannot_be_distributed():
    same = dmp.Embedding(5, 2)
    built = dmp.Embedding(5, 2, name="built")
    built.build()
    for layers, message in (
        ([same, same], "Tables 0 and 1 are one layer"),
        ([same, built], r"Table 1 \('built'\) has weights already"),
        (
            [keras.layers.Embedding(5, 2, name="m", mask_zero=True)],
            r"Table 0 \('m'\): mask_zero has no effect",
        ),
        ([dmp.Embedding(5, 2, embeddings_regularizer="l2")], "embeddings_regularizer has no effect"),
        ([dmp.Embedding(5, 2, trainable=False)], "is not trainable"),
        ([dmp.Embedding(5, 2, dtype="float64")], "tables are float32, not float64"),
        (
            [{"input_dim": 5, "output_dim": 2, "combiner": "max"}],
            "combiner must be None, 'sum' or 'mean', not 'max'",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            dmp.DistributedEmbedding(layers)


def test_bad_inputs():
    layer, _ = layer_with_weights((5, 2, None), (5, 2, "sum"))
    sparse = tf.sparse.from_dense([[1]])
    for inputs, error, message in (
        ([[[1]]], ValueError, "takes 2 inputs, not 1"),
        ([sparse, [[1]]], ValueError, "input 0 of Table 0 .* SparseTensor need a table with a combiner"),
        ([[[1]], [1, 2]], ValueError, "input 1 of Table 1 .* combiner 'sum' needs ids of shape"),
        ([3, [[1]]], ValueError, "input 0 of Table 0 .*: ids must have a batch dimension"),
        ([[[1]], [["a"]]], TypeError, "input 1 of Table 1 .* ids must be integers, not string"),
    ):
        with pytest.raises(error, match=message):
            layer(inputs)


INITIALIZERS = [
    "uniform",
    "glorot_uniform",
    keras.initializers.RandomNormal(seed=3),
    keras.initializers.TruncatedNormal(1.0, 0.5),
    keras.initializers.Constant(2.0),
    "zeros",
    lambda shape, dtype: tf.reshape(tf.range(shape[0] * shape[1], dtype=dtype), shape),
]


@pytest.mark.parametrize("initializer", INITIALIZERS)
@pytest.mark.parametrize("block", [2**22, 64])
def test_initial_pieces_are_parts_of_one_table(initializer, block, monkeypatch):
    module = importlib.import_module("sparse_operation_kit.dist_model_parallel.distributed_embedding")
    monkeypatch.setattr(module, "_BLOCK", block)
    table = table_of({"input_dim": 50, "output_dim": 6, "embeddings_initializer": initializer}, 0)

    def piece(rows, columns):
        return initial_value([Piece(0, 0, rows, columns, 0, 0)], [table], columns[1] - columns[0])().numpy()

    whole = piece((0, 50), (0, 6))
    np.testing.assert_array_equal(piece((0, 50), (2, 5)), whole[:, 2:5])
    np.testing.assert_array_equal(piece((7, 43), (0, 6)), whole[7:43])
    np.testing.assert_array_equal(piece((49, 50), (5, 6)), whole[49:, 5:])


@pytest.mark.parametrize("initializer", ["uniform", keras.initializers.RandomNormal(seed=3)])
def test_no_block_of_initial_rows_is_that_of_another_table(initializer, monkeypatch):
    module = importlib.import_module("sparse_operation_kit.dist_model_parallel.distributed_embedding")
    monkeypatch.setattr(module, "_BLOCK", 64)
    config = {"input_dim": 24, "output_dim": 8, "embeddings_initializer": initializer}
    tables = [table_of(config, number) for number in range(3)]
    blocks = []
    for number in range(3):
        rows = initial_value([Piece(number, 0, (0, 24), (0, 8), 0, 0)], tables, 8)().numpy()
        blocks += [block.tobytes() for block in rows.reshape(3, 8, 8)]
    assert len(set(blocks)) == 9


def test_initial_rows_depend_on_the_initializers_seed():
    def rows(seed):
        initializer = keras.initializers.RandomUniform(seed=seed)
        table = table_of({"input_dim": 5, "output_dim": 4, "embeddings_initializer": initializer}, 0)
        return initial_value([Piece(0, 0, (0, 5), (0, 4), 0, 0)], [table], 4)().numpy()

    np.testing.assert_array_equal(rows(1), rows(1))
    assert not np.isin(rows(1), rows(2)).any()


def test_initial_tables_have_their_distributions_and_differ():
    layer = dmp.DistributedEmbedding([dmp.Embedding(5000, 8), dmp.Embedding(5000, 8)])
    first, second = layer.get_weights()
    assert len(np.unique(first)) > 0.99 * first.size and not np.array_equal(first, second)
    assert abs(first).max() <= 0.05 and abs(first.mean()) < 1e-3
    assert abs(first.std() - 0.1 / 12**0.5) < 1e-3
    # Neither columns nor blocks of rows repeat.
    assert abs(np.corrcoef(first.T) - np.eye(8)).max() < 0.1


def test_initial_tables_depend_on_the_seed():
    def initial(seed):
        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            tf.compat.v1.set_random_seed(seed)
            layer = dmp.DistributedEmbedding([dmp.Embedding(5, 4)])
            layer.build()
            session.run(tf.compat.v1.global_variables_initializer())
            return layer.get_weights()[0]

    np.testing.assert_array_equal(initial(1), initial(1))
    assert not np.array_equal(initial(1), initial(2))


def test_weights_in_keras_session():
    with tf.Graph().as_default():
        layer = dmp.DistributedEmbedding([dmp.Embedding(5, 4)])
        output = layer([[[1]]])[0]
        layer.set_weights([numbered(5, 4)])
        np.testing.assert_array_equal(layer.get_weights()[0], numbered(5, 4))
        np.testing.assert_array_equal(keras_session().run(output), [[[4, 5, 6, 7]]])


def test_bad_weights(tmp_path):
    layer, weights = layer_with_weights((5, 2, None), (3, 2, "sum"))
    (tmp_path / "text.npy").write_text("no array")
    (tmp_path / "empty.npy").write_text("")
    np.savez(tmp_path / "two.npz", *weights)
    for given, error, message in (
        (weights[:1], ValueError, "has 2 tables, but there are 1 weights"),
        ("w.npy", TypeError, "weights must be a list of arrays or paths, not str"),
        (
            [weights[0], weights[1].T],
            ValueError,
            r"weights of Table 1 .* have the shape \(2, 3\), not \(3, 2\)",
        ),
        ([weights[0], weights[1].astype(str)], TypeError, "weights of Table 1 .* not numbers"),
        ([weights[0], tmp_path / "text.npy"], ValueError, "weights of Table 1 .*text.npy is no .npy file"),
        ([weights[0], tmp_path / "empty.npy"], ValueError, "weights of Table 1 .*empty.npy is no .npy file"),
        ([weights[0], tmp_path / "two.npz"], ValueError, "weights of Table 1 .*two.npz is no .npy file"),
        ([weights[0], str(tmp_path / "none.npy")], FileNotFoundError, "weights of Table 1 .*none.npy"),
    ):
        with pytest.raises(error, match=message):
            layer.set_weights(given)
    harness.assert_equal_arrays(layer.get_weights(), weights)


def in_graph(function):
    with tf.Graph().as_default():  # with Keras' session, which initializes variables
        return function()


@pytest.mark.parametrize("run", [in_graph, lambda function: function()], ids=["graph", "eager"])
@pytest.mark.parametrize("chunk", [1, 7, 134217728])
def test_weights_are_written_to_files(tmp_path, run, chunk):
    sizes = [(5, 3, None), (4, 2, "sum"), (6, 3, None)]
    paths = [tmp_path / "first.npy", str(tmp_path / "second"), str(tmp_path / "third.npy")]

    def write():
        layer, weights = layer_with_weights(*sizes)
        layer.get_weights(paths=paths)
        # Files that are mapped already keep what they had.
        earlier = layer.get_weights(paths=paths, chunk=chunk)
        layer.set_weights([weight + 1 for weight in weights])
        return earlier, layer.get_weights(paths=paths, chunk=chunk), weights

    earlier, written, weights = run(write)
    assert sorted(os.listdir(tmp_path)) == ["first.npy", "second", "third.npy"]
    for path, before, after, weight in zip_equal(paths, earlier, written, weights):
        assert isinstance(after, np.memmap) and after.dtype == np.float32 and not after.flags.writeable
        np.testing.assert_array_equal(before, weight)
        np.testing.assert_array_equal(after, weight + 1)
        np.testing.assert_array_equal(np.load(path), weight + 1)

    def read():
        again, _ = layer_with_weights(*sizes, row_slice_threshold=12, data_parallel_threshold=8)
        again.set_weights(written, chunk=chunk)
        return again.get_weights()

    harness.assert_equal_arrays(run(read), written)


def test_bad_paths(tmp_path):
    layer, weights = layer_with_weights((5, 2, None), (3, 2, "sum"))
    kept, new, folder = str(tmp_path / "kept.npy"), str(tmp_path / "new.npy"), tmp_path / "folder.npy"
    np.save(kept, np.zeros(1))
    folder.mkdir()
    for paths, error, message in (
        ([kept], ValueError, "has 2 tables, but there are 1 paths"),
        (kept, TypeError, "paths must be a list of paths, not str"),
        ([kept, 3], TypeError, "weights of Table 1 .*: the path must be a str, not 3"),
        ([kept, b"new.npy"], TypeError, "weights of Table 1 .*: the path must be a str, not b'new.npy'"),
        ([kept, f"{tmp_path}/./kept.npy"], ValueError, "Table 1 .*: another table has the path .*kept.npy"),
        ([kept, f"{new}\0"], ValueError, "weights of Table 1 .*new.npy.* is no path of a file"),
        ([kept, str(tmp_path / "none" / "new.npy")], FileNotFoundError, "weights of Table 1 .*none/new.npy"),
        ([kept, f"{kept}/new.npy"], NotADirectoryError, "weights of Table 1 .*kept.npy/new.npy"),
        ([kept, folder], IsADirectoryError, "weights of Table 1 .*folder.npy"),
        ([kept, ""], ValueError, "weights of Table 1 .*: '' is no path of a file"),
    ):
        with pytest.raises(error, match=message):
            layer.get_weights(paths=paths)
    for chunk in (0, -1, 1.5, True, "7"):
        with pytest.raises(ValueError, match="chunk must be an integer of at least 1, not "):
            layer.get_weights(paths=[kept, new], chunk=chunk)
    assert sorted(os.listdir(tmp_path)) == ["folder.npy", "kept.npy"]
    np.testing.assert_array_equal(np.load(kept), np.zeros(1))
    harness.assert_equal_arrays(layer.get_weights(chunk=10**30), weights)


def test_models_are_saved_and_made_again(tmp_path):
    layer = dmp.DistributedEmbedding([dmp.Embedding(5, 4, combiner="sum"), dmp.Embedding(5, 4)])
    inputs = [keras.Input([3], dtype=tf.int64), keras.Input([1], dtype=tf.int64)]
    model = keras.Model(inputs, layer(inputs))
    model.save_weights(str(tmp_path / "weights"))
    weights = layer.get_weights()
    layer.set_weights([weight * 0 for weight in weights])
    model.load_weights(str(tmp_path / "weights")).assert_consumed()
    harness.assert_equal_arrays(layer.get_weights(), weights)
    again = dmp.DistributedEmbedding.from_config(layer.get_config())
    assert again.strategy.placement == layer.strategy.placement
    # The same initializers.
    harness.assert_equal_arrays(again.get_weights(), weights)


def test_models_are_saved_whole_with_their_optimizers(tmp_path):
    inputs = keras.Input([3], dtype=tf.int64)
    (vectors,) = dmp.DistributedEmbedding([dmp.Embedding(5, 4, combiner="sum")])(inputs)
    model = keras.Model(inputs, keras.layers.Dense(1)(vectors))
    model.compile(dmp.DistributedOptimizer(keras.optimizers.Adam(0.1)), "mse")
    ids, labels = np.arange(12).reshape(4, 3) % 5, np.ones([4, 1])
    model.fit(ids, labels, verbose=0)
    path = str(tmp_path / ("model.h5" if compat.VERSION < (2, 0) else "model.keras"))
    model.save(path)
    names = {"DistributedEmbedding": dmp.DistributedEmbedding}
    loaded = keras.models.load_model(path, custom_objects=names)
    np.testing.assert_allclose(loaded.predict(ids, verbose=0), model.predict(ids, verbose=0), rtol=1e-6)
    assert type(loaded.optimizer) is keras.optimizers.Adam
    loaded.compile(dmp.DistributedOptimizer(loaded.optimizer), "mse")
    for one in (model, loaded):
        one.fit(ids, labels, verbose=0)
    np.testing.assert_allclose(loaded.predict(ids, verbose=0), model.predict(ids, verbose=0), rtol=1e-5)


def test_a_jacobian():
    layer, _ = layer_with_weights((4, 2, "mean"))
    with tf.GradientTape(persistent=True) as tape:
        (output,) = layer([[[1, 3]]])
    # TensorFlow 1.15 looks for a flag on the command line before it vectorizes.
    vectorized = compat.VERSION >= (2, 0)
    jacobian = tape.jacobian(output, layer.trainable_variables[0], experimental_use_pfor=vectorized)
    expected = np.zeros([1, 2, 4, 2])
    expected[0, 0, [1, 3], 0] = expected[0, 1, [1, 3], 1] = 0.5
    np.testing.assert_allclose(tf.convert_to_tensor(jacobian), expected)


def with_loss_scale(optimizer):
    """Keras' LossScaleOptimizer, which in TensorFlow 1.15 is experimental."""
    if hasattr(keras.mixed_precision, "LossScaleOptimizer"):
        return keras.mixed_precision.LossScaleOptimizer(optimizer)
    return keras.mixed_precision.experimental.LossScaleOptimizer(optimizer, "dynamic")


def test_optimizers_that_cannot_be_distributed():
    adam = keras.optimizers.Adam
    for optimizer, options, error, message in (
        (3, {}, TypeError, "not int"),
        (adam(), {"op": "max"}, ValueError, "op must be .*'max'"),
        (adam(), {"compression": "fp16"}, ValueError, "compression"),
        (adam(), {"backward_passes_per_step": 2}, ValueError, "backward_passes_per_step must be 1, not 2"),
        (dmp.DistributedOptimizer(adam()), {}, TypeError, "is a DistributedOptimizer already"),
        (with_loss_scale(adam()), {}, TypeError, "would skip steps on some ranks only"),
    ):
        with pytest.raises(error, match=message):
            dmp.DistributedOptimizer(optimizer, **options)


def test_a_rank_that_is_none_broadcasts_nothing():
    with pytest.raises(ValueError, match="Rank 1 is not one of the 1 ranks"):
        dmp.broadcast_variables([], root_rank=1)
