"""Checks the imports of the package, and the includes of C++ and CUDA sources.

Imports: there is no cycle, none goes from a lower layer to a higher one, and only one folder, which has what
differs between versions, imports TensorFlow's private modules and compares TensorFlow's version.

An import inside a function counts like one at the top of its module. Imports under `if TYPE_CHECKING:` do not
count, because they never run.

Includes: folders do not include each other in a circle, and none includes a folder of a higher layer. Tests
do not count: they may include what they compare.

Usage: python tools/check_layers.py [FOLDER_OF_THE_PACKAGE]

With a folder, checks its imports only.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

PACKAGE = "sparse_operation_kit"

# The folders and modules of the package in each layer, lowest first. A module may import from lower layers
# and from its own folder. python/README.md says what the layers are for.
LAYERS: tuple[tuple[str, ...], ...] = (
    ("_version", "arguments", "newer_python"),
    ("compat", "native"),
    ("kit_lib", "server"),
    ("changes", "graphs"),
    ("ranks",),
    ("tables",),
    ("lookup",),
    ("checkpoint", "optimizers"),
    ("saver",),
    ("serving",),
    ("embeddings", "feature_columns", "tf"),
    ("core", "deeprec", "dist_model_parallel", "experiment"),
)
# TensorFlow's private modules, and the only folder of the package that imports them.
PRIVATE = ("tensorflow.core", "tensorflow.python")
MAY_IMPORT_PRIVATE = "compat"
# Allowed imports from a lower layer to a higher one, (importer, imported). python/README.md has the reasons.
EXCEPTIONS: frozenset[tuple[str, str]] = frozenset()

# The folders of C++ and CUDA sources in each layer, lowest first; a folder stands for those in it. A file may
# include from lower layers and from its own entry. cc/README.md says what the folders are for.
CPP_LAYERS: tuple[tuple[str, ...], ...] = (
    ("cc/base",),
    ("cc/disk", "cc/initializers", "cc/lookup", "cc/optimizers", "cc/placement"),
    ("cc/table",),
    ("cc/messages",),
    ("cc/engine",),
    ("cc/cpu", "cuda"),
    ("cc/checkpoint", "cc/vocabulary"),
    ("sok_ops",),
)
CPP_ROOTS = ("cc", "cuda", "sok_ops")
_CPP_INCLUDE = r'^#include "((?:{})/[^"]+)"'.format("|".join(CPP_ROOTS))
CPP_SUFFIXES = (".h", ".cc", ".cu", ".cuh")
# Folders of tests, and of programs that only tests run.
CPP_TEST_FOLDERS = frozenset({"testing", "contract", "on_host", "programs", "fuzz"})

Imports = Mapping[str, Mapping[str, int]]


def read_imports(folder: Path) -> dict[str, dict[str, int]]:
    """Reads which modules of a package import each other.

    Args:
      folder: the package's folder, which has the package's name.

    Returns:
      For each module, the modules that it imports and the line of each one's first import. An imported
      function or class counts as an import of its module.
    """
    files = {_module_name(folder, path): path for path in sorted(folder.rglob("*.py"))}
    return {module: _imports_of(module, path, files) for module, path in files.items()}


def find_cycles(imports: Imports) -> list[list[str]]:
    """Import cycles. Leaves out a cycle that shares a module with one that is already listed."""
    cycles: list[list[str]] = []
    for module in imports:
        cycle = _shortest_path(imports, module, module)
        if cycle and not any(set(cycle) & set(known) for known in cycles):
            cycles.append(cycle)
    return cycles


def find_private_imports(folder: Path) -> Iterator[tuple[str, int, str]]:
    """The imports of TensorFlow's private modules that are not allowed: (file, line, imported)."""
    for path in sorted(folder.rglob("*.py")):
        file = path.relative_to(folder)
        if file.parts[0] == MAY_IMPORT_PRIVATE:
            continue
        for node in _statements_that_run(ast.parse(path.read_text(), str(path))):
            for name in _imported_names(node, package=""):
                if name.startswith(PRIVATE):
                    yield str(file), node.lineno, name


def find_version_checks(folder: Path) -> Iterator[tuple[str, int, str]]:
    """The uses of TensorFlow's version that are not allowed: (file, line, expression).

    A message may have `tf.__version__`, and a function may get `compat.VERSION` as an argument.
    """
    for path in sorted(folder.rglob("*.py")):
        file = path.relative_to(folder)
        if file.parts[0] == MAY_IMPORT_PRIVATE:
            continue
        tree = ast.parse(path.read_text(), str(path))
        in_messages = {
            inner
            for node in ast.walk(tree)
            if isinstance(node, ast.FormattedValue)
            for inner in ast.walk(node)
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and node not in in_messages:
                if ast.unparse(node) == "tf.__version__":
                    yield str(file), node.lineno, "tf.__version__"
            if isinstance(node, ast.Compare):
                for side in (node.left, *node.comparators):
                    if ast.unparse(side).rpartition(".")[2] == "VERSION":
                        yield str(file), node.lineno, ast.unparse(node)


def find_upward_imports(
    imports: Imports,
    layers: Sequence[Sequence[str]] = LAYERS,
    exceptions: frozenset[tuple[str, str]] = EXCEPTIONS,
) -> list[tuple[str, str]]:
    """The imports that the layers do not allow, and the exceptions that do not occur: (importer, imported).

    Raises:
      ValueError: a module's folder is in no layer.
    """
    layer_of = {part: layer for layer, parts in enumerate(layers) for part in parts}

    def allowed(importer: str, imported: str) -> bool:
        if _part(importer) == _part(imported) or not _part(importer):
            return True
        if not _part(imported):
            return False  # the package itself is above all layers
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


def read_includes(root: Path) -> dict[tuple[str, str], str]:
    """Reads which folders' C++ and CUDA sources include each other; tests are left out.

    Args:
      root: the folder that paths of includes begin at.

    Returns:
      For each pair of folders, (including, included), the first file that includes.
    """
    pairs: dict[tuple[str, str], str] = {}
    for path in sorted(found for top in CPP_ROOTS for found in (root / top).rglob("*")):
        file = path.relative_to(root)
        if path.suffix not in CPP_SUFFIXES or "_test." in path.name or CPP_TEST_FOLDERS & set(file.parts):
            continue
        for included in re.findall(_CPP_INCLUDE, path.read_text(), re.M):
            pair = (file.parent.as_posix(), Path(included).parent.as_posix())
            if pair[0] != pair[1]:
                pairs.setdefault(pair, file.as_posix())
    return pairs


def find_upward_includes(
    pairs: Mapping[tuple[str, str], str], layers: Sequence[Sequence[str]] = CPP_LAYERS
) -> Iterator[tuple[str, str]]:
    """The includes that the layers do not allow: (file, included folder).

    Raises:
      ValueError: a folder is in no layer.
    """
    layer_of = {part: layer for layer, parts in enumerate(layers) for part in parts}

    def part_of(folder: str) -> str:
        parts = [part for part in layer_of if folder == part or folder.startswith(part + "/")]
        if not parts:
            raise ValueError(f"No layer has {folder}: see CPP_LAYERS in tools/check_layers.py")
        return max(parts, key=len)

    for (including, included), file in pairs.items():
        own, other = part_of(including), part_of(included)
        if own != other and layer_of[own] <= layer_of[other]:
            yield file, included


def main(arguments: Sequence[str]) -> int:
    """Prints the errors; returns the exit status."""
    if arguments:
        return int(_check_imports(Path(arguments[0])))
    root = Path(__file__).resolve().parent.parent
    failures = [_check_imports(root / "python" / PACKAGE), _check_includes(root)]
    return int(any(failures))


def _check_includes(root: Path) -> bool:
    pairs = read_includes(root)
    graph: dict[str, dict[str, int]] = {}
    for including, included in pairs:
        graph.setdefault(including, {})[included] = 0
    try:
        cycles, upward = find_cycles(graph), list(find_upward_includes(pairs))
    except ValueError as error:
        print(error)
        return True
    for cycle in cycles:
        print(f"Circle of includes: {' -> '.join(cycle)}")
        for pair in zip(cycle, cycle[1:], strict=False):
            print(f"  {pairs[pair]} includes {pair[1]}")
    for file, included in upward:
        print(f"{file}: includes {included}, which is not in a lower layer")
    return bool(cycles or upward)


def _check_imports(folder: Path) -> bool:
    imports = read_imports(folder)
    if not imports:
        print(f"There is no module in {folder}")
        return True
    try:
        cycles, upward = find_cycles(imports), find_upward_imports(imports)
    except ValueError as error:
        print(error)
        return True
    for cycle in cycles:
        print(f"Import cycle: {' -> '.join(cycle)}")
    for importer, imported in upward:
        line = imports.get(importer, {}).get(imported)
        if line is None:
            print(f"EXCEPTIONS lists an import that does not occur: {importer} imports {imported}")
        else:
            print(f"{importer}, line {line}: imports {imported}, which is not in a lower layer")
    private = list(find_private_imports(folder))
    for file, line, imported in private:
        print(f"{file}, line {line}: imports {imported}, which only {MAY_IMPORT_PRIVATE}/ may")
    checks = list(find_version_checks(folder))
    for file, line, expression in checks:
        print(
            f"{file}, line {line}: {expression}: only {MAY_IMPORT_PRIVATE}/ may ask for TensorFlow's version"
        )
    return bool(cycles or upward or private or checks)


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
    """The full names of what a statement in a module of `package` imports."""
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


def _shortest_path(imports: Imports, start: str, end: str) -> list[str]:
    """The shortest path of imports from `start` to `end`, both included; empty if there is none."""
    paths = [[start]]
    seen: set[str] = set()
    for path in paths:  # breadth-first: grows during the loop
        for imported in imports.get(path[-1], {}):
            if imported == end:
                return [*path, imported]
            if imported not in seen:
                seen.add(imported)
                paths.append([*path, imported])
    return []


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
