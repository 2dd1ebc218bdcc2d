"""The job of a library's process: the rows, ids and gradients, which are the same in each process."""

from __future__ import annotations

import dataclasses
import json
import pathlib

import numpy as np

from bench import gradients, ids
from bench.axes import Bags, Tables


@dataclasses.dataclass(frozen=True)
class Job:
    """Tables, and several kinds of bags that are looked up in them, with their ids in files."""

    tables: Tables
    bags: tuple[Bags, ...]  # all with the same batch
    id_files: tuple[str, ...]  # files of ids.write_batches, one for each kind of bags
    batches: int
    threads: int
    seed: int

    @property
    def batch(self) -> int:
        """Bags per feature in a step."""
        return self.bags[0].batch

    def rows(self, feature: int) -> np.ndarray:
        """The initial rows of a feature's table, float32 [rows, dim]."""
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
        """Writes the job as JSON."""
        path.write_text(json.dumps(dataclasses.asdict(self)), encoding="utf-8")

    @classmethod
    def read(cls, path: pathlib.Path) -> Job:
        """Reads a job that `write` wrote."""
        fields = json.loads(path.read_text(encoding="utf-8"))
        fields["tables"] = Tables(**fields["tables"])
        fields["bags"] = tuple(Bags(**bags) for bags in fields["bags"])
        fields["id_files"] = tuple(fields["id_files"])
        return cls(**fields)
