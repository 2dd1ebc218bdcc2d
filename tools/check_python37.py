"""Checks that files which run on Python 3.7 use nothing newer, as far as ruff does not check it.

Ruff reports most of the newer syntax. This reports the rest of it, `dict | dict`, types joined by `|` outside
of annotations, and functions and arguments of the standard library that came later.

Usage: python tools/check_python37.py [FILE_OR_FOLDER...]
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# As in `per-file-target-version` of pyproject.toml.
RUN_ON_PYTHON_37 = (
    *("python", "tests", "examples", "benchmarks"),
    *(
        f"tools/{name}.py"
        for name in ("count_tests", "fork_server", "make_wheel", "run_pytest", "wheel_check")
    ),
)
OLDEST = (3, 7)

# By module, or "" for methods of any object, names that Python 3.7 has not.
NEWER_NAMES = {
    "": {"bit_count", "hardlink_to", "is_relative_to", "removeprefix", "removesuffix", "with_stem"},
    "argparse": {"BooleanOptionalAction"},
    "ast": {"unparse"},
    "contextlib": {"chdir", "aclosing"},
    "functools": {"cache", "cached_property", "singledispatchmethod"},
    "graphlib": {"TopologicalSorter"},
    "importlib": {"metadata"},
    "importlib.resources": {"files", "as_file"},
    "itertools": {"batched", "pairwise"},
    "math": {"cbrt", "comb", "dist", "exp2", "isqrt", "lcm", "nextafter", "perm", "prod", "ulp"},
    "os": {"waitstatus_to_exitcode", "pidfd_open", "memfd_create"},
    "random": {"randbytes"},
    "shlex": {"join"},
    "statistics": {"NormalDist", "correlation", "fmean", "geometric_mean", "multimode", "quantiles"},
    "typing": {
        *(
            "Annotated",
            "Final",
            "Literal",
            "ParamSpec",
            "Protocol",
            "Self",
            "TypeAlias",
            "TypedDict",
            "final",
        ),
        *("get_args", "get_origin", "runtime_checkable", "Concatenate", "TypeGuard", "Never", "override"),
    },
}
_ALL_NEWER_NAMES = frozenset().union(*NEWER_NAMES.values())
# By the last name of a function, the named arguments that Python 3.7's has not.
NEWER_ARGUMENTS = {
    "zip": {"strict"},
    "dataclass": {"kw_only", "match_args", "slots", "weakref_slot"},
    "unlink": {"missing_ok"},
    "copytree": {"dirs_exist_ok"},
    "TemporaryDirectory": {"ignore_cleanup_errors", "delete"},
    "ArgumentParser": {"exit_on_error"},
    "accumulate": {"initial"},
    "Popen": {"group", "extra_groups", "process_group", "umask", "user", "pipesize"},
}


def find_newer(source: str, name: str) -> Iterator[tuple[int, str]]:
    """What a file uses that Python 3.7 has not: (line, what it is)."""
    tree = ast.parse(source, name)
    try:
        ast.parse(source, name, feature_version=OLDEST)
    except SyntaxError as error:
        yield error.lineno or 1, f"syntax that Python 3.7 has not: {error.msg}"
    in_annotations = set(_inside_annotations(tree))
    dicts = _Dicts(tree)
    for node in ast.walk(tree):
        if node in in_annotations:
            continue
        for side in _sides_of_or(node):
            if dicts.has(side):
                yield node.lineno, f"`|` of a dict, {ast.unparse(side)}: write {{**one, **other}}"
            elif _is_type(side):
                yield node.lineno, "`|` of types when the program runs: write typing.Union or Optional"
        if isinstance(node, ast.Attribute) and node.attr in _ALL_NEWER_NAMES:
            if node.attr in NEWER_NAMES[""] | NEWER_NAMES.get(ast.unparse(node.value), set()):
                yield node.lineno, f"{ast.unparse(node)}, which Python 3.7 has not"
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                if alias.name in NEWER_NAMES.get(node.module or ".", ()):
                    yield node.lineno, f"{node.module}.{alias.name}, which Python 3.7 has not"
        elif isinstance(node, ast.Call):
            function = ast.unparse(node.func).rpartition(".")[2]
            for argument in node.keywords:
                if argument.arg in NEWER_ARGUMENTS.get(function, ()):
                    yield node.lineno, f"{function}({argument.arg}=...), which Python 3.7 has not"


class _Dicts:
    """Tells which expressions of a file are dicts, by what is assigned to names and how they are annotated.

    Names are those of the whole file: one that is a dict in one function is taken for one in all of them.
    """

    def __init__(self, tree: ast.AST) -> None:
        self._names: set[str] = set()
        for node in ast.walk(tree):
            if isinstance(node, ast.Assign) and self.has(node.value):
                self._names.update(ast.unparse(target) for target in node.targets)
            elif isinstance(node, ast.AnnAssign) and _is_dict_type(node.annotation):
                self._names.add(ast.unparse(node.target))
            elif isinstance(node, ast.arg) and node.annotation and _is_dict_type(node.annotation):
                self._names.add(node.arg)

    def has(self, node: ast.expr) -> bool:
        """Whether an expression is a dict."""
        if isinstance(node, (ast.Dict, ast.DictComp)):
            return True
        if isinstance(node, ast.Call):
            return isinstance(node.func, ast.Name) and node.func.id in ("dict", "vars")
        if not isinstance(node, (ast.Name, ast.Attribute)):
            return False
        name = ast.unparse(node)
        return name == "os.environ" or name in self._names


def _is_dict_type(annotation: ast.expr) -> bool:
    text = ast.unparse(annotation).strip("'\"").rpartition(".")[2].lower()
    return text.split("[")[0] in ("dict", "defaultdict", "mapping", "mutablemapping", "ordereddict")


def _is_type(node: ast.expr) -> bool:
    """Whether a part of `a | b` can only be a type."""
    if isinstance(node, ast.Constant):
        return node.value is None
    base = node.value if isinstance(node, ast.Subscript) else node
    builtin = ("bool", "bytes", "dict", "float", "frozenset", "int", "list", "set", "str", "tuple", "type")
    return isinstance(base, ast.Name) and base.id in builtin


def _sides_of_or(node: ast.AST) -> list[ast.expr]:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        return [node.left, node.right]
    if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.BitOr):
        return [node.target, node.value]
    return []


def _inside_annotations(tree: ast.AST) -> Iterator[ast.AST]:
    """All parts of annotations, which are not run with `from __future__ import annotations`."""
    for node in ast.walk(tree):
        for annotation in (getattr(node, "annotation", None), getattr(node, "returns", None)):
            if annotation is not None:
                yield from ast.walk(annotation)


def main(arguments: Sequence[str]) -> int:
    """Prints what is newer; returns the exit status."""
    failed = False
    for place in map(Path, arguments or [ROOT / place for place in RUN_ON_PYTHON_37]):
        files = sorted(place.rglob("*.py")) if place.is_dir() else [place]
        for file in files:
            for line, message in sorted(find_newer(file.read_text(encoding="utf-8"), str(file))):
                print(f"{file}:{line}: {message}")
                failed = True
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
