"""python -m attack --seconds N: attacks checkpoints for a while. See tools/attack.sh."""

from __future__ import annotations

import argparse
import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

from attack import runner


def main() -> int:
    """Returns 0 if nothing was lost."""
    names = [scenario.name for scenario in runner.SCENARIOS]
    parser = argparse.ArgumentParser(prog="tools/attack.sh", description=__doc__)
    parser.add_argument(
        "--seconds", type=float, default=60.0, help="how long; each scenario is tried once at least"
    )
    parser.add_argument(
        "--only", choices=names, action="append", help="this scenario; can be given more than once"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the first try; each further one adds one")
    options = parser.parse_args()
    chosen = [scenario for scenario in runner.SCENARIOS if not options.only or scenario.name in options.only]
    found = runner.run(chosen, options.seconds, options.seed, lambda line: print(line, flush=True))
    for line in runner.summary(chosen, found):
        print(line)
    return 1 if any(counts["lost"] for counts in found.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
