"""Plants mistakes one at a time and shows which test notices each: do the tests protect what matters?

The mistakes are in tools/mutants/*.toml. Each entry is one `[[mutant]]`:

    file        the file that is changed
    what        the mistake, in a few words
    old, new    a text that the file has exactly once, and what replaces it
    tests       the nearest test targets, as labels of Bazel or test files
    cases       optional: the test cases, as a filter of GoogleTest or of `pytest -k`
    equivalent  instead of tests: why no test can notice it

The working tree is not changed: its files are copied to a folder of its own, which is built once; each
mistake then rebuilds what depends on its file. The outcomes are written to docs/mutants.md. Those of mistakes
that were not tried in this run stay.

Usage: mutants.py --check            whether each entry fits its file, and each row has an entry; runs nothing
       mutants.py --list             the mistakes
       mutants.py [--only PATTERN] [--new] [--jobs N]
                                     tries the mistakes whose file or description match the pattern;
                                     with --new only those without an outcome
Exit status: 1 if an entry is wrong, or a mistake that was tried is not noticed.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import os
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path

import count_tests

ROOT = Path(__file__).resolve().parent.parent
LISTS = Path("tools/mutants")
TABLE = Path("docs/mutants.md")

_INTRODUCTION = """# Planted mistakes
Each row is a mistake that `tools/mutants.py` plants in a copy of the sources, and the first test case that
fails with it. The program writes this page; the changes are in `tools/mutants/*.toml`.
"""
_SURVIVED = "**not noticed**"
_EQUIVALENT = "equivalent: "


@dataclasses.dataclass(frozen=True)
class Mutant:
    """A mistake to plant."""

    file: str
    what: str
    old: str
    new: str
    tests: Sequence[str] = ()
    cases: str = ""
    equivalent: str = ""

    def __str__(self) -> str:
        return f"{self.file}: {self.what}"

    @property
    def labels(self) -> list[str]:
        """The tests as labels of Bazel."""
        return [
            f"//{os.path.dirname(test)}:{Path(test).stem}" if test.endswith(".py") else test
            for test in self.tests
        ]

    def apply(self, text: str) -> str:
        """The file's text with the mistake."""
        return text.replace(self.old, self.new, 1)


def read_mutants(root: Path) -> list[Mutant]:
    """All entries, in the order of files' names."""
    found = []
    for path in sorted((root / LISTS).glob("*.toml")):
        found += [Mutant(**entry) for entry in tomllib.loads(path.read_text())["mutant"]]
    return found


def find_errors(root: Path, mutants: Sequence[Mutant]) -> Iterator[str]:
    """What is wrong with the entries, and with the rows of the page."""
    for mutant in mutants:
        path = root / mutant.file
        count = path.read_text().count(mutant.old) if path.is_file() else None
        if count != 1:
            yield f"{mutant}: " + (
                "no such file" if count is None else f"the old text is there {count} times"
            )
        if mutant.old == mutant.new:
            yield f"{mutant}: the old text is the new one"
        if bool(mutant.tests) == bool(mutant.equivalent):
            yield f"{mutant}: either tests or equivalent is needed"
    keys = [_key(mutant) for mutant in mutants]
    yield from (
        f"{' | '.join(key)}: two entries" for key in sorted({key for key in keys if keys.count(key) > 1})
    )
    stale = [key for key in read_outcomes(root) if key not in keys]
    yield from (f"{' | '.join(key)}: a row in {TABLE} without an entry" for key in stale)


def _key(mutant: Mutant) -> tuple[str, str]:
    """The first two cells of a mistake's row."""
    return f"`{mutant.file}`", mutant.what


def read_outcomes(root: Path) -> dict[tuple[str, str], str]:
    """The outcomes in the page, by the first two cells of their rows."""
    page = root / TABLE
    rows = re.findall(
        r"^\| (`.*`) \| (.*) \| (.*) \|$", page.read_text() if page.exists() else "", re.MULTILINE
    )
    return {(file, what): outcome for file, what, outcome in rows}


def write_outcomes(root: Path, mutants: Sequence[Mutant], outcomes: dict[tuple[str, str], str]) -> None:
    """Writes the page: the rows of all mutants that have an outcome."""
    known = {key: outcomes[key] for key in map(_key, mutants) if key in outcomes}
    equivalent = sum(outcome.startswith(_EQUIVALENT) for outcome in known.values())
    survived = sum(outcome == _SURVIVED for outcome in known.values())
    untried = len(mutants) - len(known)
    lines = [
        _INTRODUCTION,
        f"Of {len(known)} mistakes, {equivalent} change nothing that a caller can observe. Of the other "
        f"{len(known) - equivalent}, the tests notice {len(known) - equivalent - survived}."
        + (f" {untried} more are listed and have not been tried." if untried else ""),
        "",
        "| file | mistake | noticed by |",
        "|---|---|---|",
        *(f"| {' | '.join(key)} | {outcome} |" for key, outcome in known.items()),
    ]
    (root / TABLE).write_text("\n".join(lines) + "\n")


class Copy:
    """A copy of a checkout's files, in which mistakes are planted and tests run."""

    def __init__(self, root: Path, folder: Path, jobs: int) -> None:
        """Copies what has changed since the last copy."""
        self._folder = folder
        self._jobs = jobs
        listed = _run(root, "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard").split("\0")
        files = {name for name in listed if name and (root / name).is_file()}
        folder.mkdir(parents=True, exist_ok=True)
        record = folder / ".mutants-files"
        for name in set(record.read_text().split("\0") if record.exists() else ()) - files:
            (folder / name).unlink(missing_ok=True)
        record.write_text("\0".join(sorted(files)))
        for name in files:
            target = folder / name
            content = (root / name).read_bytes()
            if not target.exists() or target.read_bytes() != content:
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(content)
            target.chmod((root / name).stat().st_mode)
        _run(folder, "tools/setup.sh", "--horovod")

    @contextlib.contextmanager
    def fork_server(self) -> Iterator[None]:
        """Returns a context in which Python tests are forked from a process that has imported TensorFlow."""
        script = 'source tools/lib/common.sh; exec "$(sok_python)" tools/fork_server.py cat'
        # The server ends when its input does, even if this program is killed.
        server = subprocess.Popen(["bash", "-c", script], cwd=self._folder, stdin=subprocess.PIPE)
        try:
            yield
        finally:
            server.communicate()

    def failures_with(self, mutant: Mutant) -> list[str]:
        """Plants a mistake, runs its tests, and removes it. Returns what `failures` does."""
        path = self._folder / mutant.file
        original = path.read_text()
        try:
            path.write_text(mutant.apply(original))
            return self.failures(mutant.labels, mutant.cases)
        finally:
            path.write_text(original)

    def failures(self, labels: Sequence[str], cases: str = "") -> list[str]:
        """The failed cases of some tests; a test that ends without a failed case stands for itself.

        Raises:
          RuntimeError: Something did not build, or no test ran.
        """
        with tempfile.NamedTemporaryFile() as events:
            options = [f"--jobs={self._jobs}", f"--local_cpu_resources={self._jobs}", "--keep_going"]
            options += [
                "--test_timeout=300",
                f"--build_event_json_file={events.name}",
                "--test_output=summary",
            ]
            options += [f"--test_filter={cases}"] if cases else []
            options += ["--trim_test_configuration"]
            script = (
                "source tools/lib/common.sh; readarray -t folder < <(sok_test_folder_options); "
                'sok_bazel test "${folder[@]}" "$@"'
            )
            command = ["bash", "-c", script, "bash", *options, *labels]
            run = subprocess.run(command, cwd=self._folder, capture_output=True, text=True, check=False)
            # 0: all passed. 3: all built, some failed.
            if run.returncode not in (0, 3):
                raise RuntimeError(run.stderr[-3000:])
            counts = count_tests.Counts()
            count_tests.count_run(events.name, counts)
        if not counts.passed and not counts.failed:
            raise RuntimeError(f"No test ran: {labels} {cases}")
        return counts.failed


def _short(case: str) -> str:
    """A failed case without what its label says already: a Python module, or the program that crashed."""
    case = re.sub(r" tests[.][a-z0-9_]+[.]", " ", case)
    return re.sub(r" [.][a-z0-9_/]+$", " (crash)", case)


def _run(folder: Path, *command: str) -> str:
    return subprocess.run(command, cwd=folder, check=True, stdout=subprocess.PIPE, text=True).stdout


def try_all(copy: Copy, root: Path, mutants: Sequence[Mutant], chosen: Sequence[Mutant]) -> int:
    """Tries the chosen mistakes, writes the page after each, and returns how many were not noticed."""
    missed = 0
    for mutant in chosen:
        try:
            outcome = _try(copy, mutant)
        except RuntimeError as error:
            print(f"{mutant}: {error}", flush=True)
            missed += 1
            continue
        print(f"{mutant}: {outcome}", flush=True)
        missed += outcome == _SURVIVED
        # Read again, because another run may have added rows.
        write_outcomes(root, mutants, {**read_outcomes(root), _key(mutant): outcome})
    return missed


def _try(copy: Copy, mutant: Mutant) -> str:
    """The outcome of a mistake: its cell of the table."""
    if mutant.equivalent:
        return _EQUIVALENT + mutant.equivalent
    failed = copy.failures_with(mutant)
    if not failed:
        return _SURVIVED
    # A test that fails anyway notices nothing.
    label, _, case = failed[0].partition(" ")
    if failed := copy.failures([label], _filter_for(case) or mutant.cases):
        raise RuntimeError(f"These fail without a mistake: {failed}")
    return f"`{_short(f'{label} {case}')}`"


def _filter_for(case: str) -> str:
    """The filter for a failed case; "" for a program that crashed."""
    if case.startswith("."):
        return ""
    return re.sub(r"^tests[.][a-z0-9_]+[.](\w+).*", r"\1", case)


def main(arguments: Sequence[str]) -> int:
    """Runs the program; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--only", default="")
    parser.add_argument("--new", action="store_true")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    options = parser.parse_args(arguments)
    mutants = read_mutants(ROOT)
    chosen = [mutant for mutant in mutants if re.search(options.only, str(mutant))]
    if options.new:
        outcomes = read_outcomes(ROOT)
        chosen = [mutant for mutant in chosen if _key(mutant) not in outcomes]
    if options.list:
        print(*chosen, sep="\n")
        return 0
    errors = list(find_errors(ROOT, mutants))
    # Writing the page leaves out rows without an entry.
    errors = [error for error in errors if options.check or f" {TABLE}" not in error]
    print("".join(f"{error}\n" for error in errors), end="")
    if options.check or errors:
        return int(bool(errors))
    home = Path(os.environ.get("SOK_HOME", Path.home() / ".cache/sparse-operation-kit"))
    copy = Copy(ROOT, home / "mutants" / re.sub(r"\W", "_", str(ROOT)), options.jobs)
    with copy.fork_server():
        return int(try_all(copy, ROOT, mutants, chosen) > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
