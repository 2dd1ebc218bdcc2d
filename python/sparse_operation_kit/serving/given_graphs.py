"""Graphs that are exported, and their functions: what ops depend on, and what has no counterpart."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from sparse_operation_kit.compat.internals import function_def_to_graph
from sparse_operation_kit.graphs import graph_ops
from sparse_operation_kit.serving import stock_lookups

# The inputs of a lookup besides its tables and whether it is training.
DATA = ("ids", "bags", "dense_shapes", "weights")
# Ops of the library besides lookups with a counterpart in stock ops.
_OTHERS = (graph_ops.VOCABULARY_LOOKUP, *stock_lookups.COUNTERPARTS)


class Given:
    """A graph with the library's ops, or that of a function.

    Attributes:
      graph: The graph.
    """

    def __init__(self, graph: tf.Graph, of_program: Given | None = None) -> None:
        """Reads the graph; of a function, `of_program` is the graph that has it in its library."""
        self.graph = graph
        self._of_program = of_program or self
        self._is_function = of_program is not None
        self._functions: dict[str, Any] = (
            graph_ops.functions_of_graph(graph) if of_program is None else of_program._functions
        )
        self._read: dict[str, Given] = {}
        self._is_ours = self._ops_of_library()

    def called(self, op: tf.Operation) -> list[Given]:
        """Returns the functions of an op: see `graph_ops.called_in_place`."""
        return [self._of_program._function(name) for name in graph_ops.called_in_place(op, self._functions)]

    def is_replaced(self, op: tf.Operation) -> bool:
        """Returns whether an op has a counterpart in stock ops instead of a copy.

        In a function this includes all that runs functions, which then need not be in the new graph.
        """
        if graph_ops.lookup_of_outputs(op) is not None or op.type in _OTHERS:
            return True
        if graph_ops.is_left_for_gradients(op):
            return True
        return bool(graph_ops.called_in_place(op, self._functions)) and (
            self._is_function or bool(graph_ops.ops_of_library_called_by(op, self._functions))
        )

    def controls(self, op: tf.Operation) -> list[tf.Operation]:
        """Returns the control inputs of an op that do not depend on the library's ops."""
        return [one for one in op.control_inputs if one not in self._is_ours]

    def sources(self, op: tf.Operation) -> list[tf.Operation]:
        """Returns the ops that an op depends on."""
        if graph_ops.is_left_for_gradients(op):
            return []
        lookup = graph_ops.lookup_of_outputs(op)
        if lookup is not None:
            inputs = graph_ops.inputs_of(lookup)
            return [tensor.op for name in ("handles", *DATA) for tensor in inputs[name]]
        return [*(tensor.op for tensor in op.inputs), *self.controls(op)]

    def effects(self) -> list[tf.Operation]:
        """Returns the ops that a function runs, besides those that its outputs depend on."""
        return [op for op in self.graph.control_outputs if op not in self._is_ours]

    def needed(self) -> list[tf.Operation]:
        """Returns the ops that a function's outputs and effects depend on, in an order of execution.

        Raises:
          ValueError: As of `check`.
        """
        found = set()
        pending = [*(tensor.op for tensor in self.graph.outputs), *self.effects()]
        while pending:
            op = pending.pop()
            if op not in found:
                self.check(op)
                found.add(op)
                pending += self.sources(op)
        return [op for op in self.graph.get_operations() if op in found]

    def check(self, op: tf.Operation) -> None:
        """Raises ValueError if an op has no counterpart in stock ops."""
        origin = self._is_ours.get(op, op)
        called = graph_ops.ops_of_library_called_by(origin, self._functions)
        if called and not self.is_replaced(origin):
            raise ValueError(
                f"'{origin.name}', an op {origin.type}, calls a function with the op {called[0]} of this "
                "library. In TensorFlow's own ops only functions of tf.cond, tf.switch_case, tf.while_loop "
                "and tf.function can have it: look the rows up outside of the function"
            )
        if op in self._is_ours:
            raise ValueError(
                f"'{op.name}' depends on '{origin.name}', an op {origin.type} of this library, which has no "
                "counterpart in TensorFlow's own ops: export a model whose outputs do not depend on it"
            )
        if self._is_function and graph_ops.enters_loop(op):
            raise ValueError(
                f"'{op.name}' is in a loop of TensorFlow 1 in a function that looks rows up, which cannot be "
                "exported in TensorFlow's own ops: look the rows up outside of the function"
            )

    def _function(self, name: str) -> Given:
        if name not in self._read:
            with self.graph.as_default():
                self._read[name] = Given(function_def_to_graph(self._functions[name]), self)
        return self._read[name]

    def _ops_of_library(self) -> dict[tf.Operation, tf.Operation]:
        """Maps the library's ops without a counterpart, and what depends on their outputs, to these ops."""
        found: dict[tf.Operation, tf.Operation] = {}
        pending = [
            (op, op)
            for op in self.graph.get_operations()
            if graph_ops.is_of_library(op) and not self.is_replaced(op)
        ]
        while pending:
            op, origin = pending.pop()
            if op in found:
                continue
            found[op] = origin
            for consumer in (consumer for tensor in op.outputs for consumer in tensor.consumers()):
                takes_outputs = consumer.type in _OTHERS and consumer.type != graph_ops.NO_ROWS
                if takes_outputs or not self.is_replaced(consumer):
                    # What takes a handle is to blame, not the table.
                    pending.append((consumer, consumer if op.type == graph_ops.TABLE else origin))
        return found
