"""What tools/check_python37.py finds, and what it lets pass."""

import pytest

import check_python37

_FUTURE = "from __future__ import annotations\n"


def found(code):
    return [message for _, message in check_python37.find_newer(_FUTURE + code, "file.py")]


@pytest.mark.parametrize(
    "code",
    [
        "print({'a': 1} | other)",
        "print(other | {key: 1 for key in keys})",
        "own = {name: 1 for name in names}\nrun(own | launch)",
        "own = launch = dict(a=1)\nrun(own | x)",
        "def run(flags: dict[str, int]):\n    flags |= other",
        "def run(flags: Mapping[str, int]):\n    return flags | other",
        "flags: collections.OrderedDict = make()\nrun(other | flags)",
        "import os\nrun(env=os.environ | more)",
        "class A:\n    def __init__(self):\n        self.x = {}\n        self.x |= other",
    ],
)
def test_a_union_of_dicts_is_found(code):
    messages = found(code)
    assert messages and all("`|` of a dict" in message for message in messages)


@pytest.mark.parametrize(
    "code", ["Names = list[str] | None", "isinstance(x, int | str)", "f(x=None | Tensor)"]
)
def test_a_union_of_types_that_runs_is_found(code):
    assert "`|` of types" in found(code)[0]


@pytest.mark.parametrize(
    ("code", "what"),
    [
        ("print(f'{number=}')", "syntax"),
        ("if (n := 1):\n    pass", "syntax"),
        ("name.removeprefix('x')", "name.removeprefix"),
        ("@functools.cache\ndef f():\n    pass", "functools.cache"),
        ("from functools import cache", "functools.cache"),
        ("from math import floor, prod", "math.prod"),
        ("math.prod(shape)", "math.prod"),
        ("zip(a, b, strict=True)", "zip(strict=...)"),
        ("path.unlink(missing_ok=True)", "unlink(missing_ok=...)"),
        ("@dataclasses.dataclass(frozen=True, slots=True)\nclass A:\n    x: int", "dataclass(slots=...)"),
    ],
)
def test_what_is_newer_is_found(code, what):
    (message,) = found(code)
    assert what in message


@pytest.mark.parametrize(
    "code",
    [
        "x: int | None = None",
        "def f(a: dict[str, int] | None) -> list[int] | None:\n    return a",
        "print({1} | {2}, flags | os.O_CREAT, mask | (a > b), a.keys() | b.keys())",
        "known = set(a)\nknown |= {1, 2}",
        "print({**one, **other})",
        "np.prod(shape), cache(f), os.path.join(a, b), ' '.join(c), zip(a, b)",
        "removeprefix(name, 'x')",
        "from sparse_operation_kit.newer_python import removeprefix",
    ],
)
def test_what_python_37_has_passes(code):
    assert found(code) == []


def test_the_line_is_that_of_the_use():
    assert [line for line, _ in check_python37.find_newer("a = {}\n\nb = a | c\n", "file.py")] == [3]


def test_files_are_listed_and_are_a_failure(tmp_path, capsys):
    (tmp_path / "folder").mkdir()
    bad, good = tmp_path / "folder" / "bad.py", tmp_path / "good.py"
    bad.write_text("print({} | {})\n")
    good.write_text("print({})\n")
    assert check_python37.main([str(good)]) == 0
    assert capsys.readouterr().out == ""
    assert check_python37.main([str(tmp_path)]) == 1
    assert f"{bad}:1: `|` of a dict" in capsys.readouterr().out
