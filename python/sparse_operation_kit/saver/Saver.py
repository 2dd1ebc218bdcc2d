"""Saver: the rows of embedding variables in the raw files of the original SOK."""

from collections.abc import Callable, Sequence

import tensorflow as tf

from sparse_operation_kit import native
from sparse_operation_kit.core.communicator import communicator
from sparse_operation_kit.core.embedding_variable import EmbeddingVariable
from sparse_operation_kit.saver.agreement import Stages


class Saver:
    """Writes and reads the rows of embedding variables, and sets them from tensors.

    `<name>_keys.file` holds the keys in the width of the variable's `key_dtype`, `<name>_values.file` the
    rows as float32, both little-endian and without any header, where `<name>` is the variable's `m_var_name`.
    They are those of the original SOK, and hold no optimizer slots: `tf.compat.v1.train.Saver` saves the full
    state.

    Every method returns a scalar string tensor; running it does the work and gives `b'OK'`. Files appear
    under their names only when complete.
    """

    def dump_to_file(self, embedding_variable: EmbeddingVariable, filepath: str | tf.Tensor) -> tf.Tensor:
        """Returns the tensor that writes all rows into the directory `filepath`, made where it is missing.

        Every rank runs it, and writes its rows into the same files: all of them must see the directory.
        """
        handle = _checked(embedding_variable).handle
        counts = communicator().allgather(
            native.ops.sok_table_statistics([handle])[0, :1], f"rows of {embedding_variable.m_var_name}"
        )

        def run_stage(stage: str, proceed: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            return native.ops.sok_dump_stage(handle, filepath, counts, proceed, stage=stage)

        return _run_stages(embedding_variable, ("begin", "write", "publish"), run_stage)

    def restore_from_file(
        self, embedding_variable: EmbeddingVariable, filepath: str | tf.Tensor, *, name: str | None = None
    ) -> tf.Tensor:
        """Returns the tensor that makes the variable's rows those of the files in the directory `filepath`.

        Rows that are not in the files go, and the optimizer starts anew. Running it raises `NotFoundError`
        for missing files and `DataLossError` for files that are damaged, of another dim, or with keys that
        are none of its `key_dtype`; the variable is then as it was. The sizes of the files tell keys of 4
        bytes from those of 8.

        Every rank runs it, and takes its rows from the files, of however many ranks those are; each must see
        the directory, or a copy of it.

        Args:
          embedding_variable: Whose rows to set.
          filepath: The directory.
          name: The `<name>` of the files, where it is not the variable's `m_var_name`. The original calls the
            tables of a graph `EmbeddingVariable`, `EmbeddingVariable_1` and so on.
        """
        handle = _checked(embedding_variable).handle

        def run_stage(stage: str, proceed: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            return native.ops.sok_restore_stage(handle, filepath, proceed, stage=stage, file_name=name or "")

        return _run_stages(embedding_variable, ("check", "restore"), run_stage)

    def load_embedding_values(
        self, embedding_variable: EmbeddingVariable, tensors: tf.Tensor | Sequence[tf.Tensor]
    ) -> tf.Tensor:
        """Returns the tensor that gives key `i` the row `i` of `tensors`.

        Args:
          embedding_variable: Whose rows to set. Other rows and the optimizer's slots stay as they are.
          tensors: float32 `[n, dim]`, or a list or tuple of such, which is taken for one stacked tensor.
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
        return native.ops.sok_table_assign(embedding_variable.handle, keys, values)


# The original has the class at `saver.Saver.Saver`. Here `saver.Saver` is the class itself.
Saver.Saver = Saver  # type: ignore[attr-defined]


def _run_stages(
    variable: EmbeddingVariable,
    names: Sequence[str],
    run_stage: Callable[[str, tf.Tensor], tuple[tf.Tensor, tf.Tensor]],
) -> tf.Tensor:
    """Runs stages, each when all ranks have done the one before, and raises their errors in the end."""
    stages = Stages(f"Raw files of embedding variable '{variable.m_var_name}'")
    for name in names:
        stages.add(*run_stage(name, stages.proceed), name)
    return stages.raise_failures()


def _checked(variable: EmbeddingVariable) -> EmbeddingVariable:
    if not isinstance(variable, EmbeddingVariable):
        raise TypeError(f"sok.Saver handles an EmbeddingVariable, not {variable!r}")
    return variable
