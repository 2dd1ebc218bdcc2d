"""Graphs in which lookups in tables are TensorFlow's own ops."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import tensorflow as tf

from sparse_operation_kit.graphs import graph_ops
from sparse_operation_kit.serving import stock_lookups
from sparse_operation_kit.serving.stock_tables import StockTable

# The inputs of a lookup besides its tables and whether it is training.
_DATA = ("ids", "bags", "dense_shapes", "weights")


class StockGraph:
    """A part of a graph, with lookups in stock ops. Nodes keep their names, and lose their devices.

    Lookups are made in a graph of their own, whose nodes then join the others'.
    """

    def __init__(self, source: tf.Graph, table_named: Callable[[str], StockTable]) -> None:
        """Starts without nodes.

        Args:
          source: The graph with the library's ops.
          table_named: Returns the table of a name; it is called once for each table that lookups need, and
            adds the table's ops to the default graph.
        """
        self._source, self._table_named = source, table_named
        self._nodes = {node.name: node for node in source.as_graph_def().node}
        self._lookups = tf.Graph()
        self._tables: dict[str, StockTable] = {}
        self._added: dict[str, tf.Operation] = {}
        # The sources' tensors by the names of the placeholders that stand for them among the lookups.
        self._taken: dict[str, str] = {}
        self._is_ours = self._ops_of_library()

    @property
    def tables(self) -> list[StockTable]:
        """The tables that lookups read."""
        return list(self._tables.values())

    def add(self, names: Iterable[str]) -> None:
        """Adds ops, given their names or those of their outputs, and what they depend on.

        Control inputs from the library's ops are left out: these prepare tables, which stock tables do not
        need.

        Raises:
          ValueError: One of them depends on an op of the library that is no lookup, or on a lookup in a
            function or a loop.
        """
        pending = [self._source.get_operation_by_name(name.split(":")[0]) for name in names]
        while pending:
            op = pending.pop()
            if op.name in self._added:
                continue
            self._check(op)
            self._added[op.name] = op
            if graph_ops.lookup_of_outputs(op) is not None:
                self._look_up(op)
            pending += self._sources(op)

    def has(self, name: str) -> bool:
        """Returns whether an op, given its name or that of an output, was added."""
        return name.split(":")[0] in self._added

    def definition(self) -> tf.compat.v1.GraphDef:
        """Returns the graph of what was added."""
        given = self._source.as_graph_def()
        made = self._lookups.as_graph_def()
        result = tf.compat.v1.GraphDef(versions=given.versions, library=given.library)
        for op in self._added.values():
            if graph_ops.lookup_of_outputs(op) is None:
                self._add_node(result, op)
        for node in made.node:
            if f"{node.name}:0" not in self._taken:
                copy = result.node.add()
                copy.CopyFrom(node)
                copy.input[:] = [self._taken.get(_tensor(name), name) for name in node.input]
        return result

    def _ops_of_library(self) -> dict[tf.Operation, tf.Operation]:
        """Maps the library's ops that are no lookups, and all that depends on their outputs, to these ops."""
        found: dict[tf.Operation, tf.Operation] = {}
        pending = [
            (op, op)
            for op in self._source.get_operations()
            if graph_ops.is_of_library(op) and graph_ops.lookup_of_outputs(op) is None
        ]
        while pending:
            op, origin = pending.pop()
            if op in found:
                continue
            found[op] = origin
            for consumer in (consumer for tensor in op.outputs for consumer in tensor.consumers()):
                if graph_ops.lookup_of_outputs(consumer) is None:
                    # What takes a handle is to blame, not the table.
                    pending.append((consumer, consumer if op.type == graph_ops.TABLE else origin))
        return found

    def _sources(self, op: tf.Operation) -> list[tf.Operation]:
        """Returns the ops that an op depends on."""
        lookup = graph_ops.lookup_of_outputs(op)
        if lookup is not None:
            inputs = graph_ops.inputs_of(lookup)
            return [tensor.op for name in _DATA for tensor in inputs[name]]
        return [*(tensor.op for tensor in op.inputs), *self._controls(op)]

    def _controls(self, op: tf.Operation) -> list[tf.Operation]:
        return [one for one in op.control_inputs if one not in self._is_ours]

    def _check(self, op: tf.Operation) -> None:
        origin = self._is_ours.get(op, op)
        called = graph_ops.ops_of_library_called_by(origin)
        if called:
            raise ValueError(
                f"'{origin.name}' calls a function with the op {called[0]} of this library: a lookup in "
                "tf.cond, tf.while_loop or tf.function cannot be exported in TensorFlow's own ops. Look the "
                "rows up outside, and take them in the function"
            )
        if op in self._is_ours:
            raise ValueError(
                f"'{op.name}' depends on '{origin.name}', an op {origin.type} of this library, which has no "
                "counterpart in TensorFlow's own ops: export a model whose outputs do not depend on it"
            )
        if graph_ops.lookup_of_outputs(op) is not None and graph_ops.is_in_loop(self._sources(op)):
            raise ValueError(
                f"'{op.name}' is a lookup in a loop, which cannot be exported in TensorFlow's own ops: look "
                "the rows up outside, and take them in the loop"
            )

    def _add_node(self, definition: tf.compat.v1.GraphDef, op: tf.Operation) -> None:
        node = definition.node.add()
        node.CopyFrom(self._nodes[op.name])
        node.device = ""
        # Its reasons were devices.
        node.attr.pop("_class", None)
        node.input[:] = [tensor.name for tensor in op.inputs] + [f"^{one.name}" for one in self._controls(op)]

    def _look_up(self, op: tf.Operation) -> None:
        lookup = graph_ops.lookup_of_outputs(op)
        inputs = graph_ops.inputs_of(lookup)
        originals = graph_ops.outputs_of(op)["outputs"]
        with self._lookups.as_default():
            taken = {name: [self._stand_in(tensor) for tensor in inputs[name]] for name in _DATA}
            tables = [self._table(graph_ops.table_of(handle).name) for handle in inputs["handles"]]
            with tf.name_scope(f"{op.name}/stock/"):
                outputs = stock_lookups.look_up(lookup, taken, tables)
            for original, output in zip(originals, outputs):
                output.set_shape(original.shape)
            # Under the name of the lookup, which programs may know.
            tf.identity_n(outputs, name=op.name)

    def _stand_in(self, tensor: tf.Tensor) -> tf.Tensor:
        place = tf.compat.v1.placeholder(tensor.dtype, tensor.shape, f"sok_input_{len(self._taken)}")
        self._taken[place.name] = tensor.name
        return place

    def _table(self, name: str) -> StockTable:
        if name not in self._tables:
            self._tables[name] = self._table_named(name)
        return self._tables[name]


def _tensor(name: Any) -> str:
    """Returns the full name of an input of a node: without a number it is the first output."""
    return name if ":" in name or name.startswith("^") else f"{name}:0"
