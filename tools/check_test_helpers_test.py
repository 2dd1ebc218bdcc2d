"""The check of what tests/BUILD says about imports: what is missing, what is stale, and what is not asked."""

import pytest

import check_test_helpers

BUILD = """
_TESTS = [file[:-len(".py")] for file in glob(["*_test.py"])]
_HELPERS = {"low": [], "high": ["low"]}
_USED_BY = {"low": ["a_test"], "high": [test for test in _TESTS if test.startswith("ranks_")]}
[py_test(name = test) for test in _TESTS]
"""
FILES = {
    "low.py": "import os",
    "high.py": "from low import name",
    "a_test.py": "import low",
    "ranks_test.py": "from high import name\nimport low",
}


@pytest.fixture
def differences(tmp_path):
    """Writes the files that a folder of tests has beside FILES, and returns what the check finds there."""

    def write(files):
        for path, text in {"BUILD": BUILD, **FILES, **files}.items():
            (tmp_path / path).write_text(text)
        return list(check_test_helpers.find_differences(tmp_path))

    return write


def test_imports_as_listed_pass(differences):
    assert differences({}) == []


def test_what_a_listed_helper_imports_need_not_be_listed(differences):
    assert differences({"ranks_test.py": "import high, low"}) == []


@pytest.mark.parametrize(
    "text", ["import low", "from low import name", "def test():\n    import low", 'pytest_plugins = ["low"]']
)
def test_an_import_that_is_not_listed_is_found(differences, text):
    (message,) = differences({"b_test.py": text})
    assert "b_test.py imports low" in message and "_USED_BY" in message


def test_an_import_of_a_helper_that_is_not_listed_is_found(differences):
    (message,) = differences({"low.py": "import high"})
    assert "low.py imports high" in message and "_HELPERS['low']" in message


def test_a_stale_entry_is_found(differences):
    (message,) = differences({"a_test.py": "import os"})
    assert "a_test.py does not import low" in message


def test_tests_with_a_prefix_may_be_given_more_than_they_import(differences):
    assert differences({"ranks_test.py": "import os"}) == []
