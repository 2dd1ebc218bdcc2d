"""Loops on a batch that are either run as a whole or not at all.

At the end of the data, ops on the batch get dead tensors, as in a branch that is not taken. If only some
inputs of a loop are dead and its ops are on several devices, the loop never ends: one device begins the next
iteration and waits for tensors that another device does not send. So no input of a loop may arrive before the
batch does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import tensorflow as tf

from sparse_operation_kit.graphs import graph_ops

_LOWERED = "_lower_using_switch_merge"
_NOT_INLINED = "_noinline"


def keep_loops_whole(
    batch: Sequence[tf.Operation], made: Sequence[tf.Operation], runs_ahead: Callable[[tf.Operation], bool]
) -> None:
    """Makes loops that run ahead start with the batch.

    Args:
      batch: The op whose outputs are the batch; empty if the batch has no tensors.
      made: The ops to search for loops.
      runs_ahead: Whether an op depends on the batch and may run ahead of the step.
    """
    frames = {graph_ops.frame_entered_by(op) for op in made if runs_ahead(op)} - {None}
    for op in made:
        ahead = runs_ahead(op)
        if graph_ops.frame_entered_by(op) in frames or (ahead and graph_ops.is_loop(op)):
            op._add_control_inputs(list(batch))
        elif ahead and graph_ops.calls_loops(op):
            _run_as_one(op)


def _run_as_one(op: tf.Operation) -> None:
    """Keeps TensorFlow from inlining the functions that an op calls.

    The op is then on the CPU, like the batch. So are the ops of its functions, unless they name a device.
    """
    place = tf.DeviceSpec.from_string(op.device).replace(device_type="CPU", device_index=0)
    op._set_device(place.to_string())
    op._set_attr(_LOWERED, tf.compat.v1.AttrValue(b=False))
    if op.type not in graph_ops.CALLS:
        return
    called = op.get_attr("f").name
    functions = op.graph.as_graph_def().library.function
    with_whole = tf.compat.v1.GraphDef()
    whole = with_whole.library.function.add()
    whole.CopyFrom(next(function for function in functions if function.signature.name == called))
    whole.signature.name = op.graph.unique_name(called + "_whole")
    whole.attr[_NOT_INLINED].b = True
    tf.graph_util.import_graph_def(with_whole, name="")
    op._set_attr("f", tf.compat.v1.AttrValue(func=tf.compat.v1.NameAttrList(name=whole.signature.name)))
