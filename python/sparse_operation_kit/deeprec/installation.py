"""Puts DeepRec's names into TensorFlow's namespaces, and takes them out again."""

from __future__ import annotations

import functools
import logging
import sys
import types
from typing import Any

import tensorflow as tf

from sparse_operation_kit import feature_columns
from sparse_operation_kit.core import get_embedding_variable, row_policies
from sparse_operation_kit.deeprec import collective
from sparse_operation_kit.lookup import embedding_lookup
from sparse_operation_kit.optimizers import AdagradDecayOptimizer, AdamAsyncOptimizer, AdamWOptimizer

_logger = logging.getLogger(__name__)

# By namespace, within `tf` and within `tf.compat.v1` alike, what DeepRec adds to it.
NAMES: dict[str, dict[str, Any]] = {
    "": {
        "CBFFilter": row_policies.CBFFilter,
        "CounterFilter": row_policies.CounterFilter,
        "EmbeddingVariableOption": get_embedding_variable.EmbeddingVariableOption,
        "GlobalStepEvict": row_policies.GlobalStepEvict,
        "InitializerOption": row_policies.InitializerOption,
        "L2WeightEvict": row_policies.L2WeightEvict,
        "get_embedding_variable": get_embedding_variable.get_embedding_variable,
    },
    "config.experimental": {
        "enable_distributed_strategy": collective.enable_distributed_strategy,
    },
    "feature_column": {
        "categorical_column_with_embedding": feature_columns.categorical_column_with_embedding,
        "group_embedding_column_scope": feature_columns.group_embedding_column_scope,
    },
    "nn": {
        "group_embedding_lookup": embedding_lookup.group_embedding_lookup,
        "group_embedding_lookup_sparse": embedding_lookup.group_embedding_lookup_sparse,
    },
    "train": {
        "AdagradDecayOptimizer": AdagradDecayOptimizer,
        "AdamAsyncOptimizer": AdamAsyncOptimizer,
        "AdamWOptimizer": AdamWOptimizer,
    },
}

# The module from which programs import the class.
STRATEGY_MODULE = "tensorflow.python.distribute.group_embedding_collective_strategy"

# (namespace, name) that `install` has added.
_added: list[tuple[Any, str]] = []


def install() -> None:
    """Gives `tf` and `tf.compat.v1` DeepRec's names, in the whole process. Harmless when done already.

    Names that TensorFlow has itself stay what they are. Not thread-safe, as building graphs is not.
    """
    for path, names in NAMES.items():
        for root in (tf, tf.compat.v1):
            namespace = functools.reduce(getattr, path.split("."), root) if path else root
            for name, value in names.items():
                _add(namespace, name, value)
    if STRATEGY_MODULE not in sys.modules:
        module = types.ModuleType(STRATEGY_MODULE, collective.__doc__)
        module.CollectiveStrategy = collective.CollectiveStrategy
        sys.modules[STRATEGY_MODULE] = module


def uninstall() -> None:
    """Takes away what `install` has added: TensorFlow's namespaces are as they were before.

    It ends what `enable_distributed_strategy` has begun, too.
    """
    collective.disable_distributed_strategy()
    module = sys.modules.get(STRATEGY_MODULE)
    if getattr(module, "CollectiveStrategy", None) is collective.CollectiveStrategy:
        del sys.modules[STRATEGY_MODULE]
    while _added:
        namespace, name = _added.pop()
        if hasattr(namespace, name):
            delattr(namespace, name)


def is_installed() -> bool:
    """Whether TensorFlow's namespaces have DeepRec's names now."""
    return bool(_added)


def _add(namespace: types.ModuleType, name: str, value: Any) -> None:
    if hasattr(namespace, name):
        if getattr(namespace, name) is not value:
            _logger.warning("TensorFlow has %s.%s itself; it stays", namespace.__name__, name)
        return
    setattr(namespace, name, value)
    _added.append((namespace, name))
