"""Saving and restoring many small tables, compared with as many ordinary variables.

Both sides save with tf.compat.v1.train.Saver, which keeps one checkpoint: tables of LazyAdam, and
tf.Variables of the same rows with AdamOptimizer, whose slots are as large. They take turns in one process.
"""

from __future__ import annotations

import argparse
import pathlib
import tempfile

import numpy as np

from bench import flags, timing
from bench.report import Result

FLAGS = {
    "tables": flags.Flag(flags.number(), "tables, and variables", (300,)),
    "rows_each": flags.Flag(flags.number(), "rows of a table", 2_000),
    "dim": 16,
    "rounds": 7,
    "folder": flags.Flag(str, "where to write; by default the system's folder for temporary files"),
}


def measure(point: argparse.Namespace) -> list[Result]:
    """Measures one number of tables."""
    import tensorflow as tf

    import sparse_operation_kit as sok

    v1 = tf.compat.v1
    v1.logging.set_verbosity(v1.logging.ERROR)
    with tempfile.TemporaryDirectory(prefix="sok-tables-", dir=point.folder) as name:
        folder = pathlib.Path(name)
        with tf.Graph().as_default(), v1.Session() as session:
            session.run(sok.Init(global_batch_size=1, seed=1))
            tables = [sok.EmbeddingVariable(f"table_{number}", point.dim) for number in range(point.tables)]
            keys = tf.constant(np.arange(point.rows_each) * 2**40)
            loss = tf.add_n([tf.reduce_sum(tf.nn.embedding_lookup(table, keys)) for table in tables])
            steps = [sok.tf.keras.optimizers.LazyAdamOptimizer(0.1).minimize(loss, var_list=tables)]
            shape = [point.rows_each, point.dim]
            variables = [
                v1.get_variable(f"v_{number}", shape, use_resource=True) for number in range(point.tables)
            ]
            loss = tf.add_n([tf.reduce_sum(variable) for variable in variables])
            optimizer = v1.train.AdamOptimizer(0.1)
            steps.append(optimizer.minimize(loss, var_list=variables))
            slots = [optimizer.get_slot(one, name) for one in variables for name in ("m", "v")]
            sides = {"tables": _Side(session, folder, "tables", tables)}
            sides["variables"] = _Side(session, folder, "variables", [*variables, *slots])
            session.run(v1.global_variables_initializer())
            session.run(steps)
            results = []
            for what in ("save", "restore"):
                contenders = {name: timing.contender(getattr(side, what)) for name, side in sides.items()}
                found = timing.measure(contenders, point.rounds, calls=1)
                counts = {f"files of {name}": float(side.files()) for name, side in sides.items()}
                results.append(Result({"tables": point.tables, "what": what}, found, "tables", counts))
    return results


class _Side:
    """A Saver, and the folder of its checkpoint."""

    def __init__(self, session, folder: pathlib.Path, name: str, variables: list) -> None:
        import tensorflow as tf

        self._session, self._folder = session, folder / name
        self._folder.mkdir()
        self._saver = tf.compat.v1.train.Saver(variables, max_to_keep=1)
        self._step = 0

    def save(self) -> None:
        """Saves, which removes the checkpoint before."""
        self._step += 1
        self._saver.save(self._session, f"{self._folder}/model", self._step, write_meta_graph=False)

    def restore(self) -> None:
        """Restores the last checkpoint."""
        self._saver.restore(self._session, f"{self._folder}/model-{self._step}")

    def files(self) -> int:
        """The number of files of the checkpoint."""
        return len(list(self._folder.glob("model-*")))
