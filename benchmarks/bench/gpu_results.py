"""The --json file of cuda/programs/engine_benchmark."""

from __future__ import annotations

import dataclasses
import json
import pathlib

# What is shown by dim, in this order.
_SHOWN = (
    "find rows",
    "gather",
    "pool",
    "lookup",
    "find or insert",
    "insert",
    "update",
    "backward",
    "group step",
)


@dataclasses.dataclass(frozen=True)
class Point:
    """One case: its speed by the median of its rounds."""

    share_of_copy: float
    ids_per_s: float
    bytes_per_id: float


@dataclasses.dataclass(frozen=True)
class Line:
    """Cases that differ only in their dim."""

    what: str
    optimizer: str
    ids_per_bag: float  # 0: no bags
    points: dict[int, Point]

    @property
    def name(self) -> str:
        """As in "update, lazy_adam, 10 ids per bag"."""
        bags = f"{self.ids_per_bag:.0f} ids per bag" if self.ids_per_bag else ""
        return ", ".join(part for part in (self.what, self.optimizer, bags) if part)


@dataclasses.dataclass(frozen=True)
class GpuResults:
    """The cases of a run with batches of the usual size."""

    title: str
    is_host: bool
    left_out: list[str]
    cases: list[dict]

    def distributions(self) -> list[str]:
        """How ids were drawn, in the order of the file."""
        return list(dict.fromkeys(case["ids_drawn"] for case in self.cases))

    def lines(self, drawn: str) -> list[Line]:
        """The lines of one distribution."""
        lines: dict[tuple[str, str, int], Line] = {}
        for case in self.cases:
            if case["ids_drawn"] != drawn or case["what"] not in _SHOWN:
                continue
            key = (case["what"], case.get("optimizer", ""), round(case["ids_per_bag"]))
            line = lines.setdefault(key, Line(key[0], key[1], case["ids_per_bag"], {}))
            line.points.setdefault(
                case["dim"], Point(case["share_of_copy"], case["ids_per_s"], case["bytes_per_id"])
            )
        return sorted(lines.values(), key=lambda line: (_SHOWN.index(line.what), line.ids_per_bag > 0))


def read(path: pathlib.Path) -> GpuResults:
    """Reads a file; raises KeyError or ValueError for another kind of file."""
    values = json.loads(path.read_text(encoding="utf-8"))
    if values["program"] != "engine_benchmark" or values["format"] != 1:
        raise ValueError("not of this program, or of another version")
    is_host = values["device"] == "host"
    title = values["machine"]["device"]
    if is_host:
        title += ": the kernels ran on the host, so times mean nothing"
    # Leaves out copies, which have no ids, and batches of other sizes, which are not shown by dim.
    cases = [
        case for case in values["cases"] if case.get("ids", 0) not in (0, *values["options"]["more_ids"])
    ]
    return GpuResults(title, is_host, values["left_out"], cases)
