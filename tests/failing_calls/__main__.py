"""python -m failing_calls: see README.md."""

from __future__ import annotations

import argparse
import os
import sys
from collections import Counter
from collections.abc import Sequence

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

from failing_calls import disks, exporting, loading, memory, saving
from failing_calls.runner import Run
from failing_calls.shim import Failure

SCENARIOS = (
    *saving.SCENARIOS,
    *loading.SCENARIOS,
    *exporting.SCENARIOS,
    *disks.SCENARIOS,
    *memory.SCENARIOS,
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns 0 if no case ended wrong."""
    names = [scenario.name for scenario in SCENARIOS]
    parser = argparse.ArgumentParser(prog="tools/failing_calls.sh", description=__doc__)
    parser.add_argument(
        "--only", choices=names, action="append", help="this scenario; can be given more than once"
    )
    parser.add_argument("--kind", action="append", help="only failures of this kind of call")
    parser.add_argument(
        "--sample", type=int, metavar="N", help="about N cases of each scenario instead of all"
    )
    parser.add_argument("--without-kills", action="store_true", help="no process is ended")
    options = parser.parse_args(arguments)
    total: dict[str, Counter] = {}
    for scenario in SCENARIOS:
        if options.only and scenario.name not in options.only:
            continue
        run = Run(scenario, lambda line: print(line, flush=True))
        run.run(lambda cases: _chosen(cases, options))
        outcomes = sum(run.outcomes.values(), Counter())
        print(f"{scenario.name:<14} of {run.possible:,} failures, {_text(outcomes)}", flush=True)
        for kinds, outcomes in run.outcomes.items():
            total.setdefault(kinds, Counter()).update(outcomes)
    print("\nBy kind of call:")
    for kinds, outcomes in total.items():
        print(f"{kinds:<14} {_text(outcomes)}")
    all_of_them = sum(total.values(), Counter())
    wrong = all_of_them["wrong"]
    print(f"{sum(all_of_them.values()) - wrong} passed, {wrong} failed")
    return 1 if wrong else 0


def _chosen(cases: Sequence[Failure], options: argparse.Namespace) -> list[Failure]:
    found = [one for one in cases if not options.kind or one.kinds in options.kind]
    if options.without_kills:
        found = [one for one in found if not one.how.startswith("kill")]
    return found[:: max(1, len(found) // options.sample)] if options.sample else found


def _text(outcomes: Counter) -> str:
    return f"{sum(outcomes.values()):,} cases: " + ", ".join(
        f"{n:,} {what}" for what, n in sorted(outcomes.items())
    )


if __name__ == "__main__":
    sys.exit(main())
