"""Graphs in which lookups in tables are TensorFlow's own ops."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import tensorflow as tf

from sparse_operation_kit.checkpoint.format import Table
from sparse_operation_kit.graphs import graph_ops
from sparse_operation_kit.serving import stock_lookups
from sparse_operation_kit.serving.given_graphs import DATA, Given
from sparse_operation_kit.serving.stock_tables import StockOptions, StockTable, StockVocabulary


class StockGraph:
    """A part of a graph, with lookups in stock ops. Nodes keep their names, and lose their devices.

    Lookups are made in a graph of their own, whose nodes then join the others'. So are the calls of functions
    with lookups: the functions' ops are made anew one by one, in `tf.cond`, `tf.switch_case` or
    `tf.while_loop` if such an op runs them. There TensorFlow takes what the stock ops need, such as a table's
    variables, into its functions.

    While lookups are made, a value is a tensor of the new graph, or one of the source. A function gets the
    values of its callers' arguments, so that it can tell whose a handle is.
    """

    def __init__(self, source: tf.Graph, open_table: Callable[[str], Table], options: StockOptions) -> None:
        """Starts without nodes.

        Args:
          source: The graph with the library's ops.
          open_table: Returns the table of a name; it is called once for each table that lookups need.
          options: How tables become stock ops.
        """
        self._source, self._open_table, self._options = source, open_table, options
        self._given = Given(source)
        self._nodes = {node.name: node for node in source.as_graph_def().node}
        self._made = tf.Graph()
        self._tables: dict[str, StockTable] = {}
        self._vocabularies: dict[str, StockVocabulary] = {}
        self._added: dict[str, tf.Operation] = {}
        # The placeholders that stand for the source's tensors, by their names, among the ops that are made.
        self._stand_ins: dict[str, tf.Tensor] = {}
        self._taken: list[tf.Tensor] = []
        # The loops around made ops, by their names: see `graph_ops.loops_around`.
        self._loops: dict[str, list[tf.Operation]] = {}

    @property
    def tables(self) -> list[StockTable]:
        """The tables that lookups read."""
        return list(self._tables.values())

    @property
    def initializers(self) -> list[str]:
        """The names of the ops that fill the hash tables of vocabularies from variables."""
        return [name for vocabulary in self._vocabularies.values() for name in vocabulary.initializers]

    def add(self, names: Iterable[str]) -> None:
        """Adds ops, given their names or those of their outputs, and what they depend on.

        Control inputs from the library's ops are left out: these prepare tables, which stock tables do not
        need.

        Raises:
          ValueError: One of them depends on an op of the library that has no counterpart.
        """
        pending = [self._source.get_operation_by_name(_op_name(name)) for name in names]
        while pending:
            op = pending.pop()
            if op.name not in self._added:
                self._given.check(op)
                self._added[op.name] = op
                pending += self._replace(op) if self._given.is_replaced(op) else self._given.sources(op)

    def has(self, name: str) -> bool:
        """Returns whether an op, given its name or that of an output, was added."""
        return _op_name(name) in self._added

    def definition(self) -> tf.compat.v1.GraphDef:
        """Returns the graph of what was added."""
        given, made = self._source.as_graph_def(), self._made.as_graph_def()
        result = tf.compat.v1.GraphDef(versions=given.versions)
        for op in self._added.values():
            if not self._given.is_replaced(op):
                self._add_node(result, op)
        taken = {stand_in.name: name for name, stand_in in self._stand_ins.items()}
        taken.update((f"^{_op_name(place)}", f"^{_op_name(name)}") for place, name in list(taken.items()))
        entered: dict[tuple[str, str], str] = {}
        for node in made.node:
            if f"{node.name}:0" not in taken:
                copy = result.node.add()
                copy.CopyFrom(node)
                loops = self._loops.get(node.name, [])
                names = [_full_name(name) for name in node.input]
                copy.input[:] = [
                    taken[name] if name in taken else self._entered(result, name, loops, entered)
                    for name in names
                    if name in taken or not (name.startswith("^") and self._enters(name, loops))
                ]
        functions = {one.signature.name: one for graph in (given, made) for one in graph.library.function}
        result.library.function.extend(graph_ops.functions_called_by(result.node, functions).values())
        return result

    def _add_node(self, definition: tf.compat.v1.GraphDef, op: tf.Operation) -> None:
        node = definition.node.add()
        node.CopyFrom(self._nodes[op.name])
        node.device = ""
        # Its reasons were devices.
        node.attr.pop("_class", None)
        controls = [f"^{one.name}" for one in self._given.controls(op)]
        node.input[:] = [tensor.name for tensor in op.inputs] + controls

    def _replace(self, op: tf.Operation) -> list[tf.Operation]:
        """Makes an op's counterpart; returns the ops that this depends on."""
        self._taken = []
        with self._made.as_default():
            before = len(self._made.get_operations())
            with tf.name_scope(f"{op.name}/stock/"):
                outputs = self._tensors(self._outputs(self._given, op, lambda given: given))
            for original, output in zip(op.outputs, outputs):
                output.set_shape(original.shape)
            # Under the name of the op, which programs may know.
            tf.identity_n(outputs, name=op.name)
        sources = [tensor.op for tensor in self._taken]
        handles = [one for one in op.inputs if graph_ops.is_handle(one)]
        if not sources and any(one.op is not graph_ops.table_of(one) for one in handles):
            raise ValueError(
                f"'{op.name}' looks up constant ids in a branch or a loop that is no function, which cannot "
                "be exported in TensorFlow's own ops: look them up outside"
            )
        loops = max((graph_ops.loops_around(source) for source in sources), key=len, default=[])
        if loops:
            self._note_loops(loops, self._made.get_operations()[before:])
        return sources

    def _note_loops(self, loops: list[tf.Operation], made: list[tf.Operation]) -> None:
        """Notes which ops are in loops: those that depend on what is, unlike tables and constants."""
        inside = {self._stand_ins[one.name].op for one in self._taken if graph_ops.loops_around(one.op)}
        for op in made:
            sources = {*(tensor.op for tensor in op.inputs), *op.control_inputs}
            if graph_ops.enters_loop(op) or not inside.isdisjoint(sources):
                inside.add(op)
                self._loops[op.name] = loops

    def _enters(self, name: str, loops: list[tf.Operation]) -> bool:
        """Returns whether an input that was made, given its name, is outside of the loops around an op."""
        return bool(loops) and _op_name(name) not in self._loops

    def _entered(
        self,
        definition: tf.compat.v1.GraphDef,
        name: str,
        loops: list[tf.Operation],
        entered: dict[tuple[str, str], str],
    ) -> str:
        """Takes a tensor that was made into the loops around an op, as a constant; returns its name there."""
        if not self._enters(name, loops):
            return name
        dtype = self._made.get_tensor_by_name(name).dtype.as_datatype_enum
        for loop in reversed(loops):
            key = name, loop.get_attr("frame_name")
            if key not in entered:
                node = definition.node.add(op="Enter", name=f"sok_enter_{len(entered)}", input=[name])
                node.attr["T"].type = dtype
                node.attr["is_constant"].b = True
                for attribute in ("frame_name", "parallel_iterations"):
                    node.attr[attribute].CopyFrom(loop.node_def.attr[attribute])
                entered[key] = f"{node.name}:0"
            name = entered[key]
        return name

    def _outputs(self, given: Given, op: tf.Operation, value_of: Callable) -> list[tf.Tensor]:
        """Makes the counterpart of an op in the default graph; returns the values of its outputs.

        Args:
          given: The graph of the op.
          op: An op that is replaced.
          value_of: Returns the value of each of the op's inputs.
        """

        def tensors(taken: Any) -> Any:
            return (
                self._tensors(map(value_of, taken))
                if isinstance(taken, list)
                else self._tensor(value_of(taken))
            )

        lookup = graph_ops.lookup_of_outputs(op)
        if lookup is not None:
            inputs = graph_ops.inputs_of(lookup)
            tables = [self._table(value_of(handle)) for handle in inputs["handles"]]
            return stock_lookups.look_up(lookup, {name: tensors(inputs[name]) for name in DATA}, tables)
        if graph_ops.is_left_for_gradients(op):
            return [tf.raw_ops.OptionalNone()]
        if op.type == graph_ops.VOCABULARY_LOOKUP:
            inputs = graph_ops.inputs_of(op)
            vocabulary = self._vocabulary(value_of(inputs["keys"]), value_of(inputs["size"]))
            return [vocabulary.look_up(tensors(inputs["ids"]))]
        if op.type in stock_lookups.COUNTERPARTS:
            inputs = {name: tensors(taken) for name, taken in graph_ops.inputs_of(op).items()}
            return stock_lookups.COUNTERPARTS[op.type](op, inputs)
        return self._run(op, given.called(op), [value_of(one) for one in op.inputs])

    def _run(
        self, op: tf.Operation, functions: Sequence[Given], values: Sequence[tf.Tensor]
    ) -> list[tf.Tensor]:
        """Makes the functions of an op anew in the default graph; returns the values of the op's outputs."""
        if graph_ops.is_loop(op):
            condition, body = functions
            return self._loop(condition, body, values)
        if not graph_ops.is_conditional(op):
            (function,) = functions
            return self._traced(function, values)
        choice, *taken = values
        branches = [lambda one=one: self._tensors(self._traced(one, taken)) for one in functions]
        choice = self._tensor(choice)
        chosen = tf.cond(choice, *branches) if choice.dtype == tf.bool else tf.switch_case(choice, branches)
        return tf.nest.flatten(chosen)

    def _loop(self, condition: Given, body: Given, values: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        # The others, such as handles, are the same in each iteration.
        changing = [
            number
            for number, (taken, given) in enumerate(zip(body.graph.inputs, body.graph.outputs))
            if graph_ops.before_copies(given) is not taken
        ]

        def with_new(changed: Sequence[tf.Tensor]) -> list[tf.Tensor]:
            new = dict(zip(changing, changed))
            return [new.get(number, value) for number, value in enumerate(values)]

        def run_body(*variables: tf.Tensor) -> list[tf.Tensor]:
            outputs = self._traced(body, with_new(variables))
            return [self._tensor(outputs[number]) for number in changing]

        last = tf.while_loop(
            lambda *variables: self._traced(condition, with_new(variables))[0],
            run_body,
            [self._tensor(values[number]) for number in changing],
            shape_invariants=[tf.TensorShape(None)] * len(changing),
        )
        return with_new(tf.nest.flatten(last))

    def _traced(self, function: Given, arguments: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """Makes a function's ops anew in the default graph; returns the values of its outputs.

        A function without outputs gets one, with which its effects come.
        """
        values = dict(zip((taken.name for taken in function.graph.inputs), arguments))
        made: dict[tf.Operation, list[tf.Operation]] = {taken.op: [] for taken in function.graph.inputs}

        def value_of(tensor: tf.Tensor) -> tf.Tensor:
            return values[tensor.name]

        def after(ops: Iterable[tf.Operation]) -> Any:
            return tf.control_dependencies([one for op in ops for one in made.get(op, [])])

        for op in function.needed():
            if op in made:
                continue
            with after(function.controls(op)):
                if function.is_replaced(op):
                    outputs = self._outputs(function, op, value_of)
                    made[op] = [one.op for one in outputs if not self._is_of_source(one)]
                elif graph_ops.is_copy(op) and self._is_of_source(value_of(*op.inputs)):
                    outputs, made[op] = [value_of(*op.inputs)], []
                else:
                    copy = self._copied(op, self._tensors(map(value_of, op.inputs)))
                    outputs, made[op] = copy.outputs, [copy]
            # The plan of a lookup, which a function returns for its gradient, has no counterpart.
            missing = range(len(outputs), len(op.outputs))
            for given, output in zip(op.outputs, [*outputs, *(tf.raw_ops.OptionalNone() for _ in missing)]):
                if not self._is_of_source(output):
                    output.set_shape(given.shape)
                values[given.name] = output
        results = [value_of(tensor) for tensor in function.graph.outputs]
        effects = function.effects()
        if effects or not results:
            with after(effects):
                results = [tf.identity(one) for one in self._tensors(results) or [tf.zeros([])]]
        return results

    def _copied(self, op: tf.Operation, inputs: Sequence[tf.Tensor]) -> tf.Operation:
        return tf.compat.v1.get_default_graph().create_op(
            op.type,
            inputs,
            [output.dtype for output in op.outputs],
            name=op.name,
            attrs={name: value for name, value in op.node_def.attr.items() if name != "_class"},
            op_def=op.op_def,
        )

    def _is_of_source(self, value: tf.Tensor) -> bool:
        return value.graph is self._source

    def _tensors(self, values: Iterable[tf.Tensor]) -> list[tf.Tensor]:
        return [self._tensor(value) for value in values]

    def _tensor(self, value: tf.Tensor) -> tf.Tensor:
        """Returns a value as a tensor that ops in the default graph can take."""
        if not self._is_of_source(value):
            return value
        if graph_ops.is_handle(value):
            # A function may return it, but only lookups make use of it.
            return tf.zeros([])
        self._taken.append(value)
        if value.name not in self._stand_ins:
            name = f"sok_input_{len(self._stand_ins)}"
            with tf.init_scope(), tf.compat.v1.name_scope(None):
                self._stand_ins[value.name] = tf.compat.v1.placeholder(value.dtype, value.shape, name)
        return self._stand_ins[value.name]

    def _table(self, handle: tf.Tensor) -> StockTable:
        name = graph_ops.table_of(handle).name
        if name not in self._tables:
            with tf.init_scope():
                self._tables[name] = StockTable(self._open_table(name), self._options)
        return self._tables[name]

    def _vocabulary(self, keys: tf.Tensor, size: tf.Tensor) -> StockVocabulary:
        name = graph_ops.table_of(keys).name
        if name not in self._vocabularies:
            keys, size = (self._tensor(graph_ops.outer_handle(one)) for one in (keys, size))
            with tf.init_scope():
                self._vocabularies[name] = StockVocabulary(keys, size, self._options.as_constants)
        return self._vocabularies[name]


def _op_name(name: str) -> str:
    """Returns the name of the op in an input of a node."""
    return name.lstrip("^").split(":")[0]


def _full_name(name: Any) -> str:
    """Returns the full name of an input of a node: without a number it is the first output."""
    return name if ":" in name or name.startswith("^") else f"{name}:0"
