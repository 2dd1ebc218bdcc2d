"""The names that users import, at every path, with the arguments that scripts pass."""

import importlib
import inspect
import os
import re
import sys

import pytest
import tensorflow as tf

import forked
import sparse_operation_kit as sok
from sparse_operation_kit import compat

_ROOT = "sparse_operation_kit"
_REQUIRED = inspect.Parameter.empty

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
    "get_embedding",
    "get_embedding_variable",
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
_OF_A_VARIABLE = [
    ("initial_value", None),
    ("trainable", None),
    ("collections", None),
    ("validate_shape", True),
    ("caching_device", None),
    ("name", None),
    ("dtype", None),
    ("variable_def", None),
    ("import_scope", None),
    ("constraint", None),
    ("distribute_strategy", None),
    ("synchronization", None),
    ("aggregation", None),
    ("shape", None),
    ("initializer", None),
]

ARGUMENTS = {
    "group_embedding_lookup_sparse": [
        ("params", _REQUIRED),
        ("sp_ids", _REQUIRED),
        ("combiners", _REQUIRED),
        ("partition_strategy", "mod"),
        ("sp_weights", None),
        ("name", None),
    ],
    "group_embedding_lookup": [
        ("params", _REQUIRED),
        ("ids", _REQUIRED),
        ("partition_strategy", "mod"),
        ("name", None),
    ],
    "DistributedEmbedding": [
        ("combiner", _REQUIRED),
        ("max_vocabulary_size_per_gpu", _REQUIRED),
        ("embedding_vec_size", _REQUIRED),
        ("slot_num", _REQUIRED),
        ("max_nnz", _REQUIRED),
        ("max_feature_num", 1),
        ("use_hashtable", True),
        ("key_dtype", tf.int64),
        ("embedding_initializer", None),
    ],
    "All2AllDenseEmbedding": [
        ("max_vocabulary_size_per_gpu", _REQUIRED),
        ("embedding_vec_size", _REQUIRED),
        ("slot_num", _REQUIRED),
        ("nnz_per_slot", _REQUIRED),
        ("dynamic_input", False),
        ("use_hashtable", True),
        ("key_dtype", tf.int64),
        ("embedding_initializer", None),
    ],
    "EmbeddingVariable": [
        ("name", _REQUIRED),
        ("dim", _REQUIRED),
        ("capacity", None),
        ("key_dtype", tf.int64),
        ("dtype", tf.float32),
        ("initializer", None),
        ("trainable", True),
        ("use_hashtable", True),
        ("on_full", "error"),
        ("admission", None),
        ("eviction", None),
    ],
    "get_embedding_variable": [
        ("name", _REQUIRED),
        ("embedding_dim", _REQUIRED),
        ("key_dtype", tf.int64),
        ("value_dtype", None),
        ("initializer", None),
        ("regularizer", None),
        ("trainable", True),
        ("collections", None),
        ("caching_device", None),
        ("partitioner", None),
        ("validate_shape", True),
        ("custom_getter", None),
        ("constraint", None),
        ("steps_to_live", None),
        ("init_data_source", None),
        ("ev_option", sok.EmbeddingVariableOption()),
    ],
    "EmbeddingVariableOption": [
        ("ht_type", ""),
        ("ht_partition_num", 1000),
        ("evict_option", None),
        ("ckpt", None),
        ("filter_option", None),
        ("storage_option", None),
        ("init_option", sok.InitializerOption()),
    ],
    "BroadcastGlobalVariablesHook": [("root_rank", 0)],
    "DistributedOptimizer": [("optimizer", _REQUIRED)],
    "broadcast_global_variables": [("root_rank", 0)],
    "broadcast_variables": [("variables", _REQUIRED), ("root_rank", 0)],
    "OptimizerScope": [("trainable_variables", _REQUIRED)],
    "Saver": [],
    "Saver.dump_to_file": [("embedding_variable", _REQUIRED), ("filepath", _REQUIRED)],
    "Saver.restore_from_file": [("embedding_variable", _REQUIRED), ("filepath", _REQUIRED)],
    "IncrementalCheckpointHook": [("checkpoint_dir", _REQUIRED)],
    "init_from_checkpoint": [("ckpt_dir_or_file", _REQUIRED), ("assignment_map", _REQUIRED)],
    "Saver.load_embedding_values": [("embedding_variable", _REQUIRED), ("tensors", _REQUIRED)],
    "split_embedding_variable_from_others": [("variables", _REQUIRED)],
    "experiment.init": [("comm_tool", "horovod"), ("use_legacy_optimizer", True)],
    "experiment.lookup_sparse": [
        ("params", _REQUIRED),
        ("sp_ids", _REQUIRED),
        ("sp_weights", None),
        ("combiners", None),
    ],
    "experiment.all2all_dense_embedding": [("param", _REQUIRED), ("indices", _REQUIRED)],
    "experiment.filter_variables": [("vars", _REQUIRED)],
    "experiment.DynamicVariable": [
        ("dimension", _REQUIRED),
        ("initializer", None),
        ("var_type", None),
        ("name", None),
        ("constraint", None),
        ("trainable", True),
        ("key_type", None),
        ("dtype", None),
        ("mode", None),
    ],
    "experiment.DistributedVariable": _OF_A_VARIABLE,
    "experiment.LocalizedVariable": [*_OF_A_VARIABLE, ("global_gpu_id", None), ("target_gpu", None)],
    "experiment.OptimizerWrapper": [("optimizer", _REQUIRED)],
    "experiment.SGD": [("lr", _REQUIRED)],
    "experiment.dump": [("path", _REQUIRED), ("dump_vars", _REQUIRED), ("optimizer", None)],
    "experiment.load": [("path", _REQUIRED), ("load_vars", _REQUIRED), ("optimizer", None)],
    "experiment.assign": [("var", _REQUIRED), ("indices", _REQUIRED), ("values", _REQUIRED)],
    "experiment.export": [("var", _REQUIRED)],
    "embeddings.tf_distributed_embedding.TFDistributedEmbedding": [
        ("vocabulary_size", _REQUIRED),
        ("embedding_vec_size", _REQUIRED),
        ("initializer", "GlorotNormal"),
        ("comm_options", None),
    ],
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
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    run = forked.run_code(program, env=environment, timeout=120)
    assert run.returncode == 0, run.stderr[-2000:]


@pytest.mark.parametrize("name", sorted(ARGUMENTS))
def test_argument_names_orders_and_defaults(name):
    target = resolve(name)
    # A TensorFlow metaclass hides the arguments of variables' constructors.
    target = target.__init__ if inspect.isclass(target) else target
    parameters = inspect.signature(target).parameters.values()
    by_position = [
        (parameter.name, parameter.default)
        for parameter in parameters
        if parameter.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD and parameter.name != "self"
    ]
    assert by_position == ARGUMENTS[name]


@pytest.mark.parametrize("layer", [sok.DistributedEmbedding, sok.All2AllDenseEmbedding])
def test_layers_take_keywords_of_keras_and_are_called_with_training(layer):
    kinds = [parameter.kind for parameter in inspect.signature(layer).parameters.values()]
    assert inspect.Parameter.VAR_KEYWORD in kinds
    call = inspect.signature(layer.call).parameters
    assert list(call)[:3] == ["self", "inputs", "training"]
    assert call["training"].default is True


def test_init_takes_keywords():
    kinds = [parameter.kind for parameter in inspect.signature(sok.Init).parameters.values()]
    assert kinds == [inspect.Parameter.VAR_KEYWORD]


@pytest.mark.parametrize(
    ("name", "keywords"),
    [
        ("Saver.restore_from_file", {"name": None}),
        ("init_from_checkpoint", {"optimizer_state": False}),
        (
            "IncrementalCheckpointHook",
            {"save_secs": None, "save_steps": None, "checkpoint_basename": "model.ckpt", "max_to_keep": 5},
        ),
    ],
)
def test_arguments_by_keyword_only(name, keywords):
    parameters = inspect.signature(resolve(name)).parameters.values()
    found = {one.name: one.default for one in parameters if one.kind is inspect.Parameter.KEYWORD_ONLY}
    assert found == keywords


def test_the_savers_module_and_class_are_reached_by_dots():
    assert resolve("saver.Saver") is sok.Saver
    assert resolve("saver.Saver.Saver") is sok.Saver


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
