"""DeepRec's collective training: CollectiveStrategy, and what switches it on for a whole program."""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from sparse_operation_kit.core import replacements
from sparse_operation_kit.core.communicator import communicator
from sparse_operation_kit.core.replacement_table import Part
from sparse_operation_kit.deeprec import exported_model

_logger = logging.getLogger(__name__)

_STRATEGIES = ("collective", "localized")
# Whether the program has asked for collective training as a whole, and how many scopes it is in.
_enabled = False
_scopes = 0


def enable_distributed_strategy(strategy: str = "collective") -> None:
    """Has all that the program builds from now on train on all ranks. Harmless when done already.

    It initializes Horovod, where that is installed. Then, over several ranks,

    - optimizers of `tf.compat.v1.train` average gradients in `compute_gradients` and `minimize`: with a loss
      that is the mean over each rank's part of the batch, parts of one size train as one process does on the
      whole batch, with the learning rate that the program gives;
    - `tf.clip_by_global_norm`, `tf.linalg.global_norm` and `tf.clip_by_norm` count the rows of all ranks;
    - initializers of ordinary variables assign rank 0's values;
    - embedding variables of `get_embedding_variable` and of feature columns need no `sok.Init`, as ever.

    Call it before variables and optimizers are made. On one rank it changes nothing.

    Args:
      strategy: "collective"; or "localized", which does nothing.

    Raises:
      ValueError: The strategy is another one, such as DeepRec's "parameter_server".
      RuntimeError: The process is one of several that a launcher has started, and they cannot find each
        other.
    """
    global _enabled
    if strategy not in _STRATEGIES:
        known = " or ".join(repr(one) for one in _STRATEGIES)
        raise ValueError(f"enable_distributed_strategy: strategy must be {known}, not {strategy!r}")
    if strategy == "collective":
        _initialize_horovod()
        _enabled = True
        _update_replacements()


def disable_distributed_strategy() -> None:
    """Undoes `enable_distributed_strategy` for what is built from now on. Horovod stays initialized."""
    global _enabled
    _enabled = False
    _update_replacements()


class _Number(int):
    """An int that gives itself when called: programs write both `world_size` and `world_size()`."""

    def __call__(self) -> int:
        return int(self)


class CollectiveStrategy:
    """DeepRec's interface to synchronous training: what `enable_distributed_strategy` does, in scopes.

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
        """Inside it, models are built for all ranks, as `enable_distributed_strategy` says.

        Args:
          *args: Unused.
          **kwargs: `seed`, if given, seeds Python's, NumPy's and the default graph's random numbers. Others
            are unused, and logged.
        """
        global _scopes
        seed = kwargs.pop("seed", None)
        if seed is not None:
            random.seed(seed)
            np.random.seed(seed)
            tf.compat.v1.set_random_seed(seed)
        if args or kwargs:
            _logger.warning("CollectiveStrategy: arguments of a scope that are unused: %s %s", args, kwargs)
        _scopes += 1
        _update_replacements()
        try:
            yield self
        finally:
            _scopes -= 1
            _update_replacements()

    def embedding_scope(self, **kwargs: Any) -> contextlib.AbstractContextManager:
        """As `scope`. Embedding variables are spread over the ranks inside and outside of it.

        Ordinary variables stay whole on every rank, whatever their partitioner.
        """
        return self.scope(**kwargs)

    @property
    def world_size(self) -> int:
        """The number of ranks; `world_size()` is understood."""
        return _Number(communicator().size)

    @property
    def rank(self) -> int:
        """This process's number, from 0; `rank()` is understood."""
        return _Number(communicator().rank)

    def estimator(self, model_fn: Callable, **kwargs: Any) -> Any:
        """Makes a `tf.compat.v1.estimator.Estimator` whose models are built in `scope`.

        It has `train_and_evaluate(train_spec, eval_spec, eval_every_n_iter=None, eval_history=None)` too.

        Args:
          model_fn: The Estimator's.
          **kwargs: The Estimator's. DeepRec's `train_drop_remainder`, `eval_drop_remainder` and
            `predict_drop_remainder` are unused.

        Raises:
          RuntimeError: This TensorFlow has no Estimator.
        """
        from sparse_operation_kit.deeprec.collective_estimator import make_estimator

        return make_estimator(self, model_fn, **kwargs)

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
        """Writes a SavedModel of a checkpoint, for one process to serve.

        Rank 0 does, in its memory; other ranks return at once. Lookups of the model insert nothing. A process
        that loads it imports this library; it needs neither Horovod nor `sok.Init`.

        Args:
          savedmodel_dir: Where the model's folder, named by the time, is made.
          checkpoint_dir: A checkpoint's prefix, or a folder, whose latest checkpoint is taken.
          signature_def_fn: Builds the model in the default graph, on placeholders, and returns the
            `SignatureDef` to serve, or a dict of several by name.
          assets_extra: By its path in the folder `assets.extra`, the file that is copied there.
          as_text: Whether the model is written as text.
          clear_devices: Whether devices of ops are dropped.
          strip_default_attrs: Whether attributes that have their defaults are dropped.

        Returns:
          The model's folder on rank 0, None on other ranks.

        Raises:
          ValueError: `checkpoint_dir` or `signature_def_fn` is missing, or there is no checkpoint.
        """
        return exported_model.export(
            savedmodel_dir,
            checkpoint_dir,
            signature_def_fn,
            assets_extra=assets_extra,
            as_text=as_text,
            clear_devices=clear_devices,
            strip_default_attrs=strip_default_attrs,
        )


def _initialize_horovod() -> None:
    """Initializes Horovod where it is installed, so that programs can ask it for its ranks."""
    if importlib.util.find_spec("horovod") is not None:
        import horovod.tensorflow as hvd

        if not hvd.is_initialized():
            hvd.init()
    communicator()


def _update_replacements() -> None:
    if _enabled or _scopes:
        # Optimizers refuse gradients that were not averaged, of embedding variables and of others.
        replacements.install(Part.OPTIMIZERS, Part.COLLECTIVE_TRAINING)
    else:
        replacements.uninstall(Part.COLLECTIVE_TRAINING)
