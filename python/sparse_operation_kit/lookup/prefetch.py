"""Lookups whose ids are prepared while the previous step is running."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf

from sparse_operation_kit import native
from sparse_operation_kit.compat.internals import (
    func_graph,
    is_trainable,
    record,
    resource_variable_ops,
    watching_variables,
)
from sparse_operation_kit.compat.internals import session as session_lib
from sparse_operation_kit.compat.tensors import next_as_optional, reference
from sparse_operation_kit.graphs import graph_ops
from sparse_operation_kit.lookup.group import looking_ahead
from sparse_operation_kit.lookup.step_cut import StepCut


class OneRecord:
    """A set of ops that gradient tapes see as one op: their inputs are changed after they were created.

    A tape keeps the inputs that an op had when it was created, so it would differentiate a graph that has
    changed since. The gradient of the one op is that of `tf.gradients` in the final graph.
    """

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


class LookupPrefetch(tf.compat.v1.train.SessionRunHook):
    """Reads batches from an iterator, and prepares the lookups of each batch while the previous step runs.

    While a step works on one batch, the next batch is read, and the part of its lookups that needs no rows is
    done: duplicate ids are merged, and with several ranks ids are sorted by owner and sent to the owners.
    Rows are found, inserted, brought up to date, counted, evicted and read in the step itself, after the
    previous step has updated them. Outputs, tables and optimizer slots are therefore bit for bit the same as
    without prefetching.

    In a `MonitoredTrainingSession` use the object as a hook. In a plain session run `prime` once before the
    first step, and `advance` with every step:

        prefetch = sok.LookupPrefetch(iterator, look_up)
        rows, labels = prefetch.outputs
        ...
        session.run(prefetch.prime)
        while True:
            session.run([train_op, prefetch.advance])

    The steps of a session must not run concurrently. Every batch is trained once. The step after the last
    batch raises `tf.errors.OutOfRangeError`, as the iterator does. `tf.errors.FailedPreconditionError` is
    raised by a step in a session without `prime`, by a step after a run without `advance`, and by a second
    `prime`.

    Attributes:
      outputs: The result of `look_up` for the batch of the step. Every session run that needs any of it
        consumes the batch and so is a step.
      prime: An op that reads the first batch and holds it.
      advance: An op that reads the next batch and holds it, after the step has taken its own. At the end of
        the data it does nothing.
    """

    def __init__(self, iterator: Any, look_up: Callable[..., Any], name: str | None = None) -> None:
        """Builds the lookups in the default graph.

        Args:
          iterator: A `tf.compat.v1.data.Iterator`, as `make_initializable_iterator` and
            `make_one_shot_iterator` return it. Nothing else should read from it.
          look_up: A function of a batch, called once, as `tf.data.Dataset.map` calls its function: a tuple is
            passed as several arguments. It returns a structure of tensors with everything that the model
            needs of the batch: outputs of lookups, labels, dense features. The ops that it creates on the
            batch run ahead, except ops that read variables and ops that depend on those: they run in the
            step.
          name: The name scope of the ops that hold batches; errors use it too.

        Raises:
          TypeError: `iterator` is not an iterator, or `look_up` returns nothing that depends on the batch.
          ValueError: Ids, weights or `training` of a lookup depend on variables, placeholders or rows; or a
            v1 loop or branch both reads variables and uses the batch.
          RuntimeError: Execution is eager or inside a `tf.function`.
        """
        graph = tf.compat.v1.get_default_graph()
        if tf.executing_eagerly() or isinstance(graph, func_graph.FuncGraph):
            raise RuntimeError("LookupPrefetch works in graphs with sessions, not in functions or eagerly")
        if not isinstance(iterator, tf.compat.v1.data.Iterator) and not hasattr(
            iterator, "get_next_as_optional"
        ):
            raise TypeError(
                f"LookupPrefetch: iterator must be a tf.compat.v1.data.Iterator, not {iterator!r}"
            )
        scope = graph.unique_name(name or "LookupPrefetch")
        first = len(graph.get_operations())
        with tf.name_scope(scope + "/"):
            has_next, batch = _draw(iterator)
        record = OneRecord()
        # Outside the scope, so that the variables created by look_up keep their usual names.
        with looking_ahead(), record.making():
            results = look_up(*batch) if isinstance(batch, tuple) else look_up(batch)
        with tf.name_scope(scope + "/"):
            self._pipeline(scope, first, has_next, batch, results, record)
        self._takes: dict[tuple[str, ...], bool] = {}

    def _pipeline(
        self, scope: str, first_op: int, has_next: tf.Tensor, batch: Any, results: Any, record: OneRecord
    ) -> None:
        """Inserts the ops that hold a batch between the ops that run ahead and those of the step."""
        flat = [tf.convert_to_tensor(value) for value in tf.nest.flatten(results, expand_composites=True)]
        tensors = tf.nest.flatten(batch, expand_composites=True)
        made = tf.compat.v1.get_default_graph().get_operations()[first_op:]
        cut = StepCut(tensors, made, flat)
        if not cut.held:
            raise TypeError(
                f"LookupPrefetch: look_up returned {results!r}, which does not depend on the batch"
            )
        held = [_kept(tensor) for tensor in cut.held]
        dtypes = [tensor.dtype for tensor in held]
        # Batches are held where they are read, on the host.
        with tf.device("/device:CPU:0"):
            taken = native.ops.sok_take_batch(has_next, T=dtypes, name_of_batch=scope, name="take")
        self._take = taken[0].op
        taken = [_taken(value, tensor) for value, tensor in zip(taken, cut.held)]
        outputs = record.record(made, cut.rejoin(taken, flat), taken)
        self.outputs = tf.nest.pack_sequence_as(results, outputs, expand_composites=True)
        with tf.device("/device:CPU:0"), tf.control_dependencies(cut.waits):
            self.prime = native.ops.sok_hold_batch(held, name_of_batch=scope, begins=True, name="prime")
        with tf.device("/device:CPU:0"), tf.control_dependencies([self._take, *cut.waits]):
            self.advance = native.ops.sok_hold_batch(held, name_of_batch=scope, name="advance")

    def after_create_session(self, session: tf.compat.v1.Session, coord: Any) -> None:
        """Reads the first batch."""
        del coord
        session.run(self.prime)

    def before_run(self, run_context: Any) -> tf.compat.v1.train.SessionRunArgs | None:
        """Reads the next batch in runs that are steps."""
        fetches = session_lib._FetchMapper.for_fetch(run_context.original_args.fetches).unique_fetches()
        elements = [run_context.session.graph.as_graph_element(fetch) for fetch in fetches]
        names = tuple(element.name for element in elements)
        if names not in self._takes:
            self._takes[names] = self._is_needed_by(elements)
        return tf.compat.v1.train.SessionRunArgs(self.advance) if self._takes[names] else None

    def _is_needed_by(self, elements: list[tf.Tensor | tf.Operation]) -> bool:
        ops = [element if isinstance(element, tf.Operation) else element.op for element in elements]
        return any(op is self._take for op in graph_ops.ops_needed_by(ops))


def _kept(tensor: tf.Tensor) -> tf.Tensor:
    """Returns what a batch holds for a tensor: for words of requests a reference."""
    if not graph_ops.are_request_words(tensor):
        return tensor
    with tf.compat.v1.get_default_graph().colocate_with(tensor.op):
        return native.ops.sok_keep_words(tensor)


def _taken(value: tf.Tensor, tensor: tf.Tensor) -> tf.Tensor:
    """Returns the tensor for which a batch holds `value`."""
    if graph_ops.are_request_words(tensor):
        with tf.compat.v1.get_default_graph().colocate_with(tensor.op):
            value = native.ops.sok_kept_words(value)
    value.set_shape(tensor.shape)
    return value


def _draw(iterator: Any) -> tuple[tf.Tensor, Any]:
    """Returns whether there is a next batch, and the batch. If there is none, ops on it do not run."""
    optional = next_as_optional(iterator)
    has_next = optional.has_value()
    drawn = tf.nest.map_structure(
        lambda variant: tf.raw_ops.Switch(data=variant, pred=has_next).output_true,
        optional,
        expand_composites=True,
    )
    return has_next, drawn.get_value()
