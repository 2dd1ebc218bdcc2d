"""Adds DeepRec's names to TensorFlow's namespaces, and removes them."""

from __future__ import annotations

import types

from sparse_operation_kit import feature_columns
from sparse_operation_kit.core import get_embedding_variable, replacements, row_policies
from sparse_operation_kit.core.replacement_table import Part
from sparse_operation_kit.deeprec import collective, column_arguments  # noqa: F401
from sparse_operation_kit.lookup import embedding_lookup, multi_dim, safe_lookups
from sparse_operation_kit.optimizers import AdagradDecayOptimizer, AdamAsyncOptimizer, AdamWOptimizer

# The module from which programs import CollectiveStrategy.
STRATEGY_MODULE = "tensorflow.python.distribute.group_embedding_collective_strategy"


def install() -> None:
    """Adds DeepRec's names to `tf` and `tf.compat.v1` in the whole process. May be called repeatedly.

    Names that TensorFlow has already are not replaced. Not thread-safe, like building graphs.
    """
    replacements.install(Part.DEEPREC_NAMES)


def uninstall() -> None:
    """Removes the names that `install` has added, and undoes `enable_distributed_strategy`."""
    collective.disable_distributed_strategy()
    replacements.uninstall(Part.DEEPREC_NAMES)


def is_installed() -> bool:
    """Returns whether DeepRec's names are installed."""
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
    "nn.embedding_lookup_sparse_multi_dim": multi_dim.embedding_lookup_sparse_multi_dim,
    "nn.fused_embedding_lookup_sparse": safe_lookups.fused_embedding_lookup_sparse,
    "nn.fused_safe_embedding_lookup_sparse": safe_lookups.fused_safe_embedding_lookup_sparse,
    "nn.group_embedding_lookup": embedding_lookup.group_embedding_lookup,
    "nn.group_embedding_lookup_sparse": embedding_lookup.group_embedding_lookup_sparse,
    "nn.safe_embedding_lookup_multi_dim": multi_dim.safe_embedding_lookup_multi_dim,
    "train.AdagradDecayOptimizer": AdagradDecayOptimizer,
    "train.AdamAsyncOptimizer": AdamAsyncOptimizer,
    "train.AdamWOptimizer": AdamWOptimizer,
}.items():
    replacements.implements(f"tf.{_name}")(_value)
replacements.implements(STRATEGY_MODULE)(_strategy_module())
