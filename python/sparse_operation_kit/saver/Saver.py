"""Saver: writes and reads the rows of embedding variables in the original SOK's raw file format."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import tensorflow as tf

from sparse_operation_kit import native
from sparse_operation_kit.ranks.agreement import Stages
from sparse_operation_kit.ranks.communicator import communicator
from sparse_operation_kit.tables import table_parts
from sparse_operation_kit.tables.embedding_variable import EmbeddingVariable


class Saver:
    """Writes and reads the rows of embedding variables as raw files, and sets rows from tensors.

    `<name>_keys.file` holds the keys in the width of the variable's `key_dtype`, `<name>_values.file` the
    rows as float32, both little-endian and without a header, where `<name>` is the variable's `m_var_name`.
    This is the format of the original SOK. It has no optimizer slots; `tf.compat.v1.train.Saver` saves the
    full state.

    Every method returns a scalar string tensor; running it does the work, and its value is `b'OK'`. Files
    appear under their names only when they are complete.
    """

    def dump_to_file(self, embedding_variable: EmbeddingVariable, filepath: str | tf.Tensor) -> tf.Tensor:
        """Returns a tensor that writes all rows to the directory `filepath`, which is created if missing.

        Every rank must run it. Ranks write their rows into the same files, so all must see the directory.
        """
        rows = table_parts.of_parts(
            _checked(embedding_variable), lambda handle: native.ops.sok_table_statistics([handle])[0, :1]
        )
        counts = communicator().allgather(tf.concat(rows, 0), f"rows of {embedding_variable.m_var_name}")

        def run_stage(handle: tf.Tensor, stage: str, proceed: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            return native.ops.sok_dump_stage(handle, filepath, counts, proceed, stage=stage)

        return _run_stages(embedding_variable, ("begin", "write", "publish"), run_stage)

    def restore_from_file(
        self, embedding_variable: EmbeddingVariable, filepath: str | tf.Tensor, *, name: str | None = None
    ) -> tf.Tensor:
        """Returns a tensor that replaces the variable's rows by those of the files in `filepath`.

        Rows that are not in the files are removed, and optimizer slots start from their initial values.
        Running the tensor raises `NotFoundError` if files are missing, and `DataLossError` if files are
        damaged, have another dim, or have keys outside the range of `key_dtype`; the variable is then
        unchanged. Keys may have 4 or 8 bytes; the sizes of the files show which.

        Every rank must run it and see the directory or a copy of it. The files may have been written by any
        number of ranks.

        Args:
          embedding_variable: The variable whose rows are replaced.
          filepath: The directory.
          name: The `<name>` of the files, if it differs from the variable's `m_var_name`. The original SOK
            calls the tables of a graph `EmbeddingVariable`, `EmbeddingVariable_1` and so on.
        """
        _checked(embedding_variable)

        def run_stage(handle: tf.Tensor, stage: str, proceed: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            return native.ops.sok_restore_stage(handle, filepath, proceed, stage=stage, file_name=name or "")

        return _run_stages(embedding_variable, ("check", "restore"), run_stage)

    def load_embedding_values(
        self, embedding_variable: EmbeddingVariable, tensors: tf.Tensor | Sequence[tf.Tensor]
    ) -> tf.Tensor:
        """Returns a tensor that sets the row of key `i` to row `i` of `tensors`.

        Args:
          embedding_variable: The variable whose rows are set. Other rows and optimizer slots do not change.
          tensors: float32 `[n, dim]`, or a list or tuple of such tensors, which are concatenated.
        """
        _checked(embedding_variable)
        if isinstance(tensors, (list, tuple)):
            if not tensors:
                raise ValueError(f"No tensors for embedding variable '{embedding_variable.m_var_name}'")
            values = tf.concat([tf.convert_to_tensor(tensor, tf.float32) for tensor in tensors], axis=0)
        else:
            values = tf.convert_to_tensor(tensors, tf.float32)
        if not values.shape.is_compatible_with([None, embedding_variable.dim]):
            raise ValueError(
                f"Embedding variable '{embedding_variable.m_var_name}' takes rows of shape "
                f"[n, {embedding_variable.dim}], not {values.shape}"
            )
        keys = tf.range(tf.shape(values, out_type=tf.int64)[0], dtype=tf.int64)
        return table_parts.on_all_parts(
            embedding_variable, lambda handle: native.ops.sok_table_assign(handle, keys, values)
        )


# In the original SOK the class is `saver.Saver.Saver`. Here `saver.Saver` is the class itself.
Saver.Saver = Saver  # type: ignore[attr-defined]


def _run_stages(
    variable: EmbeddingVariable,
    names: Sequence[str],
    run_stage: Callable[[tf.Tensor, str, tf.Tensor], tuple[tf.Tensor, tf.Tensor]],
) -> tf.Tensor:
    """Runs the stages, each after all ranks have finished the previous one, and raises errors at the end."""
    stages = Stages(f"Raw files of embedding variable '{variable.m_var_name}'")
    for name in names:
        proceed = stages.proceed
        stages.add(table_parts.of_parts(variable, lambda handle: run_stage(handle, name, proceed)), name)  # noqa: B023
    return stages.raise_failures()


def _checked(variable: EmbeddingVariable) -> EmbeddingVariable:
    if not isinstance(variable, EmbeddingVariable):
        raise TypeError(f"sok.Saver handles an EmbeddingVariable, not {variable!r}")
    return variable
