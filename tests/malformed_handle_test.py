"""Handles that are not those of one embedding variable are an error in every op, never a crash."""

import pytest
import tensorflow as tf

import harness
import sparse_operation_kit as sok
from sparse_operation_kit import compat, native

DIM = 2
NAME = "sound_table"


def two_handles():
    # TensorFlow stacks handles on CPUs only.
    with tf.device("/CPU:0"):
        return tf.stack([sok.EmbeddingVariable(name="other", dim=DIM).handle] * 2)


HANDLES = {
    "no handle": lambda: harness.empty_tensor(tf.resource),
    "the handle of a variable": lambda: tf.Variable([1.0], **compat.AS_RESOURCE).handle,
    "the handle of a queue": lambda: tf.queue.FIFOQueue(3, [tf.int64]).queue_ref,
    "two handles": two_handles,
}


def raised(stage):
    """The error that a stage reports."""
    return native.ops.sok_raise_failures([stage.code], [stage.message], [0], what="a stage")


USES = {
    "lookup": lambda handle: native.ops.sok_group_lookup(
        handles=[handle],
        ids=[tf.constant([1], tf.int64)],
        bags=[],
        dense_shapes=[],
        weights=[],
        training=True,
        num_outputs=1,
        dims=[DIM],
        table_of=[0],
        layouts=["dense"],
        combiners=["none"],
        weighted=[False],
        slots=[0],
    ).outputs[0],
    "apply": lambda handle: native.ops.sok_apply_gradients(
        handle=handle,
        indices=tf.constant([0], tf.int64),
        values=tf.ones([1, DIM]),
        hyper=[1.0],
        optimizer="sgd",
    ),
    "initialize": lambda handle: native.ops.sok_initialize_table(handle, [], dim=DIM),
    "size": lambda handle: native.ops.sok_table_size(handle),
    "assign": lambda handle: native.ops.sok_table_assign(
        handle, keys=tf.constant([1], tf.int64), values=tf.ones([1, DIM])
    ),
    "dump": lambda handle: raised(
        native.ops.sok_dump_stage(handle, "unused", tf.constant([1], tf.int64), True, stage="begin")
    ),
    "restore": lambda handle: raised(native.ops.sok_restore_stage(handle, "unused", True, stage="check")),
    "save checkpoint": lambda handle: raised(
        native.ops.sok_checkpoint_stage([handle], "unused", tf.constant(0, tf.int64), "", True, stage="begin")
    ),
    "check checkpoint": lambda handle: raised(
        native.ops.sok_check_checkpoint([handle], "unused", names=["unused"])
    ),
    "track changes": lambda handle: native.ops.sok_track_changes([handle]),
}


@pytest.mark.parametrize("kind", HANDLES)
@pytest.mark.parametrize("use", USES)
def test_handles_of_another_kind(use, kind):
    with harness.graph_and_session() as session:
        op = USES[use](HANDLES[kind]())
        harness.initialize(session)
        with pytest.raises(tf.errors.InvalidArgumentError):
            session.run(op)
        table = sok.EmbeddingVariable(name=NAME, dim=DIM)
        rows = tf.nn.embedding_lookup(table, [1])
        session.run(table.initializer)
        assert session.run(rows).shape == (1, DIM)


def test_is_initialized_of_another_kind_is_false():
    with harness.graph_and_session() as session:
        assert not session.run(
            native.ops.sok_table_is_initialized(tf.Variable([1.0], **compat.AS_RESOURCE).handle)
        )


def test_one_table_twice_in_the_handles_of_a_group():
    with harness.graph_and_session() as session:
        table = sok.EmbeddingVariable(name=NAME, dim=DIM)
        result = native.ops.sok_group_lookup(
            handles=[table.handle, table.handle],
            ids=[tf.constant([1], tf.int64)] * 2,
            bags=[],
            dense_shapes=[],
            weights=[],
            training=True,
            num_outputs=2,
            dims=[DIM, DIM],
            table_of=[0, 1],
            layouts=["dense"] * 2,
            combiners=["none"] * 2,
            weighted=[False] * 2,
            slots=[0] * 2,
        )
        harness.initialize(session)
        with pytest.raises(tf.errors.InvalidArgumentError, match=f"{NAME}.*twice"):
            session.run(result.outputs)
        assert session.run(table.size()) == 0
