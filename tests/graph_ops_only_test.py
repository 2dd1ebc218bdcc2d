"""Only one module of the package refers to its ops' types, and to their inputs and outputs by position."""

import ast
import pathlib

import pytest

import sparse_operation_kit as sok
from sparse_operation_kit.compat.internals import op_definition
from sparse_operation_kit.graphs import graph_ops

PACKAGE = pathlib.Path(sok.__file__).parent


def test_types_are_those_of_registered_ops():
    types = [
        value
        for name, value in vars(graph_ops).items()
        if isinstance(value, str) and value.startswith("Sok") and not name.startswith("_")
    ]
    assert len(types) == len(set(types)) > 10
    # These are in the op library that needs Horovod.
    assert [type_ for type_ in types if op_definition(type_) is None] in (
        [],
        [graph_ops.EXCHANGE, graph_ops.OPAQUE],
    )


# Strings that equal the type of an op of the library, but do not mean the op.
NOT_TYPES = {
    ("ranks/initialize.py", "SokInit"): "the name of the op whose tensor sok.Init returns",
}


def _breaches(tree, path):
    for node in ast.walk(tree):
        # Python 3.7 has another class for strings, with the attribute `s`.
        text = node.value if isinstance(node, ast.Constant) else getattr(node, "s", None)
        if isinstance(text, str):
            is_type = text.startswith("Sok") and op_definition(text) is not None
            if is_type and (path, text) not in NOT_TYPES:
                yield f"{path}:{node.lineno}: the type of an op, {text}"
        elif isinstance(node, ast.Subscript) and isinstance(node.value, ast.Attribute):
            if node.value.attr in ("inputs", "outputs"):
                yield f"{path}:{node.lineno}: inputs or outputs by position"
        elif isinstance(node, ast.Attribute) and node.attr == "value_index":
            yield f"{path}:{node.lineno}: value_index"


def test_no_other_module_reads_ops_by_type_or_position():
    breaches = []
    files = sorted(PACKAGE.rglob("*.py"))
    assert len(files) > 100
    for file in files:
        path = file.relative_to(PACKAGE).as_posix()
        if path != "graphs/graph_ops.py":
            breaches += _breaches(ast.parse(file.read_text()), path)
    assert breaches == []


@pytest.mark.parametrize(
    "line",
    ['op.type == "SokGroupSum"', "op.inputs[0]", "op.outputs[num_outputs]", "op.inputs[:2]", "t.value_index"],
)
def test_reading_by_type_or_position_is_found(line):
    assert len(list(_breaches(ast.parse(line), "some.py"))) == 1


@pytest.mark.parametrize(
    "line", ['inputs_of(op)["plan"]', 'native.ops.sok_group_sum(name="Sok")', "op.inputs"]
)
def test_reading_by_name_is_no_breach(line):
    assert list(_breaches(ast.parse(line), "some.py")) == []
