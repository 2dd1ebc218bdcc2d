"""Checks the imports of the package: no circles, and none from a lower layer to a higher one.

An import inside a function counts as one at the top of its module. Only imports under `if TYPE_CHECKING:`
do not count, as no program runs them.

Usage: python tools/check_layers.py [FOLDER_OF_THE_PACKAGE]
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

PACKAGE = "sparse_operation_kit"

# The folders and modules of the package in each layer, from the lowest up. A module may import what is in
# lower layers, and in its own folder. docs/design.md says what the layers are for.
LAYERS: tuple[tuple[str, ...], ...] = (
    ("_version", "compat", "kit_lib", "native"),
    ("core",),
    ("lookup",),
    ("checkpoint", "optimizers"),
    ("saver",),
    ("embeddings", "feature_columns", "tf"),
    ("deeprec", "experiment"),
)
# Imports from a lower layer to a higher one that docs/design.md gives a reason for: (importer, imported).
EXCEPTIONS: frozenset[tuple[str, str]] = frozenset()

Imports = Mapping[str, Mapping[str, int]]


def read_imports(folder: Path) -> dict[str, dict[str, int]]:
    """The imports of a package's modules by each other.

    Args:
      folder: the package's; its name is the package's.

    Returns:
      By module, the modules that it imports, each with the line where it first does. An imported name that is
      no module counts for the module that it is taken from.
    """
    files = {_module_name(folder, path): path for path in sorted(folder.rglob("*.py"))}
    return {module: _imports_of(module, path, files) for module, path in files.items()}


def find_circles(imports: Imports) -> list[list[str]]:
    """Modules that import each other in a circle: one shortest circle for each set of such modules."""
    circles: list[list[str]] = []
    for module in imports:
        circle = _shortest_way(imports, module, module)
        if circle and not any(set(circle) & set(known) for known in circles):
            circles.append(circle)
    return circles


def find_upward_imports(
    imports: Imports,
    layers: Sequence[Sequence[str]] = LAYERS,
    exceptions: frozenset[tuple[str, str]] = EXCEPTIONS,
) -> list[tuple[str, str]]:
    """(importer, imported) of the imports that the layers do not allow; exceptions that are none, too."""
    layer_of = {part: layer for layer, parts in enumerate(layers) for part in parts}

    def allowed(importer: str, imported: str) -> bool:
        if _part(importer) == _part(imported) or not _part(importer):
            return True
        if not _part(imported):
            return False  # the package as a whole is above all of its parts
        return layer_of[_part(importer)] > layer_of[_part(imported)]

    unknown = sorted({_part(module) for module in imports if _part(module)} - set(layer_of))
    if unknown:
        raise ValueError(f"No layer has {', '.join(unknown)}: see LAYERS in tools/check_layers.py")
    upward = {
        (importer, imported)
        for importer, all_imported in imports.items()
        for imported in all_imported
        if not allowed(importer, imported)
    }
    return sorted(upward ^ exceptions)


def main(arguments: Sequence[str]) -> int:
    """Prints what is wrong; returns the exit status."""
    folder = Path(arguments[0]) if arguments else Path(__file__).resolve().parent.parent / "python" / PACKAGE
    imports = read_imports(folder)
    if not imports:
        print(f"There is no module in {folder}")
        return 1
    try:
        circles, upward = find_circles(imports), find_upward_imports(imports)
    except ValueError as error:
        print(error)
        return 1
    for circle in circles:
        print(f"A circle of imports: {' -> '.join(circle)}")
    for importer, imported in upward:
        line = imports.get(importer, {}).get(imported)
        if line is None:
            print(f"EXCEPTIONS lists an import that is not there: {importer} of {imported}")
        else:
            print(f"{importer}, line {line}: imports {imported}, which is not in a lower layer")
    return 1 if circles or upward else 0


def _module_name(folder: Path, path: Path) -> str:
    parts = path.relative_to(folder.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _part(module: str) -> str:
    """The folder or module of the package that `module` belongs to; empty for the package itself."""
    return module.split(".")[1] if "." in module else ""


def _imports_of(module: str, path: Path, modules: Mapping[str, Path]) -> dict[str, int]:
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    found: dict[str, int] = {}
    for node in _statements_that_run(ast.parse(path.read_text(), str(path))):
        for name in _imported_names(node, package):
            while name and name not in modules:
                name = name.rpartition(".")[0]  # a function or class: its module
            if name and name != module:
                found.setdefault(name, node.lineno)
    return found


def _statements_that_run(node: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and _is_type_checking(child.test):
            for otherwise in child.orelse:
                yield otherwise
                yield from _statements_that_run(otherwise)
            continue
        yield child
        yield from _statements_that_run(child)


def _is_type_checking(test: ast.expr) -> bool:
    name = test.attr if isinstance(test, ast.Attribute) else getattr(test, "id", None)
    return name == "TYPE_CHECKING"


def _imported_names(node: ast.AST, package: str) -> list[str]:
    """The full names of what a statement imports, in a module of `package`."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        source = node.module or ""
        if node.level:
            parts = package.split(".")
            source = ".".join([*parts[: len(parts) - node.level + 1], *filter(None, [source])])
        return [f"{source}.{alias.name}" for alias in node.names]
    if isinstance(node, ast.Call) and ast.unparse(node.func) in ("importlib.import_module", "__import__"):
        return [name.value for name in node.args[:1] if isinstance(name, ast.Constant)]
    return []


def _shortest_way(imports: Imports, start: str, end: str) -> list[str]:
    """The modules from `start` to `end`, both included, along imports; empty where there is no way."""
    ways = [[start]]
    seen: set[str] = set()
    for way in ways:  # grows while it is gone through
        for imported in imports.get(way[-1], {}):
            if imported == end:
                return [*way, imported]
            if imported not in seen:
                seen.add(imported)
                ways.append([*way, imported])
    return []


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
