"""Makes the tables of docs/optimizers.md. Run as a program, it writes them there:

tools/python.sh tests/document_tables.py
"""

from __future__ import annotations

import pathlib
import re

from sparse_operation_kit import native
from sparse_operation_kit.optimizers.mapping import known_optimizers

OPTIMIZERS = pathlib.Path(__file__).resolve().parent.parent / "docs" / "optimizers.md"

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
        begin, end = f"<!-- {name}: tests/document_tables.py -->\n", f"<!-- end of {name} -->"
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


if __name__ == "__main__":
    OPTIMIZERS.write_text(with_tables())
