"""What a peer's process is asked to hold: the same rows, ids and gradients in each of them."""

from __future__ import annotations

import dataclasses
import json
import pathlib

import numpy as np

from bench import gradients, ids
from bench.axes import Bags, Tables


@dataclasses.dataclass(frozen=True)
class Job:
    """Tables, and several kinds of bags that are looked up in them, written to files."""

    tables: Tables
    bags: tuple[Bags, ...]  # all with the same batch
    id_files: tuple[str, ...]  # what ids.write_batches wrote, one for each kind of bags
    batches: int
    threads: int
    seed: int

    @property
    def batch(self) -> int:
        """Bags of a feature in a step."""
        return self.bags[0].batch

    def rows(self, feature: int) -> np.ndarray:
        """The rows that a feature's table starts from, float32 [rows, dim]."""
        rng = np.random.default_rng([self.seed, feature])
        rows = rng.random((self.tables.rows_per_table, self.tables.dim), dtype=np.float32)
        rows -= 0.5
        rows *= 0.1
        return rows

    def gradients(self, feature: int) -> np.ndarray:
        """The gradients of a feature's outputs, float32 [batch, dim]."""
        return gradients.of_feature(self.seed, feature, self.batch, self.tables.dim)

    def batch_sets(self) -> list[list[ids.Batch]]:
        """The batches of each kind of bags."""
        return [
            ids.read_batches(pathlib.Path(path), self.tables.features, self.batch, self.batches)
            for path in self.id_files
        ]

    def write(self, path: pathlib.Path) -> None:
        """Writes it as JSON."""
        path.write_text(json.dumps(dataclasses.asdict(self)), encoding="utf-8")

    @classmethod
    def read(cls, path: pathlib.Path) -> Job:
        """What `write` wrote."""
        fields = json.loads(path.read_text(encoding="utf-8"))
        fields["tables"] = Tables(**fields["tables"])
        fields["bags"] = tuple(Bags(**bags) for bags in fields["bags"])
        fields["id_files"] = tuple(fields["id_files"])
        return cls(**fields)
