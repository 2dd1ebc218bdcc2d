# Tags: slow
# Not on GPUs: a program; the tests gpu_* have one
"""Documents: snippets run, commands and link targets exist, tables agree with the code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import harness  # noqa: F401 - quiets TensorFlow in the children too
import local_cluster
import ranks
from document_snippets import DOCUMENTS, OF_OTHER_LIBRARIES, ROOT, blocks, run
from sparse_operation_kit import EmbeddingVariable, compat, native
from sparse_operation_kit.changes import replacements
from sparse_operation_kit.deeprec import names
from sparse_operation_kit.optimizers.mapping import known_optimizers

OPTIMIZERS = ROOT / "docs" / "optimizers.md"

_UNTOUCHED = {
    "stay": "stay as they are",
    "slots decay": "weights stay, slots decay",
    "move": "weights and slots change as with a gradient of zero",
}

# Shorter texts for the engine's ranges, because all hyper-parameters are finite.
_RANGES = {
    "finite": "",
    "finite and at least 0": " ≥ 0",
    "finite and above 0": " > 0",
    "finite and at most 0": " ≤ 0",
    "between 0 and 1": " in [0, 1]",
    "at least 0 and below 1": " in [0, 1)",
}


def with_tables() -> str:
    """The document with the tables between their marks replaced."""
    text = OPTIMIZERS.read_text()
    for name, part in {"classes": _classes(), "rules": _rules()}.items():
        begin, end = f"<!-- {name}: tests/documentation_test.py -->\n", f"<!-- end of {name} -->"
        pattern = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}", re.DOTALL)
        assert pattern.search(text), f"the document has no marks of '{name}'"
        text = pattern.sub(lambda _, new=f"{begin}{part}{end}": new, text)
    return text


def _table(*rows: tuple[str, ...]) -> str:
    lines = [f"| {' | '.join(row)} |" for row in rows]
    lines.insert(1, "|" + "---|" * len(rows[0]))
    return "\n".join(lines) + "\n"


def _classes() -> str:
    rows = [("class", "rules", "slots of other names in TensorFlow")]
    for entry in known_optimizers():
        rules = ", ".join(f"`{rule}`" for rule in entry.rules)
        for replacing in entry.row_rules.values():
            rules += f"; with DeepRec's arithmetic `{replacing}`"
        slots = ", ".join(f"`{ours}`: `{theirs}`" for theirs, ours in entry.slots.items())
        rows.append((f"`{entry.public_name}`", rules, slots))
    return _table(*rows)


def _rules() -> str:
    rows = [("rule", "arithmetic of", "hyper-parameters", "slots", "rows without a gradient")]
    for name, rule in native.optimizer_rules().items():
        hyper = ", ".join(f"`{one}`{_RANGES[span]}" for one, span in rule["hyper"].items())
        slots = ", ".join(map(_slot, rule["slots"], rule["slots"].values()))
        rows.append((f"`{name}`", rule["source"], hyper, slots or "none", _UNTOUCHED[rule["untouched"]]))
    return _table(*rows)


def _slot(name: str, slot: dict) -> str:
    details = [
        *(["one number per row"] if slot["one_per_row"] else []),
        *([f"from `{slot['fill']}`"] if slot["fill"] else []),
    ]
    return f"`{name}`" + (f" ({', '.join(details)})" if details else "")


# v1_programs_test runs the others.
PYTHON = [block for block in blocks("python") if not block[0].startswith(OF_OTHER_LIBRARIES)]
OF_RANKS = [snippet for snippet in PYTHON if snippet[0].startswith("running-on-ranks.md")]
OF_SERVERS = [snippet for snippet in PYTHON if snippet[0].startswith("parameter-servers.md")]
OF_ONE_PROCESS = [snippet for snippet in PYTHON if snippet not in OF_RANKS]
SHELL = blocks("bash")
# CHANGELOG.md tells of files that are gone, so its links are not checked.
LINKING = sorted({*DOCUMENTS, ROOT / "CONTRIBUTING.md", *ROOT.glob("*/README.md")})


def test_there_are_snippets():
    documents = {where.split(":")[0] for where, _ in PYTHON}
    assert {
        "from-tensorflow.md",
        "from-distributed-embeddings.md",
        "api.md",
        "running-on-ranks.md",
    } <= documents
    assert SHELL


@pytest.mark.parametrize("code", [pytest.param(code, id=where) for where, code in OF_ONE_PROCESS])
def test_snippet_runs(code, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run(code, tmp_path)


@pytest.mark.parametrize("code", [pytest.param(code, id=where) for where, code in OF_RANKS])
def test_snippet_runs_on_ranks(code, tmp_path, monkeypatch):
    # What a snippet saves does not stay for the next run.
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    program = tmp_path / "program.py"
    program.write_text(code)
    job = ranks.launch(program, ranks=2)
    assert job.returncode == 0 and not job.timed_out, job.report()
    # Only the first rank prints.
    assert ("loss" in job.outputs[0]) == ("print" in code)
    assert "loss" not in job.outputs[1]


@pytest.mark.parametrize("code", [pytest.param(code, id=where) for where, code in OF_SERVERS])
def test_snippet_runs_on_servers(code, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    program = tmp_path / "program.py"
    program.write_text(code)
    tasks = [("ps", 0), ("ps", 1), ("chief", 0), ("worker", 0)]
    local_cluster.run_tasks(tasks, tmp_path, tmp_path / "checkpoints", str(program))
    assert "chief: " in (tmp_path / "chief_0.log").read_text()


@pytest.mark.parametrize("code", [pytest.param(code, id=where) for where, code in SHELL])
def test_commands_exist(code):
    for line in code.splitlines():
        for path in re.findall(r"(?<![\w/.])(?:tools|examples|benchmarks)/[\w./-]+", line):
            assert (ROOT / path).exists(), f"{line!r} names {path}"


def _without_blocks(document: Path) -> str:
    return re.sub(r"^```.*?^```", "", document.read_text(), flags=re.DOTALL | re.MULTILINE)


def _anchors(document: Path) -> set[str]:
    """The anchors that GitHub gives a document's headings."""
    headings = re.findall(r"^#+ (.*)$", _without_blocks(document), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("document", [pytest.param(path, id=str(path.relative_to(ROOT))) for path in LINKING])
def test_links_lead_somewhere(document):
    prose = re.sub(r"`[^`]*`", "", _without_blocks(document))
    for link in re.findall(r"\]\(([^)\s]+)\)", prose):
        path, _, anchor = link.partition("#")
        if path.startswith("https:"):
            continue
        target = document.parent / path if path else document
        assert target.exists(), f"{document.name} links to {link}"
        assert not anchor or anchor in _anchors(target), f"{document.name} links to {link}"


def test_tables_of_optimizers_are_those_of_the_package():
    if not (compat.HAS_KERAS_2 and compat.IS_TENSORFLOW_2):
        pytest.skip("the tables name optimizers as TensorFlow 2 with Keras 2 does")
    assert OPTIMIZERS.read_text() == with_tables(), f"run {__file__} as it says"


def test_the_tables_of_deeprecs_names_have_those_of_the_package():
    page = (ROOT / "docs" / "from-deeprec.md").read_text().partition("## Every name\n")[2]
    absent, there = {}, []
    # A cell with anything but names is about something that has no name.
    for cell, answer, note in re.findall(
        r"^\| ((?:`[\w.]+`(?:, )?)+) \| ([^|]*) \|(.*)\|$", page, re.MULTILINE
    ):
        listed = re.findall(r"`([\w.]+)`", cell)
        if answer == "absent":
            # Errors have the note without links, and without the marks of code.
            instead = re.sub(r"(: )?\[([^\]]*)\]\(#[^)]*\)|`", "", note)
            absent.update(dict.fromkeys(listed, re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", instead).strip()))
        else:
            there += listed
    assert absent == names.ABSENT
    assert [name for name in there if name in names.ADDED] == list(names.ADDED)
    assert len(there) == len(set(there))
    methods = [name.partition(".")[2] for name in there if name.startswith("EmbeddingVariable.")]
    assert len(methods) == 5 and all(hasattr(EmbeddingVariable, method) for method in methods)


def _table_of_replacements():
    """The table in the format of docs/tensorflow-changes.md."""
    lines = []
    for part, installed_by in replacements.parts().items():
        title = f"### {part.value[0].upper()}{part.value[1:]}"
        installed = f"Installed by {installed_by}."
        lines += [title, "", installed, "", "| what | how | why | TensorFlow |", "|---|---|---|---|"]
        for entry in replacements.entries():
            if entry.part is part:
                versions = f">= {'.'.join(map(str, entry.since))}"
                if entry.before is not None:
                    versions += f", < {'.'.join(map(str, entry.before))}"
                lines.append(f"| `{entry.name}` | {entry.how.value} | {entry.reason} | {versions} |")
        lines.append("")
    return "\n".join(lines)


def test_the_list_of_what_changes_in_tensorflow_is_the_table_of_the_code():
    shown = (ROOT / "docs" / "tensorflow-changes.md").read_text().partition("## The table\n\n")[2]
    wanted = _table_of_replacements()
    assert shown.strip() == wanted.strip(), f"docs/tensorflow-changes.md is to show:\n{wanted}"


if __name__ == "__main__":
    OPTIMIZERS.write_text(with_tables())
