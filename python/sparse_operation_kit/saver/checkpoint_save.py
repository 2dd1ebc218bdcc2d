"""Saves the tables of a `tf.compat.v1.train.Saver`, on all ranks together.

rank 0: the lock of the prefix
-> SokCheckpointStage begin -> write -> publish -> read, the ranks agreeing on failures after each
-> rank 0: SaveV2 of the other variables and of one reference for each table -> `checkpoint`, `.meta`
-> the ranks agree on whether rank 0 got all of it written -> SokEndCheckpoint
-> rank 0: old tables go, and the lock is released
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import inspect
import numbers
import os
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python.training.saving import saveable_object

from sparse_operation_kit import native
from sparse_operation_kit.checkpoint import own_files, prefix_lock
from sparse_operation_kit.checkpoint.paths import path_problem
from sparse_operation_kit.core import global_step
from sparse_operation_kit.core.communicator import communicator
from sparse_operation_kit.core.embedding_variable import EmbeddingVariable
from sparse_operation_kit.saver import old_checkpoints, retention
from sparse_operation_kit.saver.agreement import Stages, agree, list_of
from sparse_operation_kit.saver.table_saveables import RenamedTable, name_of, variable_of

# What a rank waits for that saves alone, in the words of the message that it gets.
_HINT = "every rank saves: give all of them the same checkpoint_dir and hooks"
# How long another process that saves to the same prefix is waited for.
_PATIENCE_SECONDS = 60.0


@dataclasses.dataclass(frozen=True)
class _Ending:
    """What a save's ops do not know by themselves, and the ops that end it.

    Attributes:
      incremental: Whether the save adds to earlier checkpoints.
      refusal: Fed why this save must not begin, its error's code and message.
      succeeded: Fed whether this rank's part is done.
      of_all: Whether each rank's is.
      end: Tells the tables.
    """

    incremental: bool
    refusal: tuple[tf.Tensor, tf.Tensor]
    succeeded: tf.Tensor
    of_all: tf.Tensor
    end: tf.Operation


# By graph and by the name of the tensor that saves.
_endings: weakref.WeakKeyDictionary[tf.Graph, dict[str, _Ending]] = weakref.WeakKeyDictionary()
# By graph, the prefix of the last checkpoint.
_last_saved: weakref.WeakKeyDictionary[tf.Graph, str] = weakref.WeakKeyDictionary()


class _Reference(saveable_object.SaveableObject):
    """What TensorFlow's checkpoint holds of a table: where the table's own is."""

    def __init__(self, table: EmbeddingVariable | RenamedTable, reference: tf.Tensor) -> None:
        spec = saveable_object.SaveSpec(reference, "", table.checkpoint_key, tf.string)
        super().__init__(table, [spec], table.checkpoint_key)


def add_ops(
    tables: Sequence[EmbeddingVariable | RenamedTable],
    prefix: tf.Tensor,
    incremental: bool,
    save_others: Callable[[Callable[[Any], Any]], tf.Tensor],
) -> tf.Tensor:
    """Adds the ops that save `tables` and everything else.

    Args:
      tables: In any order.
      prefix: Scalar string tensor, of the checkpoint.
      incremental: Whether tables write only what has changed.
      save_others: Adds TensorFlow's ops. It is given a function that returns what to save in the place of a
        saveable object, and returns the tensor that a Saver fetches.

    Returns:
      The tensor that a Saver fetches.
    """
    tables = sorted(tables, key=lambda table: variable_of(table).m_var_name)
    variables = [variable_of(table) for table in tables]
    names = list_of([variable.m_var_name for variable in variables])
    kind = "an incremental checkpoint" if incremental else "a checkpoint"
    refusal = (
        tf.compat.v1.placeholder_with_default(tf.errors.OK, [], name="refusal_code"),
        tf.compat.v1.placeholder_with_default("", [], name="refusal_message"),
    )
    references, written = _add_stages(tables, prefix, incremental, refusal, f"Saving {kind} of {names}")
    if communicator().rank == 0:
        replaced = {
            id(table): _Reference(table, reference)
            for table, reference in zip(tables, references, strict=True)
        }
        with tf.control_dependencies([written]):
            saved = save_others(lambda saveable: replaced.get(id(saveable), saveable))
    else:
        with tf.control_dependencies([written]):
            saved = tf.identity(prefix)
    graph = tf.compat.v1.get_default_graph()
    ending = _add_ending(variables, incremental, refusal, f"Saving {kind} of {names}")
    _endings.setdefault(graph, {})[saved.name] = ending
    return saved


def _add_stages(
    tables: Sequence[EmbeddingVariable | RenamedTable],
    prefix: tf.Tensor,
    incremental: bool,
    refusal: tuple[tf.Tensor, tf.Tensor],
    what: str,
) -> tuple[list[tf.Tensor], tf.Tensor]:
    """(each table's reference, the tensor that raises where a stage has failed on any rank)."""
    known = communicator()
    handles = [variable_of(table).handle for table in tables]
    names = [name_of(table) for table in tables]
    stages = Stages(what)
    save_id = tf.constant(0, tf.int64)
    result = None
    refused = tf.not_equal(refusal[0], tf.errors.OK)
    # Rows are as old as they are at the time of the save.
    told = global_step.told([variable_of(table) for table in tables])
    # What rank 0 has published the others can read only afterwards.
    for stage in ("begin", "write", "publish", "read")[: 3 if known.size == 1 else 4]:
        with tf.control_dependencies(told):
            result = native.ops.sok_checkpoint_stage(
                handles,
                prefix,
                save_id,
                tf.logical_not(refused) if stage == "begin" else stages.proceed,
                stage=stage,
                incremental=incremental,
                names=names,
            )
        label = f"{stage} ({_HINT})" if stage == "begin" else stage
        if stage == "begin":
            code = tf.where(refused, refusal[0], result.code)
            message = tf.where(refused, refusal[1], result.message)
            save_id = stages.add(code, message, label, [result.save_id])[0, 0]
        else:
            stages.add(result.code, result.message, label)
        if stage == "publish":
            references = result.references
    written = stages.raise_failures()
    with tf.control_dependencies([written]):
        return tf.unstack(references, len(tables)), written


def _add_ending(
    variables: Sequence[EmbeddingVariable],
    incremental: bool,
    refusal: tuple[tf.Tensor, tf.Tensor],
    what: str,
) -> _Ending:
    succeeded = tf.compat.v1.placeholder(tf.bool, [], name="succeeded")
    of_all = agree(tf.cast(succeeded, tf.int64)[tf.newaxis], f"{what}: end")[:, 0]
    end = native.ops.sok_end_checkpoint(
        [variable.handle for variable in variables], tf.equal(of_all[0], 1), name="end"
    )
    return _Ending(incremental, refusal, succeeded, of_all, end)


def has_tables(saver: tf.compat.v1.train.Saver, graph: tf.Graph | None) -> bool:
    """Whether a Saver that is built in `graph` saves embedding variables."""
    return _ending_of(saver, graph) is not None


def last_saved(graph: tf.Graph) -> str | None:
    """The prefix of the last checkpoint with tables that a Saver of the graph has saved, on every rank."""
    return _last_saved.get(graph)


def _ending_of(saver: tf.compat.v1.train.Saver, graph: tf.Graph | None) -> _Ending | None:
    if not saver.saver_def or graph is None:
        return None
    return _endings.get(graph, {}).get(saver.saver_def.save_tensor_name)


def save(original: Callable, saver: tf.compat.v1.train.Saver, *args: Any, **kwargs: Any) -> str | None:
    """`Saver.save`, where `original` is TensorFlow's. All ranks return or all raise.

    Ranks other than the first write their shards of the tables and nothing else.
    """
    bound = inspect.signature(original).bind(saver, *args, **kwargs)
    graph = getattr(bound.arguments["sess"], "graph", None)
    ending = _ending_of(saver, graph)
    if ending is None:
        return original(*bound.args, **bound.kwargs)
    if communicator().rank == 0:
        return _save_on_first_rank(original, saver, bound, ending)
    remembers = bound.arguments.get("write_state", True)
    bound.arguments.update(write_meta_graph=False, write_state=False)
    path = _run(lambda: original(*bound.args, **bound.kwargs), bound.arguments["sess"], ending)
    if remembers:
        # The list of checkpoints is as on rank 0, which alone deletes them.
        saver._RecordLastCheckpoint(path)
        saver._checkpoints_to_be_deleted.clear()
    return path


def _save_on_first_rank(
    original: Callable, saver: tf.compat.v1.train.Saver, bound: inspect.BoundArguments, ending: _Ending
) -> str:
    before = saver.last_checkpoints
    session = bound.arguments["sess"]
    with contextlib.ExitStack() as locks:
        held: list[str] = []

        def save_tables_and_others() -> str:
            prefix = _settle_prefix(saver, bound.arguments)
            refusal = _lock(prefix, ending.incremental, locks, held)
            if refusal is None:
                return original(*bound.args, **bound.kwargs)
            # The other ranks are to learn of it from the stages.
            feed = {saver.saver_def.filename_tensor_name: prefix, **dict(zip(ending.refusal, refusal))}
            return session.run(saver.saver_def.save_tensor_name, feed)

        try:
            path = _run(save_tables_and_others, session, ending)
        except Exception:
            # Complete tables without a checkpoint would fill the disk that was too full for it.
            retention.collect(str(bound.arguments["save_path"]), held=held)
            raise
        old_checkpoints.note(saver, path)
        kept = saver.last_checkpoints
        retention.collect(path, set(before) - set(kept), kept, held)
        return path


def _settle_prefix(saver: tf.compat.v1.train.Saver, arguments: dict[str, Any]) -> str:
    """The prefix that TensorFlow will save to with these arguments. Makes `global_step` a number in them."""
    prefix = os.fsdecode(arguments["save_path"])
    step = arguments.get("global_step")
    if step is None:
        return prefix
    if not isinstance(step, numbers.Integral):
        step = tf.compat.v1.train.global_step(arguments["sess"], step)
        arguments["global_step"] = step
    return f"{prefix}-{step:08d}" if saver._pad_step_number else f"{prefix}-{step:d}"


def _lock(
    prefix: str, incremental: bool, locks: contextlib.ExitStack, held: list[str]
) -> tuple[int, str] | None:
    """Has `locks` hold what a save needs, and adds that to `held`. Returns (code, message) of an error."""
    if "://" in prefix or path_problem(prefix):
        return None  # the stages say what is wrong with it
    directory = os.path.dirname(prefix) or "."
    try:
        own_files.make_folders(directory)
        for path in [prefix, retention.chains_of(directory)] if incremental else [prefix]:
            locks.enter_context(prefix_lock.acquire(path, _PATIENCE_SECONDS))
            held.append(path)
    except prefix_lock.PrefixInUseError as error:
        return tf.errors.FAILED_PRECONDITION, str(error)
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        code = tf.errors.RESOURCE_EXHAUSTED if full else tf.errors.FAILED_PRECONDITION
        return code, f"Cannot save to '{prefix}': {error}"
    return None


def _run(work: Callable[[], str], session: Any, ending: _Ending) -> str:
    """Calls `work`, has the ranks agree on how it ended, tells the tables, and raises where it failed."""
    path, error = "", None
    try:
        path = work()
    except Exception as raised:
        error = raised
    try:
        of_all, _ = session.run([ending.of_all, ending.end], {ending.succeeded: error is None})
    except Exception as raised:
        raise (error or raised) from None
    if error is not None:
        raise error
    if not of_all[0]:
        raise tf.errors.FailedPreconditionError(
            None, None, "Saving a checkpoint: rank 0 failed; its error has the reason"
        )
    _last_saved[session.graph] = path
    return path
