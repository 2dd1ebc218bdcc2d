"""Saves the tables of a `tf.compat.v1.train.Saver`, on all ranks together.

rank 0: lock the prefix
-> SokCheckpointStage begin -> write; after each, ranks agree whether one failed
-> rank 0: SaveV2 of the other variables -> SokCommitCheckpoint makes one checkpoint of all
-> rank 0: the files `checkpoint` and `.meta`
-> ranks agree whether rank 0 succeeded -> SokEndCheckpoint
-> rank 0: remove old checkpoints and leftovers, release the lock
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import inspect
import itertools
import numbers
import os
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from sparse_operation_kit import native
from sparse_operation_kit.checkpoint import own_files, prefix_lock
from sparse_operation_kit.checkpoint.errors import path_problem
from sparse_operation_kit.compat.internals import session as tf_session
from sparse_operation_kit.graphs import graph_ops
from sparse_operation_kit.ranks.agreement import Stages, agree
from sparse_operation_kit.ranks.communicator import communicator
from sparse_operation_kit.ranks.exchange_names import list_of
from sparse_operation_kit.saver import old_checkpoints, retention
from sparse_operation_kit.saver.table_saveables import Feeding, RenamedTable, name_of, variable_of
from sparse_operation_kit.tables import row_policies, table_parts
from sparse_operation_kit.tables.embedding_variable import EmbeddingVariable

# A hint in the error message of a rank that waits for other ranks to save.
_HINT = "every rank saves: give all of them the same checkpoint_dir and hooks"
# How long to wait for another process that saves to the same prefix.
_PATIENCE_SECONDS = 60.0


# Names in a Saver's scope, by which the Saver of an imported MetaGraph finds what it needs too.
_BEGIN = "begin_tables"
_REFUSAL_CODE = "refusal_code"
_REFUSAL_MESSAGE = "refusal_message"
_COUNTED_BY = "counted_by"
_SUCCEEDED = "succeeded"
_OF_ALL = "succeeded_of_all"
_END = "end"


@dataclasses.dataclass(frozen=True)
class _Ending:
    """The placeholders of a save, and the ops that end it.

    Attributes:
      incremental: Whether the save adds to earlier checkpoints.
      refusal: Placeholders for the code and message of an error because of which the save must not begin.
      counted_by: Placeholder for the kind of Saver whose `max_to_keep` counts the checkpoint.
      succeeded: Placeholder for whether this rank's part succeeded.
      of_all: Whether each rank's part succeeded.
      end: The op that tells the tables whether the save succeeded.
    """

    incremental: bool
    refusal: tuple[tf.Tensor, tf.Tensor]
    counted_by: tf.Tensor
    succeeded: tf.Tensor
    of_all: tf.Tensor
    end: tf.Operation


# The prefix of the last checkpoint, by graph.
_last_saved: weakref.WeakKeyDictionary[tf.Graph, str] = weakref.WeakKeyDictionary()
# A prefix in each directory that the graph's Savers have saved to or restored from, by graph.
_used: weakref.WeakKeyDictionary[tf.Graph, dict[str, str]] = weakref.WeakKeyDictionary()


def add_ops(
    tables: Sequence[EmbeddingVariable | RenamedTable],
    prefix: tf.Tensor,
    incremental: bool,
    save_others: Callable[[tf.Tensor, Callable[[Any], Any]], tf.Tensor | None],
    shared: Sequence[Any] = (),
) -> tf.Tensor:
    """Adds the ops that save `tables` and everything else.

    Args:
      tables: The tables, in any order.
      prefix: Scalar string tensor, the checkpoint's prefix.
      incremental: Whether tables write only the rows that have changed.
      save_others: Adds TensorFlow's save ops for everything but tables, and returns the tensor that a
        Saver fetches; None if there is nothing else. Its arguments are the prefix to save to, and a function
        that maps each saveable object to the one to save.
      shared: Saveable objects with a method `of_all_ranks`, which returns the one to save. Rank 0 saves it,
        and all ranks run its tensors.

    Returns:
      The tensor that a Saver fetches.
    """
    tables = sorted(tables, key=lambda table: variable_of(table).m_var_name)
    variables = [variable_of(table) for table in tables]
    names = list_of([variable.m_var_name for variable in variables])
    kind = "an incremental checkpoint" if incremental else "a checkpoint"
    refusal = (
        tf.compat.v1.placeholder_with_default(tf.errors.OK, [], name=_REFUSAL_CODE),
        tf.compat.v1.placeholder_with_default("", [], name=_REFUSAL_MESSAGE),
    )
    counted_by = tf.compat.v1.placeholder_with_default("", [], name=_COUNTED_BY)
    save_id, others, written = _add_stages(
        tables, prefix, incremental, refusal, counted_by, f"Saving {kind} of {names}"
    )
    of_all = {id(one): one.of_all_ranks() for one in sorted(shared, key=lambda one: one.name)}
    known = communicator()
    shards = len(variables[0].servers.devices) or known.size
    is_apart = bool(variables[0].servers.devices)
    if known.rank == 0:
        with tf.control_dependencies([written]):
            others = tf.identity(others)
            saved_others = save_others(others, lambda saveable: of_all.get(id(saveable), saveable))
        done = written if saved_others is None else saved_others
        with tf.control_dependencies([done]), tf.device("/device:CPU:0"):
            committed = native.ops.sok_commit_checkpoint(
                prefix, save_id, ranks=shards, with_others=saved_others is not None, apart=is_apart
            )
        with tf.control_dependencies([committed]):
            saved = tf.identity(prefix)
    else:
        # Opaque ops are stateful: TensorFlow would remove stateless ops on which only control dependencies
        # hang.
        parts = [
            native.horovod_ops().sok_opaque(spec.tensor) for one in of_all.values() for spec in one.specs
        ]
        with tf.control_dependencies([written, *parts]):
            saved = tf.identity(prefix)
    _add_ending(variables, f"Saving {kind} of {names}")
    return saved


def _add_stages(
    tables: Sequence[EmbeddingVariable | RenamedTable],
    prefix: tf.Tensor,
    incremental: bool,
    refusal: tuple[tf.Tensor, tf.Tensor],
    counted_by: tf.Tensor,
    what: str,
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Returns the save's id, the prefix for other variables, and a tensor that raises if a rank failed."""
    variables = [variable_of(table) for table in tables]
    processes = table_parts.by_process(variables, "saved by one Saver")
    names = [name_of(table) for table in tables]
    stages = Stages(what)
    save_id = tf.constant(0, tf.int64)
    refused = tf.not_equal(refusal[0], tf.errors.OK)
    # The age of rows is computed with the global step at the time of the save.
    told = row_policies.tell_global_step(variables)
    proceed = tf.logical_not(refused)

    def run(stage: str) -> list[Any]:
        # Only the first one's name counts: see `names_of_ops`.
        op_names = itertools.chain([f"{stage}_tables"], itertools.repeat(f"{stage}_on_server"))
        with tf.control_dependencies(told):
            return table_parts.on_each(
                processes,
                variables[0],
                lambda handles: native.ops.sok_checkpoint_stage(
                    handles,
                    prefix,
                    save_id,
                    counted_by,
                    proceed,
                    stage=stage,
                    incremental=incremental,
                    apart=bool(variables[0].servers.devices),
                    names=names,
                    name=next(op_names),
                ),
            )

    begun = run("begin")
    results = [
        (tf.where(refused, refusal[0], one.code), tf.where(refused, refusal[1], one.message)) for one in begun
    ]
    save_id = stages.add(results, f"begin ({_HINT})", [begun[0].save_id])[0, 0]
    proceed = stages.proceed
    written = run("write")
    stages.add([(one.code, one.message) for one in written], "write")
    return save_id, written[0].others, stages.raise_failures()


def _add_ending(variables: Sequence[EmbeddingVariable], what: str) -> None:
    succeeded = tf.compat.v1.placeholder(tf.bool, [], name=_SUCCEEDED)
    of_all = agree(tf.cast(succeeded, tf.int64)[tf.newaxis], f"{what}: end")
    of_all = tf.identity(of_all[:, 0], name=_OF_ALL)
    processes = table_parts.by_process(variables, what)
    succeeded = tf.equal(of_all[0], 1)
    if len(processes) == 1 and not variables[0].servers.devices:
        native.ops.sok_end_checkpoint(processes[0], succeeded, name=_END)
        return
    ends = table_parts.on_each(
        processes, variables[0], lambda handles: native.ops.sok_end_checkpoint(handles, succeeded)
    )
    table_parts.all_of(ends, _END)


def has_tables(saver: tf.compat.v1.train.Saver, graph: tf.Graph | None) -> bool:
    """Returns whether a Saver that was built in `graph` saves embedding variables."""
    return _ending_of(saver, graph) is not None


def handles_of(saver: tf.compat.v1.train.Saver, graph: tf.Graph) -> set[str]:
    """Returns the names of the handles of the tables that a Saver saves."""
    ending = _ending_of(saver, graph)
    return set() if ending is None else {handle.name for handle in graph_ops.handles_needed_by(ending.end)}


def last_saved(graph: tf.Graph) -> str | None:
    """Returns, on every rank, the prefix of the last checkpoint with tables that the graph's Savers saved."""
    return _last_saved.get(graph)


def note_use(graph: tf.Graph, prefix: str) -> None:
    """Records that there is a checkpoint at `prefix`, whose chain may lead to other directories."""
    _used.setdefault(graph, {})[os.path.dirname(prefix)] = prefix


def names_of_ops(saver: tf.compat.v1.train.Saver, graph: tf.Graph | None) -> tuple[str, str] | None:
    """Returns what stands before and after the names of the ops that a Saver of tables has in its scope.

    A Saver that is built after an import may be in the scope of an imported one: its names have a number.
    Returns None for a Saver without tables.
    """
    if not saver.saver_def or graph is None:
        return None
    filename = saver.saver_def.filename_tensor_name
    scope = f"{filename.rpartition('/')[0]}/"
    try:
        users = graph.get_tensor_by_name(filename).consumers()
    except KeyError:
        return None
    for op in users:
        is_stage = op.type == graph_ops.CHECKPOINT_STAGE and op.name.startswith(scope + _BEGIN)
        if is_stage and op.get_attr("stage") == b"begin":
            return scope, op.name[len(scope + _BEGIN) :]
    return None


def _ending_of(saver: tf.compat.v1.train.Saver, graph: tf.Graph | None) -> _Ending | None:
    found = names_of_ops(saver, graph)
    if found is None or graph is None:
        return None
    before, after = found

    def op(name: str) -> tf.Operation:
        return graph.get_operation_by_name(f"{before}{name}{after}")

    def output(name: str) -> tf.Tensor:
        return graph.get_tensor_by_name(f"{before}{name}{after}:0")

    return _Ending(
        op(_BEGIN).get_attr("incremental"),
        (output(_REFUSAL_CODE), output(_REFUSAL_MESSAGE)),
        output(_COUNTED_BY),
        output(_SUCCEEDED),
        output(_OF_ALL),
        op(_END),
    )


def save(original: Callable, saver: tf.compat.v1.train.Saver, *args: Any, **kwargs: Any) -> str | None:
    """Replaces `Saver.save`, which is `original`. All ranks return or all ranks raise.

    Ranks other than rank 0 write only their shards of the tables.
    """
    bound = inspect.signature(original).bind(saver, *args, **kwargs)
    graph = getattr(bound.arguments["sess"], "graph", None)
    ending = _ending_of(saver, graph)
    if ending is None:
        return original(*bound.args, **bound.kwargs)
    if communicator().rank == 0:
        return _save_on_first_rank(original, saver, bound, ending)
    remembers = bound.arguments.get("write_state", True)
    session = bound.arguments["sess"]
    _take_over(saver, bound.arguments, ending)
    bound.arguments.update(write_meta_graph=False, write_state=False)
    path = _run(lambda: original(*bound.args, **bound.kwargs), session, ending)
    if remembers:
        # Keeps the list of checkpoints as on rank 0. Only rank 0 deletes them.
        saver._RecordLastCheckpoint(path)
        saver._checkpoints_to_be_deleted.clear()
        old_checkpoints.note(saver, session.graph, path)
    return path


def _save_on_first_rank(
    original: Callable, saver: tf.compat.v1.train.Saver, bound: inspect.BoundArguments, ending: _Ending
) -> str:
    session = bound.arguments["sess"]
    with contextlib.ExitStack() as locks:
        held: list[str] = []
        kind = _kind_of(saver, bound.arguments, ending)

        def save_tables_and_others() -> str:
            prefix = _take_over(saver, bound.arguments, ending)
            refusal = _prepare(prefix, ending.incremental, locks, held)
            if refusal is None:
                # TensorFlow refuses everything else.
                if isinstance(session, tf_session.SessionInterface):
                    bound.arguments["sess"] = Feeding(session, {ending.counted_by: kind or ""})
                return original(*bound.args, **bound.kwargs)
            # Runs the stages anyway, because they tell the other ranks about the error.
            feed = {saver.saver_def.filename_tensor_name: prefix, **dict(zip(ending.refusal, refusal))}
            return session.run(saver.saver_def.save_tensor_name, feed)

        others = list(_used.get(session.graph, {}).values())
        old_checkpoints.note_save(saver, session.graph, held, others)
        try:
            path = _run(save_tables_and_others, session, ending)
            old_checkpoints.note(saver, session.graph, path)
            return path
        except Exception:
            if held and kind is not None:
                old_checkpoints.note_failed(saver, session.graph, held[0], kind)
            raise
        finally:
            old_checkpoints.note_save(saver, session.graph, (), ())
            if held:
                # Parts of a failed save could fill a disk that is too full already.
                retention.clean(held[0], [*saver.last_checkpoints, *others], held)


def _kind_of(saver: tf.compat.v1.train.Saver, arguments: dict[str, Any], ending: _Ending) -> str | None:
    """Returns the kind of the Saver if its `max_to_keep` counts the checkpoint, else None."""
    if not saver.saver_def.max_to_keep or not arguments.get("write_state", True):
        return None
    return old_checkpoints.INCREMENTAL if ending.incremental else old_checkpoints.FULL


def _take_over(saver: tf.compat.v1.train.Saver, arguments: dict[str, Any], ending: _Ending) -> str:
    """Takes over what earlier sessions left, on every rank, before rank 0 removes any of it.

    Returns:
      The prefix to save to.
    """
    numbered = arguments.get("global_step") is not None
    prefix = _settle_prefix(saver, arguments)
    kind = _kind_of(saver, arguments, ending)
    if kind is not None and not _is_elsewhere(prefix):
        old_checkpoints.take_over(saver, arguments["sess"].graph, prefix, numbered, kind)
    return prefix


def _settle_prefix(saver: tf.compat.v1.train.Saver, arguments: dict[str, Any]) -> str:
    """Returns the prefix that TensorFlow will save to; replaces `global_step` in `arguments` by its value."""
    prefix = os.fsdecode(arguments["save_path"])
    step = arguments.get("global_step")
    if step is None:
        return prefix
    if not isinstance(step, numbers.Integral):
        step = tf.compat.v1.train.global_step(arguments["sess"], step)
        arguments["global_step"] = step
    return f"{prefix}-{step:08d}" if saver._pad_step_number else f"{prefix}-{step:d}"


def _is_elsewhere(prefix: str) -> bool:
    """Returns whether the stages refuse the prefix: it is no path of the file system."""
    return "://" in prefix or path_problem(prefix) is not None


def _prepare(
    prefix: str, incremental: bool, locks: contextlib.ExitStack, held: list[str]
) -> tuple[int, str] | None:
    """Acquires the locks of a save into `locks`, and adds their paths to `held`.

    Returns:
      None, or the (code, message) of an error.
    """
    if _is_elsewhere(prefix):
        return None
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
    """Calls `work`, exchanges its success with all ranks, ends the save in the tables, and raises errors."""
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
    note_use(session.graph, path)
    return path
