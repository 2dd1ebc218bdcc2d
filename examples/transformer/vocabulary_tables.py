"""The vocabulary table: sliced by columns over ranks, whole on every rank, or a hash table of 64-bit ids."""

from __future__ import annotations

from typing import Any

import horovod.tensorflow as hvd
import number_words
import numpy as np
import tensorflow as tf

import sparse_operation_kit as sok
import sparse_operation_kit.dist_model_parallel as dmp

KINDS = ("cut", "whole", "hashed")


class VocabularyTable:
    """A table of one of the KINDS.

    Attributes:
      kind: one of KINDS.
      variables: those of the table on this rank.
    """

    def __init__(self, kind: str, rows: int, columns: int) -> None:
        """Makes the table in the default graph.

        Args:
          kind: "cut": each rank has some columns of all rows. "whole": each rank has all. "hashed": each rank
            has the rows of some ids, which are hashes of the words.
          rows: at least the words of the vocabulary. A hash table has only the rows that are used.
          columns: floats of a row.
        """
        self.kind, self._rows, self._columns = kind, rows, columns
        if kind == "hashed":
            initializer = tf.compat.v1.random_normal_initializer(stddev=columns**-0.5)
            self._table = sok.EmbeddingVariable("vocabulary", columns, initializer=initializer)
            self._size = self._table.size()
            self.variables = [self._table]
        elif kind == "whole":
            self._table = tf.compat.v1.get_variable(
                "vocabulary", initializer=self._first_rows(), use_resource=True
            )
            self.variables = [self._table]
        else:
            # The most elements of a slice of columns: as many slices as there are ranks.
            threshold = -(-rows * columns // hvd.size())
            self._layer = dmp.DistributedEmbedding(
                [dmp.Embedding(rows, columns, name="vocabulary")],
                column_slice_threshold=threshold,
                # Sources and targets are looked up in one table, with one exchange.
                input_table_map=[0, 0],
            )
            self._layer.build(None)
            self.variables = self._layer.variables

    def look_up(self, source: tf.Tensor, target: tf.Tensor) -> list[tf.Tensor]:
        """The rows of tokens, int64 [batch, s] and [batch, t]: float32 [batch, s or t, columns]."""
        if self.kind == "cut":
            return self._layer([source, target])
        if self.kind == "whole":
            return [tf.nn.embedding_lookup(self._table, tokens) for tokens in (source, target)]
        ids = tf.constant(number_words.hashed_ids())
        return sok.group_embedding_lookup(
            [self._table] * 2, [tf.gather(ids, tokens) for tokens in (source, target)]
        )

    def start(self, session: tf.compat.v1.Session) -> None:
        """Gives a cut table the rows that a whole one has. All ranks call it."""
        if self.kind == "cut":
            self._layer.set_weights([self._first_rows()], session=session)

    def own_variables(self) -> list[tf.Variable]:
        """This rank's ordinary variables of the table and its optimizer's slots, once the graph has these."""
        return [variable for variable in tf.compat.v1.global_variables() if self._is_of_table(variable)]

    def bytes(self, session: tf.compat.v1.Session, variables: list[tf.Variable]) -> int:
        """The bytes of this rank's part of the table; `variables` are `own_variables`."""
        if self.kind != "hashed":
            return bytes_of(variables)
        # Weights and Adam's two moments of the rows that this rank has.
        return int(session.run(self._size)) * 3 * 4 * self._columns

    def _is_of_table(self, variable: tf.Variable) -> bool:
        # A slot has the name of its variable as a prefix.
        if self.kind == "hashed":
            return False
        names = [own.op.name for own in self.variables]
        return any(variable.op.name == name or variable.op.name.startswith(f"{name}/") for name in names)

    def _first_rows(self) -> np.ndarray:
        rows = np.random.default_rng(1).normal(0, self._columns**-0.5, [self._rows, self._columns])
        rows[number_words.NUMBER_OF[number_words.PAD]] = 0
        return rows.astype(np.float32)


def bytes_of(variables: list[Any]) -> int:
    """The bytes of ordinary variables."""
    return sum(variable.shape.num_elements() * variable.dtype.size for variable in variables)
