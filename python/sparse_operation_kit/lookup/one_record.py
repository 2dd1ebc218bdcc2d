"""Gradient tapes over ops whose inputs are changed after they were made.

A tape keeps the inputs that an op had when it was made, and would differentiate what the graph no longer
computes. So such ops are recorded as a single one, with the gradient of `tf.gradients` in the final graph.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

import tensorflow as tf
from tensorflow.python.eager import backprop_util
from tensorflow.python.ops import resource_variable_ops

from sparse_operation_kit.compat import gradient_record


class OneRecord:
    """Ops that are one to the tapes that record."""

    def __init__(self) -> None:
        self._variables: Sequence[tf.Variable] = ()

    @contextlib.contextmanager
    def making(self) -> Iterator[None]:
        """Inside it the ops are made, and no tape records."""
        with gradient_record.VariableWatcher() as watcher, gradient_record.stop_recording():
            yield
        self._variables = watcher.watched_variables()

    def record(
        self, made: Sequence[tf.Operation], outputs: Sequence[tf.Tensor], constants: Sequence[tf.Tensor]
    ) -> list[tf.Tensor]:
        """Tells the tapes of the ops, once their inputs are final.

        Args:
          made: The ops.
          outputs: Those of the ops' outputs that others work on.
          constants: What has no gradient, though the ops work on it.

        Returns:
          What others work on in place of `outputs`; without a tape, `outputs`.
        """
        if not gradient_record.could_possibly_record():
            return list(outputs)
        for variable in self._variables:
            resource_variable_ops.variable_accessed(variable)
        inputs = self._inputs(made)
        of_ops = set(made)
        places = [
            place
            for place, output in enumerate(outputs)
            if output.op in of_ops and backprop_util.IsTrainable(output)
        ]
        inner = [outputs[place] for place in places]
        arrived: dict[int, tf.Tensor] = {}

        def differentiate(*gradients: tf.Tensor) -> list[tf.Tensor | tf.IndexedSlices | None]:
            # A tape makes zeros for outputs without a gradient, and variables behind them are to have none.
            known = [i for i, gradient in enumerate(gradients) if gradient is arrived.get(i)]
            return tf.gradients(
                [inner[i] for i in known],
                inputs,
                [gradients[i] for i in known],
                stop_gradients=list(constants),
            )

        gradient_record.record_operation("SokOneRecord", inner, inputs, differentiate)
        results = list(outputs)
        for i, place in enumerate(places):
            results[place] = _noting(inner[i], i, arrived)
        return results

    def _inputs(self, made: Sequence[tf.Operation]) -> list[tf.Tensor]:
        """What the ops take from others and what they read, as far as it can have a gradient."""
        of_ops = set(made)
        tensors = [tensor for op in made for tensor in op.inputs if tensor.op not in of_ops]
        tensors += [variable.handle for variable in self._variables]
        distinct = {tensor.ref(): tensor for tensor in tensors if backprop_util.IsTrainable(tensor)}
        return list(distinct.values())


def _noting(tensor: tf.Tensor, number: int, arrived: dict[int, tf.Tensor]) -> tf.Tensor:
    """The tensor, for others; tapes put its gradient into `arrived[number]` on the way back."""

    def note(gradient: tf.Tensor) -> list[tf.Tensor]:
        arrived[number] = gradient
        return [gradient]

    with gradient_record.stop_recording():
        passed_on = tf.identity(tensor)
    gradient_record.record_operation("Identity", [passed_on], [tensor], note)
    return passed_on
