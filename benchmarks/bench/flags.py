"""The flags of workloads: their names with parsers and meanings, and the combinations of their values."""

from __future__ import annotations

import argparse
import itertools
import pathlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

OPTIMIZERS = ("lazy_adam", "adam", "adagrad", "sgd", "rowwise_adagrad")
ROW_DTYPES = ("float32", "float16", "bfloat16")


class Flag(NamedTuple):
    """A flag. If its default is a tuple, it takes several values; if it is False, it takes none."""

    parse: Callable[[str], Any]
    help: str
    default: Any = None


def number(kind: type = int, least: float = 1) -> Callable[[str], Any]:
    """A parser of finite numbers of at least `least`."""

    def parse(text: str) -> Any:
        what = "whole number" if kind is int else "number"
        try:
            value = kind(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is not a {what}") from None
        if not least <= value < float("inf"):
            raise argparse.ArgumentTypeError(f"{text} is not a {what} of at least {least:g}")
        return value

    return parse


def one_of(what: str, known: Sequence[str]) -> Callable[[str], str]:
    """A parser of one of the `known` names; `what` says in the message what they name."""

    def parse(text: str) -> str:
        if text not in known:
            raise argparse.ArgumentTypeError(f"unknown {what} {text!r}; known are {', '.join(known)}")
        return text

    return parse


_COUNT, _POSITIVE = number(), number(float, 1e-9)
# Flags that several workloads have, each with a default of its own.
_COMMON = {
    "features": Flag(_COUNT, "features, each with its own table"),
    "batch": Flag(_COUNT, "bags per feature in a step, over all ranks"),
    "dim": Flag(_COUNT, "floats per row"),
    "hotness": Flag(_COUNT, "ids per bag, on average"),
    "zipf": Flag(number(float, 0), "Zipf exponent of ids; 0 is uniform"),
    "table_mb": Flag(_POSITIVE, "MB of rows, all tables together"),
    "rows": Flag(_COUNT, "rows of all tables together, instead of --table_mb where there is one"),
    "optimizer": Flag(one_of("optimizer", OPTIMIZERS), "one of " + ",".join(OPTIMIZERS)),
    "threads": Flag(number(int, 0), "threads of each library; over ranks, 0 divides the cores among them"),
    "batches": Flag(_COUNT, "batches of ids that the steps rotate over"),
    "rounds": Flag(_COUNT, "interleaved rounds, without the warm-up"),
    "calls": Flag(_COUNT, "steps of each contender in a round"),
    "seed": Flag(int, "seed of ids, rows and gradients"),
    "hidden": Flag(_COUNT, "units of the model's hidden layer"),
    "ranks": Flag(_COUNT, "numbers of ranks, started on this machine"),
    "transport": Flag(one_of("transport", ("mpi", "gloo")), "mpi (mpirun) or gloo (horovodrun)"),
    "cycle_time": Flag(_POSITIVE, "HOROVOD_CYCLE_TIME, ms"),
}
_OUTPUT = {
    "json": Flag(pathlib.Path, "file to write all numbers to"),
    "plot": Flag(pathlib.Path, "picture to draw, .png or .svg"),
    "saved": Flag(pathlib.Path, "files of --json to report instead of measuring", ()),
    "into": Flag(pathlib.Path, "Markdown file of which tables with the same heads are replaced"),
}


def make_parser(name: str, description: str, flags: Mapping[str, Any]) -> argparse.ArgumentParser:
    """A parser of a workload's flags, and of the report's. A common flag is given by its default."""
    parser = argparse.ArgumentParser(name, description=description)
    for flag_name, value in {**flags, **_OUTPUT}.items():
        flag = value if isinstance(value, Flag) else _COMMON[flag_name]._replace(default=value)
        if flag.default is False:
            parser.add_argument(f"--{flag_name}", action="store_true", help=flag.help)
            continue
        several = isinstance(flag.default, tuple)
        text = ",".join(map(str, flag.default)) if several else flag.default
        parser.add_argument(
            f"--{flag_name}",
            type=_list_of(flag.parse) if several else flag.parse,
            default=flag.default,
            help=f"{flag.help} (default: {text})" + ("; several: a,b" if several else ""),
        )
    return parser


def points(values: argparse.Namespace, together: Sequence[str] = ()) -> Iterator[argparse.Namespace]:
    """All combinations of the flags with several values, except those in `together`, which stay tuples."""
    together = (*together, *_OUTPUT)
    names = [name for name, value in vars(values).items() if isinstance(value, tuple)]
    several = [name for name in names if name not in together]
    for chosen in itertools.product(*(getattr(values, name) for name in several)):
        yield argparse.Namespace(**{**vars(values), **dict(zip(several, chosen))})


def _list_of(item: Callable[[str], Any]) -> Callable[[str], tuple]:
    def parse(text: str) -> tuple:
        return tuple(item(part) for part in text.split(","))

    return parse
