# Tags: versions, old_version
# Not on GPUs: graphs, names and libraries
"""Importing the library changes nothing of TensorFlow, and every name of TensorFlow that it uses exists.

Reads the package's sources. A name is a chain of attributes, such as `tf.compat.v1.train.Saver`, that begins
with TensorFlow's module, with what `compat.internals` has, or with a variable that is such a chain."""

from __future__ import annotations

import ast
import pathlib
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

import forked
import harness  # noqa: F401 - quiets TensorFlow
import sparse_operation_kit as sok
from sparse_operation_kit.compat import internals

# Runs in its own process. TensorFlow is imported before the snapshot, because its effects are not ours.
_PROGRAM = """
import inspect, os, sys, tempfile
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"
import tensorflow as tf
tf.keras.optimizers, tf.compat.v1.train.Optimizer, tf.nn.embedding_lookup

def snapshot():
    found = {}
    for module_name, module in list(sys.modules.items()):
        if module_name.split(".")[0] not in ("tensorflow", "keras", "tf_keras"):
            continue
        for name, value in list(vars(module).items()):
            if inspect.isfunction(value) or inspect.isclass(value):
                found[module_name, name] = value
            if inspect.isclass(value) and value.__module__.startswith(("tensorflow", "keras", "tf_keras")):
                for attribute, member in list(vars(value).items()):
                    if inspect.isfunction(member) or isinstance(member, property):
                        found[value, attribute] = member
    return found

before = snapshot()
environment = dict(os.environ)
with tempfile.TemporaryFile() as printed:
    kept = os.dup(1), os.dup(2)
    os.dup2(printed.fileno(), 1), os.dup2(printed.fileno(), 2)
    import sparse_operation_kit
    sys.stdout.flush(), sys.stderr.flush()
    os.dup2(kept[0], 1), os.dup2(kept[1], 2)
    printed.seek(0)
    assert printed.read() == b"", "importing prints"
assert dict(os.environ) == environment, "importing changes the environment"
after = snapshot()
known_owners = {owner for owner, _ in before}
changed = [key for key in before if after.get(key) is not before[key]]
added = [key for key in after if key not in before and key[0] in known_owners and inspect.isclass(key[0])]
assert not changed, f"importing replaces {changed}"
assert not added, f"importing adds {added}"
assert len(before) > 1000
print("as it was")
"""


def test_importing_has_no_side_effects():
    output = forked.succeeded(forked.run_interpreter("-c", _PROGRAM))
    assert output.strip() == "as it was"


_ABSENT = object()
_FOLDER = pathlib.Path(sok.__file__).parent
_INTERNALS = "sparse_operation_kit.compat.internals"

# Where the package asks first, and the names that may be absent there: by file, beginnings of names.
_ASKS_FIRST = {
    "compat/__init__.py": ["tf.keras.optimizers.legacy", "tf.keras.layers", "tf.keras.backend"],
    "compat/dispatch.py": ["tf.experimental.dispatch_for_api", "tf.experimental.unregister_dispatch_for"],
    "deeprec/collective_estimator.py": ["tf.compat.v1.estimator"],
    "serving/estimators.py": ["tf.compat.v1.estimator"],
    "dist_model_parallel/keras.py": ["tf.compat.v1.keras"],
    "compat/internals.py": ["tf.keras.mixed_precision", "handle_data_util."],
}


def _names_used(path: pathlib.Path) -> Iterator[tuple[int, str, Any]]:
    """The names in a file: line, name, and the object that the name's first part stands for."""
    tree = ast.parse(path.read_text())
    known = _imported(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Attribute):
            chain = _chain(node.value)
            if (
                chain
                and chain[0] == "tf"
                and len(node.targets) == 1
                and isinstance(node.targets[0], ast.Name)
            ):
                found = _resolved(known.get("tf"), chain[1:])
                if found is not _ABSENT:
                    known.setdefault(node.targets[0].id, found)
    yield from _chains(tree, known, frozenset())


def _imported(tree: ast.AST) -> dict[str, Any]:
    known: dict[str, Any] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            known.update({alias.asname: tf for alias in node.names if alias.name == "tensorflow"})
        elif isinstance(node, ast.ImportFrom) and node.module == _INTERNALS:
            for alias in node.names:
                known[alias.asname or alias.name] = getattr(internals, alias.name)
    return known


def _chains(node: ast.AST, known: dict[str, Any], hidden: frozenset[str]) -> Iterator[tuple[int, str, Any]]:
    if isinstance(node, (ast.FunctionDef, ast.Lambda)):
        hidden = hidden | _own_names(node)
    if isinstance(node, ast.Attribute):
        chain = _chain(node)
        if chain:
            if chain[0] in known and chain[0] not in hidden:
                yield node.lineno, ".".join(chain), known[chain[0]]
            return
    for child in ast.iter_child_nodes(node):
        yield from _chains(child, known, hidden)


def _own_names(function: ast.FunctionDef | ast.Lambda) -> frozenset[str]:
    """The arguments and variables of a function, which hide names of its module."""
    arguments = {argument.arg for argument in ast.walk(function.args) if isinstance(argument, ast.arg)}
    stored = {
        node.id
        for node in ast.walk(function)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }
    return frozenset(arguments | stored)


def _chain(node: ast.AST) -> list[str]:
    """The parts of a name; empty if the expression is none."""
    if isinstance(node, ast.Name):
        return [node.id]
    if isinstance(node, ast.Attribute):
        before = _chain(node.value)
        return [*before, node.attr] if before else []
    return []


def _resolved(found: Any, parts: list[str]) -> Any:
    """The object of a name, or _ABSENT."""
    for part in parts:
        found = getattr(found, part, _ABSENT)
    return found


def _missing(path: pathlib.Path) -> list[str]:
    may_be_absent = tuple(_ASKS_FIRST.get(path.relative_to(_FOLDER).as_posix(), ()))
    return [
        f"{path.name}:{line}: {name}"
        for line, name, root in _names_used(path)
        if _resolved(root, name.split(".")[1:]) is _ABSENT
        and not (may_be_absent and name.startswith(may_be_absent))
    ]


def test_tensorflow_has_every_name_that_the_package_uses():
    paths = sorted(_FOLDER.rglob("*.py"))
    names = {name for path in paths for _, name, _ in _names_used(path)}
    assert len(names) > 200 and "tf.compat.v1.add_to_collection" in names
    assert [missing for path in paths for missing in _missing(path)] == []


def test_a_name_that_is_missing_is_found(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(
        "import tensorflow as tf\n"
        "v1 = tf.compat.v1\n"
        "def f(v1):\n    return v1.argument\n"
        "def g():\n    return v1.no_such_name(tf.nn.relu, tf.nn.no_such_op)\n"
    )
    names = [
        name for _, name, root in _names_used(program) if _resolved(root, name.split(".")[1:]) is _ABSENT
    ]
    assert names == ["v1.no_such_name", "tf.nn.no_such_op"]
