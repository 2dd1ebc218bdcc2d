"""The list of what the library changes in TensorFlow for its own tables.

A dialect adds its list (`replacements.add_entries`). An entry says what is changed and why. The module that
implements an entry registers it with `replacements.implements`. `replacements.install` and `uninstall` treat
all entries of a part. docs/tensorflow-changes.md shows all lists.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import importlib
import sys
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from sparse_operation_kit import compat
from sparse_operation_kit.compat.namespaces import attribute, namespaces


class Part(enum.Enum):
    """Entries that are installed together. A dialect has parts of its own."""

    GRADIENT_TAPES = "gradient tapes"
    OPTIMIZERS = "optimizers"
    SAVERS = "savers"
    FEATURE_COLUMNS = "feature columns"
    NORMS = "norms and dense forms of gradients"
    VARIABLES = "functions of variables"


# What installs the entries of a part, and when.
INSTALLED_BY: dict[enum.Enum, str] = {
    Part.GRADIENT_TAPES: "every `EmbeddingVariable`, when it is made",
    Part.OPTIMIZERS: (
        "every `EmbeddingVariable`, when it is made; a `DistributedEmbedding`, when its variables are made; "
        "`sok.OptimizerScope`, when it is entered; and by collective training"
    ),
    Part.SAVERS: "every `EmbeddingVariable`, when it is made",
    Part.FEATURE_COLUMNS: (
        "`categorical_column_with_embedding` and `group_embedding_column_scope`, when they are called"
    ),
    Part.NORMS: (
        "every `EmbeddingVariable`, when it is made, and, when they combine gradients of several ranks, by "
        "`DistributedOptimizer` and `DistributedGradientTape` of `dist_model_parallel`"
    ),
    Part.VARIABLES: "every `EmbeddingVariable`, when it is made",
}
# The parts that every embedding variable needs.
OF_EMBEDDING_VARIABLES = (Part.GRADIENT_TAPES, Part.OPTIMIZERS, Part.NORMS, Part.SAVERS, Part.VARIABLES)


class How(enum.Enum):
    """How an entry changes TensorFlow."""

    WRAPPED = "wrapped"  # the function gets a wrapper, which may call it
    DISPATCHED = "dispatched"  # TensorFlow calls our function for some types of arguments
    CONVERTED = "converted"  # TensorFlow asks our function first for the tensor of an object of the class
    ADDED = "added"  # TensorFlow gets a name that it does not have
    ADDED_MODULE = "added module"  # a module of that name can be imported
    ADDED_FINDERS = "added finders"  # Python asks one for each module, the other for what nothing else finds
    ERRORS = "errors"  # a module's errors for names that it does not have


# The oldest TensorFlow version, (major, minor), that the library supports.
OLDEST = (1, 15)
# The first version without Estimator.
WITHOUT_ESTIMATOR = (2, 16)


@dataclasses.dataclass(frozen=True)
class Replacement:
    """One entry of the table.

    Attributes:
      name: the dotted name of what is changed; unique.
      reason: why TensorFlow's own behavior does not work.
      part: the part that it is installed with.
      how: how it is changed.
      since: the first TensorFlow version, (major, minor), that needs the entry.
      before: the first later version that does not need it; None if all later versions need it.
      find_owners: returns the classes or modules whose attribute, the last part of the name, is changed.
        None: the rest of the name is the only owner.
    """

    name: str
    reason: str
    part: enum.Enum
    how: How = How.WRAPPED
    since: tuple[int, int] = OLDEST
    before: tuple[int, int] | None = None
    find_owners: Callable[[], Sequence[Any]] | None = None

    @property
    def attribute(self) -> str:
        """The name of what is changed, within its owner."""
        return self.name if self.how == How.ADDED_MODULE else self.name.rpartition(".")[2]

    def owners(self) -> Sequence[Any]:
        """Returns the classes or modules whose attribute is changed; the list may be empty.

        Raises:
          AttributeError: The entry has no `find_owners`, and TensorFlow has no owner of that name.
        """
        if self.how == How.ADDED_MODULE:
            return [None]
        if self.find_owners is not None:
            return self.find_owners()
        return [find_owner(self.name.rpartition(".")[0])]

    def is_needed(self, version: tuple[int, int]) -> bool:
        """Returns whether the TensorFlow version (major, minor) needs the entry."""
        return self.since <= version and (self.before is None or version < self.before)


def find_owner(name: str) -> Any:
    """Returns the class or module with a dotted name that begins with `tf` or with a module's name."""
    parts = name.split(".")
    if parts[0] == "tf":
        return functools.reduce(getattr, parts[1:], tf)
    # Finds the longest prefix that is a module: `tensorflow.python` is not an attribute of `tensorflow`.
    for end in range(len(parts), 1, -1):
        try:
            found = importlib.import_module(".".join(parts[:end]))
        except ModuleNotFoundError:
            continue
        return functools.reduce(getattr, parts[end:], found)
    raise AttributeError(f"This TensorFlow has no {name}")


def _legacy_keras_optimizers() -> list[type]:
    return [module.Optimizer for _, module in compat.legacy_keras_optimizers()]


def _estimators() -> list[type]:
    """Returns the class of Estimators, which TensorFlow imports when a program uses it."""
    module = sys.modules.get("tensorflow_estimator.python.estimator.estimator")
    return [] if module is None else [module.Estimator]


def _evaluators() -> list[type]:
    """Returns the class that runs exporters in `train_and_evaluate`; see `_estimators`."""
    module = sys.modules.get("tensorflow_estimator.python.estimator.training")
    return [] if module is None else [module._TrainingExecutor._Evaluator]


_V1_OPTIMIZER = "tf.compat.v1.train.Optimizer"
_LEGACY_OPTIMIZER = "tf.keras.optimizers.legacy.Optimizer"
_SAVER = "tensorflow.python.training.saver.Saver"
_SAVER_BUILDER = "tensorflow.python.training.saver.BaseSaverBuilder"
_META_GRAPH = "tensorflow.python.framework.meta_graph"
_SAVER_HOOK = "tensorflow.python.training.basic_session_run_hooks.CheckpointSaverHook"
_CHECKPOINTS = "tensorflow.python.training.checkpoint_utils"
_WARM_START = "tensorflow.python.training.warm_starting_util"
_COLUMNS_V1 = "tensorflow.python.feature_column.feature_column"
_COLUMNS_V2 = "tensorflow.python.feature_column.feature_column_v2"
_EMBEDDING_OPS = "tensorflow.python.ops.embedding_ops"
_VARIABLES = "tensorflow.python.ops"

_NOT_THE_ROWS = "TensorFlow's checkpoints store whole tensors, and a table is not a tensor."
_HAS_ITS_OWN_UPDATE = (
    "A table keeps its slots in its rows, and has its own update op. Variables of a `DistributedEmbedding` "
    "and their slots have their own update op, too."
)
_EXACT_NORM = "The norm of a table's gradient is that of one sum per row, and counts the rows of all ranks."
_MAKES_COLUMNS = "Columns over unbounded keys have embedding variables and belong to groups."
_WEIGHTS_IN_TABLES = "The weights of unbounded keys are the rows of an embedding variable."


def with_function(path: str, *modules: str) -> Callable[[], Sequence[Any]]:
    """Returns a function that finds the namespaces and modules that have a function."""

    def find() -> Sequence[Any]:
        namespace, _, name = path.rpartition(".")
        owners = [*namespaces(namespace), *(find_owner(module) for module in modules)]
        found = [owner for owner in owners if attribute(owner, name, None) is not None]
        return list({id(owner): owner for owner in found}.values())

    return find


_of_tapes, _of_optimizers, _of_savers, _of_columns, _of_norms, _of_variables = (
    functools.partial(Replacement, part=part) for part in Part
)

TABLE: tuple[Replacement, ...] = (
    _of_tapes(
        "tf.GradientTape.jacobian",
        "A Jacobian with respect to a table would be dense; the error says what to do.",
    ),
    _of_tapes(
        "tf.recompute_grad",
        "It reads the variables of the function whole. Lookups of tables are made once, and not recomputed.",
        find_owners=with_function("recompute_grad", f"{_VARIABLES}.custom_gradient"),
    ),
    _of_optimizers(f"{_V1_OPTIMIZER}.apply_gradients", _HAS_ITS_OWN_UPDATE),
    _of_optimizers(
        "tf.compat.v1.train.SyncReplicasOptimizer.apply_gradients",
        "It averages gradients by row number, which may change between steps; the error says what to do.",
    ),
    _of_optimizers(
        f"{_LEGACY_OPTIMIZER}.apply_gradients", _HAS_ITS_OWN_UPDATE, find_owners=_legacy_keras_optimizers
    ),
    _of_optimizers(
        f"{_LEGACY_OPTIMIZER}.get_slot",
        "There is no variable for a table's slot: None instead of a KeyError.",
        find_owners=_legacy_keras_optimizers,
    ),
    _of_optimizers(
        "tf.keras.optimizers.Optimizer.apply_gradients",
        "Keras' newer optimizers cannot train tables; the error says which can.",
        find_owners=compat.other_keras_optimizers,
    ),
    _of_savers(
        f"{_SAVER_BUILDER}._build_internal",
        "If a Saver gets a table under another name, the table is saved under that name.",
    ),
    _of_savers(
        f"{_SAVER_BUILDER}._GroupByDevices",
        "It reads the device of what is saved, and a table is not a tensor.",
        before=(2, 0),
    ),
    _of_savers(f"{_SAVER_BUILDER}._AddSaveOps", _NOT_THE_ROWS),
    _of_savers(f"{_SAVER_BUILDER}._AddShardedSaveOps", _NOT_THE_ROWS),
    _of_savers(f"{_SAVER_BUILDER}._AddRestoreOps", _NOT_THE_ROWS),
    _of_savers(
        f"{_SAVER_BUILDER}._AddShardedRestoreOps",
        "All tables are checked before anything is assigned on any device.",
    ),
    _of_savers(f"{_SAVER}.save", "All ranks save together, and return or raise together."),
    _of_savers(f"{_SAVER}.restore", "An error for a damaged table names the checkpoint."),
    _of_savers(
        f"{_SAVER}._MaybeDeleteOldCheckpoints",
        "`max_to_keep` must keep what another process saved under the same prefix.",
    ),
    _of_savers(
        f"{_META_GRAPH}.create_meta_graph_def",
        "A MetaGraph with a `collection_list` has tables in those collections, as other variables.",
    ),
    _of_savers(
        f"{_META_GRAPH}._node_def",
        "A table whose scope is exported leaves `sok.Init` and the scope's name behind.",
    ),
    _of_savers(
        f"{_SAVER_HOOK}.begin",
        "The ranks' clocks differ, so rank 0 decides when all save. This adds the ops for it.",
    ),
    _of_savers(
        f"{_SAVER_HOOK}.after_create_session", "See `begin`: gives the hook a timer that asks rank 0."
    ),
    _of_savers(f"{_SAVER_HOOK}.after_run", "See `begin`: asks that timer."),
    _of_savers(
        f"{_CHECKPOINTS}._init_from_checkpoint",
        "`init_from_checkpoint` and warm starts load tables too. " + _NOT_THE_ROWS,
    ),
    _of_savers(
        f"{_WARM_START}._infer_var_name",
        "A warm start finds a table under the name that checkpoints have for it.",
    ),
    _of_savers(
        f"{_WARM_START}._warm_start_var_with_vocab",
        "A table has keys and not a vocabulary's lines; the error says what to do.",
    ),
    _of_savers(
        "tf.compat.v1.estimator.Estimator._call_model_fn_eval",
        "A task of a cluster with servers evaluates with tables of its own process.",
        before=WITHOUT_ESTIMATOR,
        find_owners=_estimators,
    ),
    _of_savers(
        "tf.compat.v1.estimator.Estimator._export_all_saved_models",
        "Of ranks with tables, rank 0 exports the model with all rows.",
        before=WITHOUT_ESTIMATOR,
        find_owners=_estimators,
    ),
    _of_savers(
        "tensorflow_estimator.python.estimator.training._TrainingExecutor._Evaluator.evaluate_and_export",
        "In train_and_evaluate rank 0's results decide whether an exporter exports.",
        before=WITHOUT_ESTIMATOR,
        find_owners=_evaluators,
    ),
    _of_columns(f"{_COLUMNS_V2}.EmbeddingColumn.__new__", _MAKES_COLUMNS),
    _of_columns(f"{_COLUMNS_V2}.SharedEmbeddingColumn.__new__", _MAKES_COLUMNS),
    _of_columns(f"{_COLUMNS_V1}._SharedEmbeddingColumn.__new__", _MAKES_COLUMNS),
    _of_columns(
        f"{_COLUMNS_V2}.IndicatorColumn.__new__",
        "An indicator needs a number of buckets, which unbounded keys do not have; the error says so.",
    ),
    _of_columns(f"{_COLUMNS_V1}._internal_input_layer", "The columns of a group are looked up in one op."),
    _of_columns(
        "tf.keras.layers.DenseFeatures.call",
        "The columns of a group are looked up in one op.",
        find_owners=compat.dense_features_layers,
    ),
    _of_columns(
        f"{_COLUMNS_V1}._LinearModel.call", "The weights of all columns with tables are read in one lookup."
    ),
    _of_columns(f"{_COLUMNS_V1}._create_categorical_column_weighted_sum", _WEIGHTS_IN_TABLES),
    _of_columns(f"{_COLUMNS_V1}._FCLinearWrapper.build", _WEIGHTS_IN_TABLES),
    _of_columns(
        f"{_COLUMNS_V2}._StateManagerImpl.create_variable",
        "Estimator's own linear models read all weights, which a table does not allow; the error says so.",
        before=WITHOUT_ESTIMATOR,
    ),
    _of_norms("tf.linalg.global_norm", _EXACT_NORM, how=How.DISPATCHED),
    _of_norms("tf.clip_by_norm", _EXACT_NORM, how=How.DISPATCHED),
    _of_norms("tf.clip_by_value", "It clips the sum of each row of a table's gradient.", how=How.DISPATCHED),
    _of_norms(
        "tf.IndexedSlices",
        "A table's gradient becomes a dense tensor if the table has a capacity; else the error names it.",
        how=How.CONVERTED,
    ),
    _of_variables(
        f"{_EMBEDDING_OPS}._embedding_lookup_and_transform",
        "A table is no part of a partitioned variable; the error for a list of tables says what to do.",
    ),
    _of_variables(
        "tf.compat.v1.count_up_to",
        "The error names the table.",
        find_owners=with_function("count_up_to", f"{_VARIABLES}.state_ops"),
    ),
    _of_variables(
        "tf.train.ExponentialMovingAverage.average_name",
        "A table has no average, so `variables_to_restore` restores it under its own name.",
    ),
    _of_variables(
        "tf.compat.v1.graph_util.convert_variables_to_constants",
        "Tables become constants too, and lookups TensorFlow's own ops.",
        find_owners=with_function(
            "graph_util.convert_variables_to_constants",
            "tensorflow.python.framework.convert_to_constants",
            "tensorflow.python.framework.graph_util",
        ),
    ),
)
