"""DeepRec's collective training: CollectiveStrategy and enable_distributed_strategy.

All ranks begin with the same ordinary variables, and train them alike. While `Part.COLLECTIVE_TRAINING` is
installed,

- the initializers of ordinary variables that are created broadcast rank 0's values. Every rank has to run the
  initializers of the same variables, as global_variables_initializer does. Local variables and variables of
  strings are not broadcast;
- `compute_gradients`, and so `minimize`, of every optimizer of tf.compat.v1.train average gradients over the
  ranks. A `sok.DistributedOptimizer` combines its gradients by itself, and they are not averaged here.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import logging
import os
import random
import shutil
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from sparse_operation_kit.changes import replacements
from sparse_operation_kit.changes.replacement_table import Part as OwnPart
from sparse_operation_kit.compat.internals import trackable
from sparse_operation_kit.deeprec import collective_estimator
from sparse_operation_kit.deeprec.replacement_entries import Part
from sparse_operation_kit.lookup.group import reading_only
from sparse_operation_kit.optimizers.combination import average, is_by_hand
from sparse_operation_kit.ranks.communicator import alone, communicator
from sparse_operation_kit.serving.table_models import own_its_tables

_logger = logging.getLogger(__name__)

_STRATEGIES = ("collective", "localized", "parameter_server")
# Whether collective training is enabled for the whole program, and the number of open scopes.
_enabled = False
_scopes = 0


def enable_distributed_strategy(strategy: str = "collective") -> None:
    """Makes everything that the program builds after this call train on all ranks. May be called repeatedly.

    That is the strategy "collective". It initializes Horovod, if that is installed. With several ranks,

    - optimizers of `tf.compat.v1.train` average gradients in `compute_gradients` and `minimize`. If the loss
      is the mean over each rank's part of the batch, and all parts have the same size, training is the same
      as in one process on the whole batch, with the same learning rate;
    - `tf.clip_by_global_norm`, `tf.linalg.global_norm` and `tf.clip_by_norm` count the rows of all ranks;
    - initializers of ordinary variables assign rank 0's values.

    Embedding variables of `get_embedding_variable` and of feature columns need no `sok.Init`, with or without
    this function.

    Call it before variables and optimizers are created. With one rank it only initializes Horovod.

    Args:
      strategy: "collective"; or "localized" or "parameter_server", which do nothing: tables are on parameter
        servers, and groups are looked up there, if the program places variables there.

    Raises:
      ValueError: The strategy is none of these.
      RuntimeError: A launcher started several processes, and they cannot find each other.
    """
    global _enabled
    if strategy not in _STRATEGIES:
        known = ", ".join(repr(one) for one in _STRATEGIES)
        raise ValueError(f"enable_distributed_strategy: strategy must be one of {known}, not {strategy!r}")
    if strategy == "collective":
        _initialize_horovod()
        _enabled = True
        _update_replacements()


def enable_group_embedding(fusion_type: str = "collective") -> None:
    """`enable_distributed_strategy` under the name that it had in earlier releases of DeepRec."""
    enable_distributed_strategy(fusion_type)


def disable_distributed_strategy() -> None:
    """Undoes `enable_distributed_strategy` for later graph building. Horovod stays initialized."""
    global _enabled
    _enabled = False
    _update_replacements()


class _Number(int):
    """An int that returns itself when called: programs use both `world_size` and `world_size()`."""

    def __call__(self) -> int:
        return int(self)


class CollectiveStrategy:
    """DeepRec's interface to synchronous training: the effect of `enable_distributed_strategy`, in scopes.

    ::

        strategy = CollectiveStrategy()
        with strategy.scope(), tf.Graph().as_default():
            with strategy.embedding_scope():
                table = get_embedding_variable("table", 16)
    """

    def __init__(self) -> None:
        _initialize_horovod()

    @contextlib.contextmanager
    def scope(self, *args: Any, **kwargs: Any) -> Iterator[CollectiveStrategy]:
        """Returns a context in which models are built for all ranks; see `enable_distributed_strategy`.

        Args:
          *args: Not used; logged.
          **kwargs: `seed`, if given, seeds Python's, NumPy's and the default graph's random numbers. Other
            arguments are not used, but logged.
        """
        global _scopes
        seed = kwargs.pop("seed", None)
        if seed is not None:
            random.seed(seed)
            np.random.seed(seed)
            tf.compat.v1.set_random_seed(seed)
        if args or kwargs:
            _logger.warning("CollectiveStrategy: a scope does not use the arguments %s %s", args, kwargs)
        _scopes += 1
        _update_replacements()
        try:
            yield self
        finally:
            _scopes -= 1
            _update_replacements()

    def embedding_scope(self, **kwargs: Any) -> contextlib.AbstractContextManager:
        """Same as `scope`. Embedding variables are sharded over the ranks inside and outside the scope.

        Ordinary variables are not sharded, whatever their partitioner.
        """
        return self.scope(**kwargs)

    @property
    def world_size(self) -> int:
        """The number of ranks; `world_size()` works too."""
        return _Number(communicator().size)

    @property
    def rank(self) -> int:
        """The number of this rank, starting at 0; `rank()` works too."""
        return _Number(communicator().rank)

    def estimator(self, model_fn: Callable, **kwargs: Any) -> Any:
        """Creates a `tf.compat.v1.estimator.Estimator` whose models are built in `scope`.

        It also has the method
        `train_and_evaluate(train_spec, eval_spec, eval_every_n_iter=None, eval_history=None)`.

        Args:
          model_fn: The `model_fn` of the Estimator.
          **kwargs: The other arguments of the Estimator. DeepRec's `train_drop_remainder`,
            `eval_drop_remainder` and `predict_drop_remainder` are ignored.

        Raises:
          RuntimeError: This TensorFlow version has no Estimator.
        """
        return collective_estimator.make_estimator(self, model_fn, **kwargs)

    def export_saved_model(
        self,
        savedmodel_dir: str,
        checkpoint_dir: str | None = None,
        signature_def_fn: Callable | None = None,
        assets_extra: dict[str, str] | None = None,
        as_text: bool = False,
        clear_devices: bool = True,
        strip_default_attrs: bool = True,
    ) -> str | None:
        """Exports a checkpoint as a SavedModel that one process can serve.

        Rank 0 writes the model, for which all tables must fit into its memory; other ranks return at once.
        Lookups of the model insert nothing. A process that loads the model must import this library; it needs
        neither Horovod nor `sok.Init`.

        Args:
          savedmodel_dir: The parent directory of the model's folder, which is named by the time.
          checkpoint_dir: A checkpoint's prefix, or a directory, whose latest checkpoint is used.
          signature_def_fn: Builds the model in the default graph, on placeholders, and returns the
            `SignatureDef` to serve, or a dict of several by name.
          assets_extra: Maps paths in the folder `assets.extra` to the files that are copied there.
          as_text: Whether the model is written as text.
          clear_devices: Whether to remove the devices of ops.
          strip_default_attrs: Whether to remove attributes that have their default values.

        Returns:
          The model's folder on rank 0, None on other ranks.

        Raises:
          ValueError: `checkpoint_dir` or `signature_def_fn` is missing, or there is no checkpoint.
        """
        if signature_def_fn is None or checkpoint_dir is None:
            raise ValueError("export_saved_model needs a checkpoint_dir and a signature_def_fn")
        prefix = collective_estimator.checked_prefix(checkpoint_dir)
        if communicator().rank != 0:
            return None
        folder = collective_estimator.new_folder(savedmodel_dir)
        with alone(), reading_only(), tf.Graph().as_default() as graph, tf.compat.v1.Session() as session:
            signatures = signature_def_fn()
            if not isinstance(signatures, dict):
                signatures = {tf.saved_model.DEFAULT_SERVING_SIGNATURE_DEF_KEY: signatures}
            own_its_tables(graph)
            saver = tf.compat.v1.train.Saver()
            saver.restore(session, prefix)
            builder = tf.compat.v1.saved_model.Builder(folder)
            builder.add_meta_graph_and_variables(
                session,
                [tf.saved_model.SERVING],
                signature_def_map=signatures,
                assets_collection=graph.get_collection(tf.compat.v1.GraphKeys.ASSET_FILEPATHS),
                clear_devices=clear_devices,
                strip_default_attrs=strip_default_attrs,
                main_op=tf.compat.v1.train.Scaffold.default_local_init_op(),
                saver=saver,
            )
            builder.save(as_text)
        for path, source in (assets_extra or {}).items():
            target = os.path.join(folder, "assets.extra", path)
            os.makedirs(os.path.dirname(target), exist_ok=True)
            shutil.copyfile(source, target)
        return folder


def _initialize_horovod() -> None:
    """Initializes Horovod if it is installed, so that programs can get ranks from it."""
    if importlib.util.find_spec("horovod") is not None:
        import horovod.tensorflow as hvd

        if not hvd.is_initialized():
            hvd.init()
    communicator()


def _update_replacements() -> None:
    if _enabled or _scopes:
        # With this part, optimizers refuse gradients that were not averaged, for all variables.
        replacements.install(OwnPart.OPTIMIZERS)
        replacements.install(Part.COLLECTIVE_TRAINING, user=__name__)
    else:
        replacements.uninstall(Part.COLLECTIVE_TRAINING, user=__name__)


_VARIABLES = "tensorflow.python.ops"


@replacements.wraps(
    f"{_VARIABLES}.resource_variable_ops.ResourceVariable._init_from_args",
    f"{_VARIABLES}.ref_variable.RefVariable._init_from_args",
)
def _with_broadcast(original, self, initial_value=None, *args, **kwargs):
    if initial_value is not None and _is_shared(kwargs.get("collections")):
        initial_value = functools.partial(_of_rank_0, initial_value, kwargs.get("dtype"))
    return original(self, initial_value, *args, **kwargs)


def _is_shared(collections: Any) -> bool:
    keys = tf.compat.v1.GraphKeys
    local = collections is not None and keys.LOCAL_VARIABLES in collections
    return not local and not tf.executing_eagerly() and communicator().size > 1


def _of_rank_0(initial_value: Any, dtype: tf.DType | None) -> Any:
    """Returns rank 0's value of `initial_value`, which is a value or a function that returns one."""
    value = initial_value() if callable(initial_value) else initial_value
    if isinstance(value, trackable.CheckpointInitialValue):
        return value
    value = tf.convert_to_tensor(value, dtype=dtype)
    if value.dtype in (tf.string, tf.variant, tf.resource):
        return value
    # TensorFlow calls this in a name scope with the variable's unique name.
    scope = tf.compat.v1.get_default_graph().get_name_scope()
    shared = communicator().broadcast(value, 0, f"initial_value.{scope}")
    shared.set_shape(value.shape)
    return shared


@replacements.wraps("tf.compat.v1.train.Optimizer.compute_gradients")
def _with_averages(original, self, *args, **kwargs):
    pairs = original(self, *args, **kwargs)
    if is_by_hand() or communicator().size == 1 or tf.executing_eagerly():
        return pairs
    return average(pairs, self.get_name())
