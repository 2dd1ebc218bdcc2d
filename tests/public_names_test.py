# Tags: versions, old_version
# Not on GPUs: graphs, names and libraries
"""The names that users import, at every path, with the arguments that scripts pass."""

import importlib
import inspect
import re

import pytest
import tensorflow as tf

import forked
import sparse_operation_kit as sok
from sparse_operation_kit import compat
from sparse_operation_kit import dist_model_parallel as dmp

_ROOT = "sparse_operation_kit"

TOP_LEVEL = [
    "All2AllDenseEmbedding",
    "BroadcastGlobalVariablesHook",
    "CBFFilter",
    "CounterFilter",
    "DistributedEmbedding",
    "DistributedOptimizer",
    "EmbeddingVariable",
    "EmbeddingVariableOption",
    "GlobalStepEvict",
    "GraphKeys",
    "IncrementalCheckpointHook",
    "Init",
    "InitializerOption",
    "L2WeightEvict",
    "LookupPrefetch",
    "OptimizerScope",
    "Saver",
    "broadcast_global_variables",
    "broadcast_variables",
    "categorical_column_with_embedding",
    "feature_columns",
    "get_embedding",
    "get_embedding_variable",
    "group_embedding_column_scope",
    "group_embedding_lookup",
    "group_embedding_lookup_sparse",
    "init_from_checkpoint",
    "split_embedding_variable_from_others",
]

FULL_PATHS = [
    ("core.initialize", "Init", "Init"),
    ("embeddings.distributed_embedding", "DistributedEmbedding", "DistributedEmbedding"),
    ("embeddings.all2all_dense_embedding", "All2AllDenseEmbedding", "All2AllDenseEmbedding"),
    ("optimizers.utils", "split_embedding_variable_from_others", "split_embedding_variable_from_others"),
    ("tf.keras.optimizers.adam", "Adam", "tf.keras.optimizers.Adam"),
    ("tf.keras.optimizers.lazy_adam", "LazyAdamOptimizer", "tf.keras.optimizers.LazyAdamOptimizer"),
    ("tf.keras.optimizers", "Adam", "optimizers.Adam"),
    ("tf.keras.mixed_precision", "LossScaleOptimizer", "tf.keras.mixed_precision.LossScaleOptimizer"),
    ("optimizers", "Adam", "optimizers.Adam"),
    ("core", "EmbeddingVariable", "EmbeddingVariable"),
    ("core.embedding_variable", "EmbeddingVariable", "EmbeddingVariable"),
    ("core.context_scope", "OptimizerScope", "OptimizerScope"),
    ("core", "GraphKeys", "GraphKeys"),
    ("core.graph_keys", "GraphKeys", "GraphKeys"),
    ("saver", "Saver", "Saver"),
    ("saver.Saver", "Saver", "Saver"),
    ("tf", "unique", "tf.unique"),
    ("tf", "unsorted_segment_sum", "tf.unsorted_segment_sum"),
    ("kit_lib", "in_tensorflow2", "kit_lib.in_tensorflow2"),
    ("experiment.distributed_variable", "Variable", "experiment.Variable"),
    ("experiment.dynamic_variable", "DynamicVariable", "experiment.DynamicVariable"),
    ("experiment.lookup", "lookup_sparse", "experiment.lookup_sparse"),
    ("experiment.optimizer", "OptimizerWrapper", "experiment.OptimizerWrapper"),
    ("experiment.dump_load", "dump", "experiment.dump"),
    (
        "embeddings.tf_distributed_embedding",
        "TFDistributedEmbedding",
        "embeddings.tf_distributed_embedding.TFDistributedEmbedding",
    ),
]

# The arguments of `tf.Variable`, and two more.
_OF_A_VARIABLE = (
    "initial_value=None, trainable=None, collections=None, validate_shape=True, caching_device=None, "
    "name=None, dtype=None, variable_def=None, import_scope=None, constraint=None, "
    "distribute_strategy=None, synchronization=None, aggregation=None, shape=None, initializer=None"
)
# As in a definition, without types.
ARGUMENTS = {
    "Init": "**kwargs",
    "group_embedding_lookup_sparse": (
        "params, sp_ids, combiners, partition_strategy='mod', sp_weights=None, name=None, *, "
        "training=True, side_by_side=False, is_sequence=False, params_num_per_group=9223372036854775807"
    ),
    "group_embedding_lookup": "params, ids, partition_strategy='mod', name=None, *, training=True",
    "DistributedEmbedding": (
        "combiner, max_vocabulary_size_per_gpu, embedding_vec_size, slot_num, max_nnz, "
        "max_feature_num=1, use_hashtable=True, key_dtype=tf.int64, embedding_initializer=None, *, "
        "exchange=None, **kwargs"
    ),
    "DistributedEmbedding.call": "inputs, training=True",
    "All2AllDenseEmbedding": (
        "max_vocabulary_size_per_gpu, embedding_vec_size, slot_num, nnz_per_slot, dynamic_input=False, "
        "use_hashtable=True, key_dtype=tf.int64, embedding_initializer=None, **kwargs"
    ),
    "All2AllDenseEmbedding.call": "inputs, training=True",
    "EmbeddingVariable": (
        "name, dim, capacity=None, key_dtype=tf.int64, dtype=tf.float32, initializer=None, "
        "trainable=True, use_hashtable=True, on_full='error', admission=None, eviction=None, *, "
        "memory='device', row_arithmetic=False, slot_dtype=tf.float32, rounding='stochastic'"
    ),
    "get_embedding_variable": (
        "name, embedding_dim, key_dtype=tf.int64, value_dtype=None, initializer=None, regularizer=None, "
        "trainable=True, collections=None, caching_device=None, partitioner=None, validate_shape=True, "
        "custom_getter=None, constraint=None, steps_to_live=None, init_data_source=None, "
        f"ev_option={sok.EmbeddingVariableOption()}"
    ),
    "EmbeddingVariableOption": (
        "ht_type='', ht_partition_num=1000, evict_option=None, ckpt=None, filter_option=None, "
        f"storage_option=None, init_option={sok.InitializerOption()}, value_dtype=None, "
        "slot_dtype=tf.float32, rounding='stochastic'"
    ),
    "BroadcastGlobalVariablesHook": "root_rank=0",
    "DistributedOptimizer": "optimizer, *, op, sparse_as_dense=False, name=None",
    "broadcast_global_variables": "root_rank=0",
    "broadcast_variables": "variables, root_rank=0",
    "OptimizerScope": "trainable_variables",
    "Saver.dump_to_file": "embedding_variable, filepath",
    "Saver.restore_from_file": "embedding_variable, filepath, *, name=None",
    "IncrementalCheckpointHook": (
        "checkpoint_dir, *, save_secs=None, save_steps=None, checkpoint_basename='model.ckpt', max_to_keep=5"
    ),
    "init_from_checkpoint": "ckpt_dir_or_file, assignment_map, *, optimizer_state=False",
    "Saver.load_embedding_values": "embedding_variable, tensors",
    "split_embedding_variable_from_others": "variables",
    "experiment.init": "comm_tool='horovod', use_legacy_optimizer=True",
    "experiment.lookup_sparse": "params, sp_ids, sp_weights=None, combiners=None",
    "experiment.all2all_dense_embedding": "param, indices",
    "experiment.filter_variables": "vars",
    "experiment.DynamicVariable": (
        "dimension, initializer=None, var_type=None, name=None, constraint=None, trainable=True, "
        "key_type=None, dtype=None, mode=None, *, slot_dtype=tf.float32, rounding='stochastic', "
        "**kwargs"
    ),
    "experiment.DistributedVariable": f"{_OF_A_VARIABLE}, *, slot_dtype=tf.float32, rounding='stochastic'",
    "experiment.LocalizedVariable": f"{_OF_A_VARIABLE}, global_gpu_id=None, target_gpu=None, **record",
    "experiment.OptimizerWrapper": "optimizer",
    "experiment.SGD": "lr",
    "experiment.dump": "path, dump_vars, optimizer=None",
    "experiment.load": "path, load_vars, optimizer=None",
    "experiment.assign": "var, indices, values",
    "experiment.export": "var",
    "embeddings.tf_distributed_embedding.TFDistributedEmbedding": (
        "vocabulary_size, embedding_vec_size, initializer='GlorotNormal', comm_options=None, **kwargs"
    ),
    "dist_model_parallel.BroadcastGlobalVariablesCallback": "root_rank, device=''",
    "dist_model_parallel.ConcatOneHotEmbedding": "feature_sizes, embedding_width, **kwargs",
    "dist_model_parallel.DistEmbeddingStrategy": (
        "embeddings, world_size, strategy='basic', input_table_map=None, column_slice_threshold=None, "
        "row_slice_threshold=None, data_parallel_threshold=None, *, gpu_embedding_size=None"
    ),
    "dist_model_parallel.DistributedEmbedding": (
        "embeddings, strategy='basic', column_slice_threshold=None, row_slice_threshold=None, "
        "dp_input=True, input_table_map=None, data_parallel_threshold=None, *, gpu_embedding_size=None, "
        "**kwargs"
    ),
    "dist_model_parallel.DistributedEmbedding.get_weights": (
        "all_ranks=False, session=None, paths=None, chunk=134217728"
    ),
    "dist_model_parallel.DistributedEmbedding.set_weights": (
        "weights, chunk=134217728, use_lock=False, session=None"
    ),
    "dist_model_parallel.DistributedGradientTape": (
        "gradtape, device_dense='', device_sparse='', compression=None, sparse_as_dense=False, "
        "op='average', gradient_predivide_factor=1.0, num_groups=0, groups=None"
    ),
    "dist_model_parallel.DistributedOptimizer": (
        "optimizer, name=None, use_locking=False, device_dense='', device_sparse='', compression=None, "
        "sparse_as_dense=False, backward_passes_per_step=1, op='average', gradient_predivide_factor=1.0, "
        "average_aggregated_gradients=False, num_groups=0, groups=None"
    ),
    "dist_model_parallel.Embedding": (
        "input_dim, output_dim, embeddings_initializer='uniform', embeddings_regularizer=None, "
        "activity_regularizer=None, embeddings_constraint=None, combiner=None, *, "
        "use_custom_kernel=True, **kwargs"
    ),
    "dist_model_parallel.IntegerLookup": "max_tokens, use_gpu=True, **kwargs",
    "dist_model_parallel.broadcast_variables": "model_vars, root_rank=0",
    "dist_model_parallel.embedding_lookup": "param, ids, combiner=None",
}


def resolve(dotted):
    found = sok
    for name in dotted.split("."):
        found = getattr(found, name)
    return found


@pytest.mark.parametrize("name", TOP_LEVEL)
def test_top_level_name(name):
    assert name in sok.__all__
    assert inspect.getdoc(getattr(sok, name))


def test_everything_in_all_is_there():
    for name in sok.__all__:
        assert hasattr(sok, name), name


@pytest.mark.parametrize(("module", "name", "short"), FULL_PATHS)
def test_full_path_is_the_short_name(module, name, short):
    assert getattr(importlib.import_module(f"{_ROOT}.{module}"), name) is resolve(short)


DISTRIBUTED_EMBEDDINGS_MODULES = [
    "distributed_embeddings",
    "distributed_embeddings.dist_model_parallel",
    "distributed_embeddings.python.layers.dist_model_parallel",
    "distributed_embeddings.python.layers.embedding",
]
# Dotted paths of distributed-embeddings, which its programs may use after `import distributed_embeddings`.
DISTRIBUTED_EMBEDDINGS = [
    "Embedding",
    "dist_model_parallel.DistributedEmbedding",
    "python.layers.dist_model_parallel.DistributedEmbedding",
    "python.layers.dist_model_parallel.DistributedGradientTape",
    "python.layers.dist_model_parallel.broadcast_variables",
    "python.layers.embedding.Embedding",
]


def test_dotted_access_without_imports():
    """In a process of its own: once a module is imported, its package has it as an attribute."""
    paths = [f"{module}.{name}" for module, name, _ in FULL_PATHS]
    program = (
        "import functools\n"
        "import sparse_operation_kit as sok\n"
        f"for path in {paths}:\n"
        "    functools.reduce(getattr, path.split('.'), sok)\n"
        "assert sok.core.initialize.Init is sok.Init\n"
        "assert sok.saver.Saver.Saver is sok.Saver\n"
        "import distributed_embeddings\n"
        f"for path in {DISTRIBUTED_EMBEDDINGS}:\n"
        "    functools.reduce(getattr, path.split('.'), distributed_embeddings)\n"
    )
    run = forked.run_code(program, timeout=120)
    assert run.returncode == 0, run.stderr[-2000:]


def arguments(target):
    """The arguments of a function, or of a class, as they would stand in a definition without types."""
    # A TensorFlow metaclass hides the arguments of variables' constructors.
    target = target.__init__ if inspect.isclass(target) else target
    found, stars = [], {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
    for one in inspect.signature(target).parameters.values():
        if one.kind is one.KEYWORD_ONLY and "*" not in found:
            found.append("*")
        if one.name != "self":
            default = "" if one.default is one.empty else f"={one.default!r}"
            found.append(f"{stars.get(one.kind, '')}{one.name}{default}")
    return ", ".join(found)


@pytest.mark.parametrize("name", sorted(ARGUMENTS))
def test_argument_names_orders_and_defaults(name):
    assert arguments(resolve(name)) == ARGUMENTS[name]


def test_every_name_of_distributed_embeddings_is_there_with_its_arguments():
    names = [name.split(".")[1] for name in ARGUMENTS if name.startswith("dist_model_parallel.")]
    assert set(names) == set(dmp.__all__)
    for path in DISTRIBUTED_EMBEDDINGS_MODULES:
        module = importlib.import_module(path)
        for name in names:
            assert getattr(module, name) is getattr(dmp, name) and inspect.getdoc(getattr(dmp, name))


def test_version_is_a_version():
    assert re.fullmatch(r"\d+\.\d+\.\d+([.+-]?\w+)*", sok.__version__)


def test_graph_keys_are_strings():
    names = [name for name in vars(sok.GraphKeys) if not name.startswith("_")]
    assert names and all(isinstance(getattr(sok.GraphKeys, name), str) for name in names)


def test_sok_tf_has_tensorflows_functions():
    assert sok.tf.unique is tf.unique
    assert sok.tf.unsorted_segment_sum is tf.math.unsorted_segment_sum
    assert sok.kit_lib.in_tensorflow2() is (int(tf.__version__.split(".")[0]) == 2)


def test_the_layer_for_strategies_says_what_to_use():
    with pytest.raises(RuntimeError, match="All2AllDenseEmbedding"):
        resolve("embeddings.tf_distributed_embedding.TFDistributedEmbedding")(40, 4)


def test_optimizers_are_classes_of_tensorflow():
    assert issubclass(resolve("optimizers.Adam"), tf.compat.v1.train.Optimizer)
    assert issubclass(resolve("tf.keras.optimizers.LazyAdamOptimizer"), tf.compat.v1.train.Optimizer)


def test_embedding_variable_is_a_variable():
    assert issubclass(sok.EmbeddingVariable, tf.Variable)


@pytest.mark.skipif(not compat.HAS_KERAS_2, reason="Keras 3 has no graphs with sessions")
@pytest.mark.parametrize("layer", [sok.DistributedEmbedding, sok.All2AllDenseEmbedding])
def test_layers_are_keras_layers(layer):
    assert issubclass(layer, tf.keras.layers.Layer)
