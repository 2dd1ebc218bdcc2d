"""Puts DeepRec's names into TensorFlow's namespaces, and takes them out again."""

from __future__ import annotations

import types

from sparse_operation_kit import feature_columns
from sparse_operation_kit.core import get_embedding_variable, replacements, row_policies
from sparse_operation_kit.core.replacement_table import Part
from sparse_operation_kit.deeprec import collective
from sparse_operation_kit.lookup import embedding_lookup
from sparse_operation_kit.optimizers import AdagradDecayOptimizer, AdamAsyncOptimizer, AdamWOptimizer

# The module from which programs import CollectiveStrategy.
STRATEGY_MODULE = "tensorflow.python.distribute.group_embedding_collective_strategy"


def install() -> None:
    """Gives `tf` and `tf.compat.v1` DeepRec's names, in the whole process. Harmless when done already.

    Names that TensorFlow has itself stay what they are. Not thread-safe, as building graphs is not.
    """
    replacements.install(Part.DEEPREC_NAMES)


def uninstall() -> None:
    """Takes away what `install` has added: TensorFlow's namespaces are as they were before.

    It ends what `enable_distributed_strategy` has begun, too.
    """
    collective.disable_distributed_strategy()
    replacements.uninstall(Part.DEEPREC_NAMES)


def is_installed() -> bool:
    """Whether TensorFlow's namespaces have DeepRec's names now."""
    return replacements.is_installed(Part.DEEPREC_NAMES)


def _strategy_module() -> types.ModuleType:
    module = types.ModuleType(STRATEGY_MODULE, collective.__doc__)
    vars(module)["CollectiveStrategy"] = collective.CollectiveStrategy
    return module


for _name, _value in {
    "CBFFilter": row_policies.CBFFilter,
    "CounterFilter": row_policies.CounterFilter,
    "EmbeddingVariableOption": get_embedding_variable.EmbeddingVariableOption,
    "GlobalStepEvict": row_policies.GlobalStepEvict,
    "InitializerOption": row_policies.InitializerOption,
    "L2WeightEvict": row_policies.L2WeightEvict,
    "get_embedding_variable": get_embedding_variable.get_embedding_variable,
    "config.experimental.enable_distributed_strategy": collective.enable_distributed_strategy,
    "feature_column.categorical_column_with_embedding": feature_columns.categorical_column_with_embedding,
    "feature_column.group_embedding_column_scope": feature_columns.group_embedding_column_scope,
    "nn.group_embedding_lookup": embedding_lookup.group_embedding_lookup,
    "nn.group_embedding_lookup_sparse": embedding_lookup.group_embedding_lookup_sparse,
    "train.AdagradDecayOptimizer": AdagradDecayOptimizer,
    "train.AdamAsyncOptimizer": AdamAsyncOptimizer,
    "train.AdamWOptimizer": AdamWOptimizer,
}.items():
    replacements.implements(f"tf.{_name}")(_value)
replacements.implements(STRATEGY_MODULE)(_strategy_module())
