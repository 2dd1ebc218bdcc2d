"""Checkpoints of other systems: types of numbers, and what some optimizers keep in their own ways."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

import foreign_checkpoints as foreign
import harness
import sparse_operation_kit as sok
import sparse_operation_kit.experiment as sok2
from sparse_operation_kit.checkpoint import cli, open_checkpoint, row_blocks

v1 = tf.compat.v1
DIM = 4
KEYS = np.arange(300, dtype=np.int64)
HALF = {"float16": np.float16, "bfloat16": tf.bfloat16.as_numpy_dtype, "float64": np.float64}


def values_of(dtype, count=3):
    rng = np.random.default_rng(0)
    values = [(rng.random([len(KEYS), DIM]) - 0.5).astype(HALF[dtype]) for _ in range(count)]
    # The smallest number, a zero with a sign, and what is no number.
    values[0][0] = np.array([6e-8, -6e-8, -0.0, np.inf], HALF[dtype])
    values[0][1] = np.array([np.nan, -np.inf, 1e-4, 65504.0], HALF[dtype])
    return values


def tensors_of(form, values, m, v):
    if form == "tfra":
        return foreign.tfra("t", foreign.Rows(KEYS, values, {"Adam/m": m, "Adam/v": v}), 2)
    if form == "variable":
        return foreign.variable("t", values, Adam=m, Adam_1=v)
    tensors = foreign.deeprec("t", foreign.Rows(KEYS, values, {"Adam": m, "Adam_1": v}), 2)
    # Slots in another order are found by key.
    for name in ("keys", "values"):
        tensors[f"t/part_0/Adam-{name}"] = tensors[f"t/part_0/Adam-{name}"][::-1]
    del tensors["t/part_0/Adam-partition_offset"]
    return tensors


def restored(prefix, make_optimizer, build=None):
    """The rows of a table that was restored and saved again, in the order of its keys, and its last link."""
    with harness.graph_and_session() as session:
        step = v1.train.get_or_create_global_step()
        table = sok.EmbeddingVariable("t", dim=DIM)
        loss = tf.reduce_sum(tf.nn.embedding_lookup(table, tf.constant([1, 2], tf.int64)))
        make_optimizer(step).minimize(loss, global_step=step)
        # Without what an optimizer keeps beside slots: a checkpoint may lack it.
        saver = v1.train.Saver([table] if build is None else build(table))
        session.run(v1.global_variables_initializer())
        saver.restore(session, str(prefix))
        saver.save(session, str(prefix.parent / "again"))
    (entry,) = open_checkpoint(prefix.parent / "again").tables
    opened = entry.open()
    columns = ["values", *(f"slot-{slot.name}" for slot in opened.last.optimizer.slots)]
    (block,) = row_blocks(opened, columns)
    order = np.argsort(block.keys)
    return {name: block.columns[name][order] for name in columns}, opened.last


def adam(step):
    del step
    return v1.train.AdamOptimizer(0.1)


@pytest.mark.parametrize("form", ["deeprec", "tfra", "variable"])
@pytest.mark.parametrize("dtype", HALF)
def test_floats(tmp_path, form, dtype):
    arrays = values_of(dtype)
    foreign.save(tmp_path / "m", tensors_of(form, *arrays))
    columns, _ = restored(tmp_path / "m", adam)
    for name, values in zip(("values", "slot-m", "slot-v"), arrays):
        np.testing.assert_array_equal(columns[name], values.astype(np.float32), name)
        np.testing.assert_array_equal(np.signbit(columns[name]), np.signbit(values.astype(np.float32)))


@pytest.mark.parametrize("dtype", ["float16", "float64"])
def test_floats_of_sok2(tmp_path, dtype):
    values, m, v = values_of(dtype)
    foreign.sok2(tmp_path / "dump", {"t": foreign.Rows(KEYS, values, {"m": m, "v": v})}, "Adam")
    with harness.graph_and_session() as session:
        table = sok2.DynamicVariable(DIM, name="t")
        rows = tf.nn.embedding_lookup(table, tf.constant(KEYS))
        loaded = sok2.load(str(tmp_path / "dump"), table)
        session.run(v1.global_variables_initializer())
        session.run(loaded)
        np.testing.assert_array_equal(session.run(rows), values.astype(np.float32))


def test_every_number_of_two_bytes(tmp_path):
    for dtype in ("float16", "bfloat16"):
        numbers = np.arange(2**16, dtype=np.uint16).view(HALF[dtype]).reshape(-1, 256)
        foreign.save(tmp_path / dtype, {"t": numbers})
        (block,) = row_blocks(open_checkpoint(tmp_path / dtype).select(["t"])[0].open())
        np.testing.assert_array_equal(block.columns["values"], numbers.astype(np.float32))


@pytest.mark.parametrize("value", [1e39, -1e300])
def test_a_number_that_no_float_is(tmp_path, value, capsys):
    values, m, v = values_of("float64")
    values[7, 2] = value
    foreign.save(tmp_path / "m", tensors_of("variable", values, m, v))
    with pytest.raises(
        tf.errors.InvalidArgumentError, match="00001:t' has the number .*e.*float32 cannot be"
    ):
        restored(tmp_path / "m", adam)
    assert cli.main(["verify", str(tmp_path / "m"), "--table", "t"]) == 1
    assert "float32 cannot be" in capsys.readouterr().out


@pytest.mark.parametrize("dtype", [np.float32, np.int64])
@pytest.mark.parametrize("form", ["deeprec", "variable"])
def test_adagrad_decay(tmp_path, form, dtype, capsys):
    """DeepRec's count of decays has as many numbers as the row, of which it uses the first one."""

    def adagrad_decay(step):
        return sok.optimizers.AdagradDecayOptimizer(0.1, step, accumulator_decay_step=7)

    values, accumulator, _ = (array.astype(np.float32) for array in values_of("float64"))
    decays = np.random.default_rng(1).integers(0, 2**24, [len(KEYS), DIM]).astype(dtype)
    decays[3] = 2**24
    name = "AdagradDecay" if dtype == np.float32 else "AdagradDecayV2"
    slots = {name: accumulator, f"{name}_1": decays}
    if form == "deeprec":
        tensors = foreign.deeprec("t", foreign.Rows(KEYS, values, slots), 2)
    else:
        tensors = foreign.variable("t", values, **slots)
    foreign.save(tmp_path / "m", tensors)
    columns, last = restored(tmp_path / "m", adagrad_decay)
    assert last.optimizer.name == "adagrad_decay"
    np.testing.assert_array_equal(columns["slot-accumulator"], accumulator)
    np.testing.assert_array_equal(columns["slot-decay_power"][:, 0], decays[:, 0])
    export = ["export", str(tmp_path / "again"), "--format", "deeprec", "--to", str(tmp_path / "to")]
    assert cli.main(export) == 0 and capsys.readouterr().err == ""
    written = tf.train.load_checkpoint(str(tmp_path / "to" / "again"))
    order = np.argsort(written.get_tensor("t/AdagradDecay_1-keys"))
    found = written.get_tensor("t/AdagradDecay_1-values")[order]
    np.testing.assert_array_equal(found, np.repeat(decays[:, :1], DIM, axis=1))
    if dtype == np.int64:
        decays[5, 0] += 2**25
        decays[5, 0] |= 1
        foreign.save(tmp_path / "m", {**tensors, **(foreign.variable("t", values, **slots))})
        if form == "variable":
            with pytest.raises(tf.errors.InvalidArgumentError, match="t/AdagradDecayV2_1' has the number"):
                restored(tmp_path / "m", adagrad_decay)


def test_powers_under_a_scope(tmp_path):
    tensors = tensors_of("variable", *values_of("float64"))
    powers = {f"train/beta{i}_power": np.float32(beta**8) for i, beta in ((1, 0.9), (2, 0.999))}
    for others, steps in (
        (powers, 7),
        ({**powers, "beta2_power": np.float32(0.999**3)}, 2),
        ({**powers, "b/beta2_power": np.float32(0.999**8)}, 7),
        # Of two optimizers.
        ({**powers, "b/beta2_power": np.float32(0.999**3), "b/beta1_power": np.float32(0.9**3)}, 30),
    ):
        foreign.save(tmp_path / "m", {**tensors, **others, "global_step": np.int64(30)})
        assert restored(tmp_path / "m", adam)[1].optimizer.steps == steps


@pytest.mark.parametrize("parts", [None, 2])
def test_adam_async_of_deeprec(tmp_path, parts, capsys):
    """Its powers are tensors beside the slots, of shape [1], and for each part its own."""
    values, m, v = (array.astype(np.float32) for array in values_of("float64"))
    tensors = foreign.deeprec("t", foreign.Rows(KEYS, values, {"AdamAsync": m, "AdamAsync_1": v}), parts)
    for part in range(parts or 1):
        name = f"t/part_{part}" if parts else "t"
        tensors[f"{name}/AdamAsync_2"] = np.float32([0.9 ** (4 + part)])
        tensors[f"{name}/AdamAsync_3"] = np.float32([0.999 ** (4 + part)])
    steps = 3 if parts is None else 4
    foreign.save(tmp_path / "m", {**tensors, "global_step": np.int64(30)})
    assert cli.main(["convert", str(tmp_path / "m"), "--to", str(tmp_path / "ours")]) == 0
    assert capsys.readouterr().err == ""
    for prefix in (tmp_path / "m", tmp_path / "ours" / "m"):
        columns, last = restored(
            prefix, lambda step: sok.optimizers.AdamAsyncOptimizer(0.1), lambda table: None
        )
        assert (last.optimizer.name, last.optimizer.steps) == ("lazy_adam", steps)
        np.testing.assert_array_equal(columns["slot-m"], m)
        again = tf.train.load_checkpoint(str(prefix.parent / "again"))
        for beta, power in (("beta1", 0.9), ("beta2", 0.999)):
            found = again.get_tensor(f"AdamAsync/t/{beta}_power")
            np.testing.assert_allclose(found, power ** (steps + 1), rtol=1e-6)
    export = ["export", str(tmp_path / "m"), "--format", "deeprec", "--to", str(tmp_path / "to")]
    assert cli.main(export) == 0
    written = tf.train.load_checkpoint(str(tmp_path / "to" / "m"))
    for name in ("t/part_1/AdamAsync_3",) if parts else ("t/AdamAsync_3",):
        np.testing.assert_allclose(written.get_tensor(name), [0.999 ** (steps + 1)], rtol=1e-5)


def test_centered_rmsprop_is_another_one(tmp_path):
    values, m, v = (array.astype(np.float32) for array in values_of("float64"))
    slots = {"RMSProp": m, "RMSProp_1": v, "RMSProp_2": m}
    foreign.save(tmp_path / "m", foreign.variable("t", values, **slots))
    columns, _ = restored(tmp_path / "m", lambda step: v1.train.RMSPropOptimizer(0.1, centered=True))
    np.testing.assert_array_equal(columns["slot-mg"], v)
    with pytest.raises(tf.errors.InvalidArgumentError, match="'t/RMSProp', but none of rmsprop"):
        restored(tmp_path / "m", lambda step: v1.train.RMSPropOptimizer(0.1))
