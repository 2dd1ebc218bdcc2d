"""Records ops on gradient tapes whose inputs are changed after the ops were created.

A tape keeps the inputs that an op had when it was created, so it would differentiate a graph that has changed
since. Such ops are therefore recorded as one op, whose gradient is that of `tf.gradients` in the final graph.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

import tensorflow as tf

from sparse_operation_kit.compat.internals import (
    is_trainable,
    record,
    resource_variable_ops,
    watching_variables,
)
from sparse_operation_kit.compat.tensors import reference


class OneRecord:
    """A set of ops that gradient tapes see as one op."""

    def __init__(self) -> None:
        self._variables: Sequence[tf.Variable] = ()

    @contextlib.contextmanager
    def making(self) -> Iterator[None]:
        """Returns the context in which to create the ops; tapes record nothing inside it."""
        with watching_variables() as watcher, record.stop_recording():
            yield
        self._variables = watcher.watched_variables()

    def record(
        self, made: Sequence[tf.Operation], outputs: Sequence[tf.Tensor], constants: Sequence[tf.Tensor]
    ) -> list[tf.Tensor]:
        """Records the ops on the tapes. Call it when the inputs of the ops are final.

        Args:
          made: The ops.
          outputs: The outputs of the ops that other ops will use.
          constants: Inputs of the ops that have no gradient.

        Returns:
          The tensors to use instead of `outputs`; without a tape, `outputs`.
        """
        if not record.could_possibly_record():
            return list(outputs)
        for variable in self._variables:
            resource_variable_ops.variable_accessed(variable)
        inputs = self._inputs(made)
        of_ops = set(made)
        places = [
            place for place, output in enumerate(outputs) if output.op in of_ops and is_trainable(output)
        ]
        inner = [outputs[place] for place in places]
        arrived: dict[int, tf.Tensor] = {}

        def differentiate(*gradients: tf.Tensor) -> list[tf.Tensor | tf.IndexedSlices | None]:
            # A tape passes zeros for outputs without a gradient. They are dropped here, so that variables
            # behind them get no gradient.
            known = [i for i, gradient in enumerate(gradients) if gradient is arrived.get(i)]
            return tf.gradients(
                [inner[i] for i in known],
                inputs,
                [gradients[i] for i in known],
                stop_gradients=list(constants),
            )

        record.record_operation("SokOneRecord", inner, inputs, differentiate)
        results = list(outputs)
        for i, place in enumerate(places):
            results[place] = _noting(inner[i], i, arrived)
        return results

    def _inputs(self, made: Sequence[tf.Operation]) -> list[tf.Tensor]:
        """Returns the ops' inputs from other ops and the variables they read, if they can have a gradient."""
        of_ops = set(made)
        tensors = [tensor for op in made for tensor in op.inputs if tensor.op not in of_ops]
        tensors += [variable.handle for variable in self._variables]
        distinct = {reference(tensor): tensor for tensor in tensors if is_trainable(tensor)}
        return list(distinct.values())


def _noting(tensor: tf.Tensor, number: int, arrived: dict[int, tf.Tensor]) -> tf.Tensor:
    """Returns a copy of the tensor; in the backward pass tapes store its gradient in `arrived[number]`."""

    def note(gradient: tf.Tensor) -> list[tf.Tensor]:
        arrived[number] = gradient
        return [gradient]

    with record.stop_recording():
        passed_on = tf.identity(tensor)
    record.record_operation("Identity", [passed_on], [tensor], note)
    return passed_on
