"""tools/check_layers.py: what counts as an import or an include, cycles, and layers."""

import subprocess
import sys
from pathlib import Path

import pytest

import check_layers

LAYERS = (("base",), ("core",), ("lookup", "saver"))


@pytest.fixture
def package(tmp_path):
    """A function that writes the files of a package, {path in the package: text}, and returns its folder."""

    def write(files):
        folder = tmp_path / "kit"
        for path, text in {"__init__.py": "", **files}.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(text)
        return folder

    return write


def _upward(folder, exceptions=frozenset()):
    return check_layers.find_upward_imports(check_layers.read_imports(folder), LAYERS, exceptions)


@pytest.mark.parametrize(
    "statement",
    [
        "import kit.lookup.group",
        "import kit.lookup.group as group",
        "from kit.lookup import group",
        "from kit.lookup.group import look_up",
        "from ..lookup import group",
        "from ..lookup.group import look_up",
        "from .. import lookup\n",
        "def f():\n    from kit.lookup import group",
        "class C:\n    def f(self):\n        import kit.lookup.group",
        "try:\n    import kit.lookup.group\nexcept ImportError:\n    pass",
        "if some_condition:\n    import kit.lookup.group",
        "if TYPE_CHECKING:\n    pass\nelse:\n    import kit.lookup.group",
        "import importlib\nimportlib.import_module('kit.lookup.group')",
    ],
)
def test_what_counts_as_an_import(package, statement):
    folder = package({"core/variable.py": statement, "lookup/__init__.py": "", "lookup/group.py": ""})
    [(importer, imported)] = _upward(folder)
    assert importer == "kit.core.variable"
    assert imported in ("kit.lookup.group", "kit.lookup")


@pytest.mark.parametrize(
    "statement",
    [
        "from tensorflow.python.framework import ops",
        "import tensorflow.core.framework.types_pb2",
        "def f():\n    from tensorflow.python import eager",
    ],
)
def test_only_one_folder_imports_private_modules(package, statement):
    folder = package({"compat/internals.py": statement, "core/variable.py": statement})
    [(file, _, imported)] = check_layers.find_private_imports(folder)
    assert file == "core/variable.py"
    assert imported.startswith(("tensorflow.python.", "tensorflow.core."))


@pytest.mark.parametrize(
    "statement",
    [
        'if tf.__version__.startswith("1."):\n    pass',
        "from kit import compat\nNEW = compat.VERSION >= (2, 0)",
        "from kit.compat.version import VERSION\nOLD = (2, 0) > VERSION",
    ],
)
def test_only_one_folder_asks_for_tensorflows_version(package, statement):
    folder = package({"compat/version.py": statement, "core/variable.py": statement})
    [(file, _, _)] = check_layers.find_version_checks(folder)
    assert file == "core/variable.py"


def test_messages_and_arguments_may_have_the_version(package):
    folder = package({"core/variable.py": "f(compat.VERSION)\nprint(f'TensorFlow {tf.__version__}')"})
    assert not list(check_layers.find_version_checks(folder))


def test_public_modules_may_be_imported(package):
    folder = package({"core/variable.py": "import tensorflow.compat.v1 as tf\nfrom tensorflow import keras"})
    assert not list(check_layers.find_private_imports(folder))


@pytest.mark.parametrize(
    "statement",
    [
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from kit.lookup import group",
        "import typing\nif typing.TYPE_CHECKING:\n    import kit.lookup.group",
        "# import kit.lookup.group",
        "import lookup.group",
        "import kittens.lookup.group",
    ],
)
def test_what_does_not_count_as_an_import(package, statement):
    folder = package({"core/variable.py": statement, "lookup/__init__.py": "", "lookup/group.py": ""})
    assert _upward(folder) == []


def test_imports_down_and_within_a_folder_are_allowed(package):
    folder = package(
        {
            "__init__.py": "from kit.core import a\nfrom kit import lookup",
            "base.py": "",
            "core/a.py": "import kit.base\nfrom kit.core import b",
            "core/b.py": "",
            "lookup/__init__.py": "from kit.lookup import group",
            "lookup/group.py": "from kit import base\nfrom kit.core import a",
        }
    )
    assert _upward(folder) == []
    assert check_layers.find_cycles(check_layers.read_imports(folder)) == []


def test_imports_of_the_same_layer_and_of_the_package_are_not_allowed(package):
    folder = package(
        {
            "lookup/group.py": "import kit.saver.save\nfrom kit import version",
            "saver/save.py": "",
            "core/a.py": "import kit",
        }
    )
    assert _upward(folder) == [
        ("kit.core.a", "kit"),
        ("kit.lookup.group", "kit"),
        ("kit.lookup.group", "kit.saver.save"),
    ]


def test_exceptions_are_allowed_and_must_occur(package):
    folder = package({"core/a.py": "import kit.lookup.group", "lookup/group.py": ""})
    known = ("kit.core.a", "kit.lookup.group")
    stale = ("kit.core.a", "kit.lookup.gone")
    assert _upward(folder, frozenset({known})) == []
    assert _upward(folder, frozenset({known, stale})) == [stale]


def test_a_folder_without_a_layer_is_an_error(package):
    with pytest.raises(ValueError, match="No layer has novel"):
        _upward(package({"novel/a.py": ""}))


def test_cycles_are_found_through_functions_and_packages(package):
    folder = package(
        {
            "core/a.py": "def f():\n    from kit.core import b",
            "core/b.py": "from kit.core.c import x",
            "core/c.py": "from kit.core import a",
            "saver/__init__.py": "from kit.saver import save",
            "saver/save.py": "import kit.saver",
            "lookup/alone.py": "import kit.core.a",
        }
    )
    cycles = check_layers.find_cycles(check_layers.read_imports(folder))
    assert sorted(cycles) == [
        ["kit.core.a", "kit.core.b", "kit.core.c", "kit.core.a"],
        ["kit.saver", "kit.saver.save", "kit.saver"],
    ]


def test_a_syntax_error_names_the_module(package):
    with pytest.raises(SyntaxError, match=r"broken\.py"):
        check_layers.read_imports(package({"core/broken.py": "def"}))


def test_the_program_prints_the_errors(package):
    folder = package(
        {"graphs/a.py": "\nimport kit.lookup.b", "lookup/b.py": "import kit.graphs.a", "native/c.py": ""}
    )
    program = [sys.executable, str(Path(check_layers.__file__)), str(folder)]
    run = subprocess.run(program, capture_output=True, text=True, check=False, timeout=60)
    assert run.returncode == 1
    assert run.stdout.splitlines() == [
        "Import cycle: kit.graphs.a -> kit.lookup.b -> kit.graphs.a",
        "kit.graphs.a, line 2: imports kit.lookup.b, which is not in a lower layer",
    ]


def test_a_folder_without_modules_is_an_error(tmp_path, capsys):
    assert check_layers.main([str(tmp_path)]) == 1
    assert "no module" in capsys.readouterr().out


@pytest.fixture
def sources(tmp_path):
    """A function that writes C++ files, {path: included paths}, and reads their includes."""

    def write(files):
        for path, included in files.items():
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / path).write_text("".join(f'#include "{name}"\n' for name in included))
        return check_layers.read_includes(tmp_path)

    return write


def test_a_circle_of_includes_between_folders(sources):
    pairs = sources(
        {
            "cuda/group/a.h": ["cuda/group/b.h", "cc/base/status.h"],
            "cuda/group/b.cc": ["cuda/sharded/c.h"],
            "cuda/sharded/d.cu": ["cuda/group/a.h"],
        }
    )
    graph = {
        folder: {included: 0 for including, included in pairs if including == folder} for folder, _ in pairs
    }
    assert check_layers.find_cycles(graph) == [["cuda/group", "cuda/sharded", "cuda/group"]]
    assert pairs["cuda/group", "cuda/sharded"] == "cuda/group/b.cc"


def test_includes_of_higher_layers(sources):
    pairs = sources(
        {
            "cc/engine/engine.h": ["cc/cpu/group/plan.h", "cc/base/span.h"],
            "cc/cpu/group/plan.h": ["cc/engine/engine.h", "cc/cpu/table/table.h"],
            "cuda/table/table.h": ["cc/cpu/table/table.h", "cc/table/options.h"],
            "cuda/table/table_test.cc": ["cc/cpu/table/table.h"],
            "cc/engine/contract/cases.cc": ["cc/cpu/table/table.h"],
            "sok_ops/kernels/lookup.cc": ["cuda/table/table.h", "cc/checkpoint/save.h"],
        }
    )
    assert sorted(check_layers.find_upward_includes(pairs)) == [
        ("cc/engine/engine.h", "cc/cpu/group"),
        ("cuda/table/table.h", "cc/cpu/table"),
    ]


def test_a_folder_in_no_layer_is_an_error(sources):
    with pytest.raises(ValueError, match="cc/elsewhere"):
        list(check_layers.find_upward_includes(sources({"cc/elsewhere/a.h": ["cc/base/b.h"]})))
