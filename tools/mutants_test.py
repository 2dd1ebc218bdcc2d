"""The list of planted mistakes: what is wrong with entries, and the page with the outcomes."""

import pytest

import mutants

ENTRY = {
    "file": "a.cc",
    "what": "one too few",
    "old": "i <= n",
    "new": "i < n",
    "tests": ["//a:a_test"],
}
ROW = "| `a.cc` | one too few | `//a:a_test A.Counts` |"


@pytest.fixture
def root(tmp_path):
    """A checkout with the file and the row of ENTRY."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "a.cc").write_text("for (int i = 0; i <= n; ++i) {}\n")
    (tmp_path / mutants.TABLE).write_text(f"Text\n{ROW}\n")
    return tmp_path


def errors(root, *changes):
    return list(mutants.find_errors(root, [mutants.Mutant(**{**ENTRY, **change}) for change in changes]))


def test_an_entry_that_fits_has_no_error(root):
    assert errors(root, {}) == []


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"file": "b.cc"}, "b.cc: one too few: no such file"),
        ({"old": "j <= n"}, "the old text is there 0 times"),
        ({"old": "i"}, "the old text is there 4 times"),
        ({"new": "i <= n"}, "the old text is the new one"),
        ({"tests": []}, "either tests or equivalent is needed"),
        ({"equivalent": "n is 0"}, "either tests or equivalent is needed"),
        ({"what": "one too many"}, "`a.cc` | one too few: a row in docs/mutants.md without an entry"),
    ],
)
def test_an_entry_that_does_not_fit_is_found(root, change, error):
    assert any(error in found for found in errors(root, change))


def test_two_entries_of_one_name_are_found(root):
    assert errors(root, {}, {"new": "i < n - 1"}) == ["`a.cc` | one too few: two entries"]


def test_entries_are_read_and_name_their_tests(root):
    folder = root / mutants.LISTS
    folder.mkdir(parents=True)
    (folder / "python.toml").write_text(
        "[[mutant]]\nfile = 'a.py'\nwhat = 'w'\nold = '''\\n'''\nnew = ''\n"
        "tests = ['tests/a_test.py', '//b:c']\n"
    )
    (mutant,) = mutants.read_mutants(root)
    assert mutant.labels == ["//tests:a_test", "//b:c"]
    assert mutant.apply("a\\nb") == "ab"


def test_outcomes_are_written_in_the_order_of_the_list_and_read_again(root):
    listed = [mutants.Mutant(**{**ENTRY, "what": what}) for what in ("new", "one too few", "same", "untried")]
    outcomes = mutants.read_outcomes(root)
    assert outcomes == {("`a.cc`", "one too few"): "`//a:a_test A.Counts`"}
    outcomes["`a.cc`", "new"] = "**not noticed**"
    outcomes["`a.cc`", "same"] = "equivalent: n is 0"
    outcomes["`a.cc`", "stale"] = "`//a:a_test A.Old`"
    mutants.write_outcomes(root, listed, outcomes)
    page = (root / mutants.TABLE).read_text()
    assert (
        "Of 3 mistakes, 1 change nothing that a caller can observe. Of the other 2, the tests notice 1."
        in page
    )
    assert page.endswith(
        f"| `a.cc` | new | **not noticed** |\n{ROW}\n| `a.cc` | same | equivalent: n is 0 |\n"
    )
    del outcomes["`a.cc`", "stale"]
    assert mutants.read_outcomes(root) == outcomes


class FakeCopy:
    """Stands for a copy whose tests fail as the mistake's new text says."""

    def failures(self, labels, cases=""):
        return ["//a:b_test B.Flaky"] if "//a:b_test" in labels else []

    def failures_with(self, mutant):
        return self.failures(mutant.labels) or [mutant.new]


def test_a_mistake_that_is_not_noticed_and_a_test_that_fails_anyway_are_reported(root, capsys):
    chosen = [
        mutants.Mutant(**{**ENTRY, "new": "//a:a_test A.Sums"}),
        mutants.Mutant(**{**ENTRY, "what": "other", "tests": ["//a:b_test"]}),
    ]
    assert mutants.try_all(FakeCopy(), root, chosen, chosen) == 1
    assert "These fail without a mistake: ['//a:b_test B.Flaky']" in capsys.readouterr().out
    assert mutants.read_outcomes(root) == {("`a.cc`", "one too few"): "`//a:a_test A.Sums`"}
