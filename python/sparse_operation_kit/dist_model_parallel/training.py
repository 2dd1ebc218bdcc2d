"""Training a model with a `DistributedEmbedding`: averages over ranks, and equal initial values."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import tensorflow as tf

from sparse_operation_kit import compat
from sparse_operation_kit.changes import replacements
from sparse_operation_kit.changes.replacement_table import Part
from sparse_operation_kit.compat.tensors import reference
from sparse_operation_kit.dist_model_parallel.keras import keras, keras_session
from sparse_operation_kit.dist_model_parallel.layout import is_cut
from sparse_operation_kit.optimizers import distributed, sharded_norms
from sparse_operation_kit.optimizers.combination import Combine, Pairs, by_hand, combine
from sparse_operation_kit.ranks.communicator import communicator
from sparse_operation_kit.tables import broadcast
from sparse_operation_kit.tables.embedding_variable import is_embedding_variable


def _is_of_ranks(variable: Any) -> bool:
    """Whether the gradient of a variable is a sum over ranks already."""
    return is_cut(variable) or is_embedding_variable(variable)


def _combination(
    who: str,
    *,
    compression: Any,
    sparse_as_dense: bool,
    op: Any,
    gradient_predivide_factor: float,
    backward_passes_per_step: int = 1,
) -> Combine:
    """Returns what combines gradients over ranks: a function of pairs and a prefix of names."""
    if backward_passes_per_step != 1:
        raise ValueError(f"{who}: backward_passes_per_step must be 1, not {backward_passes_per_step}")
    if gradient_predivide_factor != 1.0:
        raise ValueError(f"{who}: gradient_predivide_factor must be 1.0, not {gradient_predivide_factor}")
    if compression is not None and getattr(compression, "__name__", "") != "NoneCompressor":
        raise ValueError(f"{who}: compression must be None, not {compression!r}")
    average = distributed.parse_op(op, who) == "average"

    @tf.autograph.experimental.do_not_convert
    def combined(pairs: Iterable, prefix: str) -> Pairs:
        result = combine(
            pairs,
            prefix,
            average=average,
            sparse_as_dense=sparse_as_dense,
            divide_sums=average,
            is_sum=_is_of_ranks,
        )
        if communicator().size > 1:
            # So that clipping by the global norm has the same effect on all ranks.
            for gradient, variable in result:
                if is_cut(variable):
                    sharded_norms.mark_as_of_one_rank(gradient)
            replacements.install(Part.NORMS)
        return result

    return combined


class DistributedGradientTape:
    """A gradient tape whose gradients are combined over ranks; takes the place of Horovod's.

        with tf.GradientTape() as tape:
            loss = ...
        tape = dmp.DistributedGradientTape(tape)
        gradients = tape.gradient(loss, model.trainable_variables)

    Gradients of variables that every rank has are averaged, or added up. Those of tables that are distributed
    or sliced are sums over ranks already, and are divided by the number of ranks if others are averaged.

    Args:
      gradtape: a tf.GradientTape. Its other attributes can be used through this object.
      device_dense, device_sparse, num_groups, groups: have no effect; Horovod's arguments.
      compression: None, or Horovod's `Compression.none`.
      sparse_as_dense: whether tf.IndexedSlices of variables that every rank has are made dense and summed,
        instead of gathered.
      op: "average" or "sum", or `hvd.Average` or `hvd.Sum`.
      gradient_predivide_factor: 1.0.

    Raises:
      ValueError: an argument has another value.
    """

    def __init__(
        self,
        gradtape: tf.GradientTape,
        device_dense: str = "",
        device_sparse: str = "",
        compression: Any = None,
        sparse_as_dense: bool = False,
        op: Any = "average",
        gradient_predivide_factor: float = 1.0,
        num_groups: int = 0,
        groups: Any = None,
    ) -> None:
        del device_dense, device_sparse, num_groups, groups
        self._tape = gradtape
        self._combine = _combination(
            type(self).__name__,
            compression=compression,
            sparse_as_dense=sparse_as_dense,
            op=op,
            gradient_predivide_factor=gradient_predivide_factor,
        )

    def gradient(self, target: Any, sources: Any, *args: Any, **kwargs: Any) -> Any:
        """Like tf.GradientTape's `gradient`, combined over all ranks."""
        gradients = self._tape.gradient(target, sources, *args, **kwargs)
        flat = tf.nest.flatten(sources)
        pairs = zip(tf.nest.flatten(gradients, expand_composites=False), flat)
        combined = self._combine(pairs, "DistributedGradientTape")
        return tf.nest.pack_sequence_as(sources, [gradient for gradient, _ in combined])

    def __enter__(self) -> DistributedGradientTape:
        self._tape.__enter__()
        return self

    def __exit__(self, *exception: Any) -> None:
        self._tape.__exit__(*exception)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tape, name)


class _OfSessions(distributed.DistributedOptimizer):
    """The wrapper of an optimizer of tf.compat.v1.train."""

    def __init__(self, optimizer: Any, combination: Combine, name: str | None) -> None:
        super().__init__(optimizer, op="sum", name=name)
        self._combine = combination


class _OfKeras:
    """What `DistributedOptimizer` adds to the class of a Keras optimizer."""

    _dmp_combine: Combine

    def apply_gradients(self, grads_and_vars: Iterable, *args: Any, **kwargs: Any) -> Any:
        """Calls the optimizer's `apply_gradients` with gradients combined over all ranks."""
        pairs = [(gradient, variable) for gradient, variable in grads_and_vars]
        combined = self._dmp_combine(pairs, f"Distributed{type(self).__name__}")
        with by_hand():
            return super().apply_gradients(combined, *args, **kwargs)  # type: ignore[misc]


def DistributedOptimizer(  # noqa: N802 - the name is Horovod's
    optimizer: Any,
    name: str | None = None,
    use_locking: bool = False,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = None,
    sparse_as_dense: bool = False,
    backward_passes_per_step: int = 1,
    op: Any = "average",
    gradient_predivide_factor: float = 1.0,
    average_aggregated_gradients: bool = False,
    num_groups: int = 0,
    groups: Any = None,
) -> Any:
    """Returns an optimizer that combines gradients over ranks; takes the place of Horovod's.

    Gradients are combined as by `DistributedGradientTape`; use one of the two. An optimizer of
    tf.compat.v1.train is wrapped: `compute_gradients`, and so `minimize`, combine. A Keras optimizer becomes
    one whose `apply_gradients` combines, and is returned itself.

    Args:
      optimizer: an optimizer of tf.compat.v1.train or of Keras 2, legacy or not.
      name: prefix of the names of ops; the same on all ranks.
      use_locking, device_dense, device_sparse, average_aggregated_gradients, num_groups, groups: have no
        effect.
      compression, sparse_as_dense, op, gradient_predivide_factor: as for `DistributedGradientTape`.
      backward_passes_per_step: must be 1.

    Raises:
      TypeError: `optimizer` is not such an optimizer, is distributed already, or is Keras'
        LossScaleOptimizer.
      ValueError: another argument is out of range.
    """
    del use_locking, device_dense, device_sparse, average_aggregated_gradients, num_groups, groups
    combination = _combination(
        "DistributedOptimizer",
        compression=compression,
        sparse_as_dense=sparse_as_dense,
        op=op,
        gradient_predivide_factor=gradient_predivide_factor,
        backward_passes_per_step=backward_passes_per_step,
    )
    if isinstance(optimizer, (_OfKeras, distributed.DistributedOptimizer)):
        raise TypeError("DistributedOptimizer: the optimizer is a DistributedOptimizer already")
    if isinstance(optimizer, tf.compat.v1.train.Optimizer):
        return _OfSessions(optimizer, combination, name)
    if not isinstance(optimizer, _keras_optimizers()):
        raise TypeError(
            "DistributedOptimizer takes an optimizer of tf.compat.v1.train or of Keras, not "
            f"{type(optimizer).__name__}"
        )
    # A LossScaleOptimizer has an `inner_optimizer`, in TensorFlow 1.15 only a `loss_scale`.
    if hasattr(optimizer, "inner_optimizer") or hasattr(optimizer, "loss_scale"):
        # Ranks have different tables, so gradients may be finite on some ranks only.
        raise TypeError(
            "DistributedOptimizer: Keras' LossScaleOptimizer would skip steps on some ranks only; take "
            "sok.tf.keras.mixed_precision.LossScaleOptimizer"
        )
    # Not a wrapper, because Keras asks an optimizer for all kinds of attributes.
    distributed_one: Any = optimizer
    # Keras saves an optimizer by its class's name and module, and so finds the class that the optimizer had.
    attributes = {"__module__": type(optimizer).__module__}
    distributed_one.__class__ = type(type(optimizer).__name__, (_OfKeras, type(optimizer)), attributes)
    distributed_one._dmp_combine = combination
    return distributed_one


def _keras_optimizers() -> tuple[type, ...]:
    if keras is None:
        return ()
    legacy = [module.Optimizer for _, module in compat.legacy_keras_optimizers()]
    return (keras.optimizers.Optimizer, *legacy)


def broadcast_variables(model_vars: Sequence[tf.Variable], root_rank: int = 0) -> tf.Operation | None:
    """Sets variables on all ranks to their values on rank `root_rank`.

    Variables that only one rank has are skipped: those of tables that are distributed or sliced, whose
    initial values do not depend on the rank, and the slots that optimizers keep for them.

    Args:
      model_vars: variables, the same on all ranks but for those that are skipped.
      root_rank: the rank whose values are used.

    Returns:
      In a graph an op; in eager execution, where it is done at once, None.

    Raises:
      ValueError: there is no such rank.
    """
    common = [variable for variable in model_vars if not is_cut(variable)]
    return broadcast.broadcast_variables(common, root_rank)


_Callback: Any = object if keras is None else keras.callbacks.Callback


class BroadcastGlobalVariablesCallback(_Callback):
    """A callback of Keras' `fit` that calls `broadcast_variables` for the model and its optimizer.

    The model's variables are set before the first batch if they exist by then. Those and the optimizer's,
    which exist after the first step only, are set after it.

    Args:
      root_rank: the rank whose values are used.
      device: has no effect.
    """

    def __init__(self, root_rank: int, device: str = "") -> None:
        del device
        super().__init__()
        communicator().check_rank(root_rank)
        self._root_rank = root_rank
        self._is_done = False

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Called by Keras."""
        del batch, logs
        if not self._is_done and self.model.built:
            self._broadcast(self.model.variables)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Called by Keras."""
        del batch, logs
        if not self._is_done:
            of_optimizer = self.model.optimizer.variables
            of_optimizer = of_optimizer() if callable(of_optimizer) else of_optimizer
            self._broadcast([*self.model.variables, *of_optimizer])
            self._is_done = True

    def _broadcast(self, variables: Sequence[tf.Variable]) -> None:
        # Values of metrics and of the optimizer's counter may occur twice.
        distinct = {reference(variable): variable for variable in variables}
        done = broadcast_variables(list(distinct.values()), self._root_rank)
        if done is not None:
            keras_session().run(done)
