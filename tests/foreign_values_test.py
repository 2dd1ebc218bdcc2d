# Tags: slow
# Not on GPUs: files, which are the same: see gpu_checkpoints_test
"""Checkpoints of other systems: what the tests' writer writes is what these systems write; types of numbers;
what some optimizers keep in their own ways; and models that train on as if they had not been written in
another system's form."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

import foreign_checkpoints as foreign
import harness
import saved_files
import sparse_operation_kit as sok
import sparse_operation_kit.experiment as sok2
from sparse_operation_kit.checkpoint import cli, compare, open_checkpoint, row_blocks

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
    columns, opened = saved_files.table_columns(prefix.parent / "again")
    return columns, opened.last


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


@pytest.mark.skipif(foreign.REAL is None, reason="there is no folder shared/data/foreign")
def test_recommenders_addons_as_in_the_real_one(tmp_path):
    real = saved_files.tensors_of(foreign.REAL / "tfra" / "m")

    def of(tensor):
        return np.concatenate([real[tensor.format(k)] for k in (1, 2)])

    keys = of("users/scope_users_mht_{}of2-keys")
    slots = {f"Adam/{slot}": of(f"{slot}/scope_users_Adam_{slot}_mht_{{}}of2-values") for slot in "mv"}
    rows = foreign.Rows(keys, of("users/scope_users_mht_{}of2-values"), slots)
    powers = {name: real[name] for name in ("beta1_power", "beta2_power")}
    foreign.save(tmp_path / "m", {**foreign.tfra("scope/users", rows, shards=2), **powers})
    harness.assert_equal_dicts(saved_files.tensors_of(tmp_path / "m"), real)


@pytest.mark.parametrize("parts", [1, 3])
def test_partitioned_variables_as_tensorflow_saves_them(tmp_path, parts):
    with tf.Graph().as_default(), v1.Session() as session:
        variable = v1.get_variable("scope/t", [10, 3], partitioner=v1.fixed_size_partitioner(parts))
        session.run(v1.global_variables_initializer())
        rows = session.run(variable.as_tensor())
        v1.train.Saver().save(session, str(tmp_path / "real"), write_meta_graph=False)
    tensors = foreign.variable("scope/t", rows)
    foreign.save(tmp_path / "ours", foreign.in_slices(tensors, parts))
    files = [(tmp_path / f"{name}.index").read_bytes() for name in ("real", "ours")]
    assert files[0] == files[1]
    harness.assert_equal_dicts(saved_files.tensors_of(tmp_path / "ours"), tensors)


@pytest.mark.parametrize("parts", [None, 1, 2, 5])
def test_deeprecs_offsets_find_each_key_once(parts):
    keys = np.array([5, 1005, -1, 2**40, 999, 0, -(2**63), 2**63 - 1], np.int64)
    values = np.arange(16, dtype=np.float32).reshape(8, 2)
    rows = foreign.Rows(keys, values, {"Adagrad": -values})
    tensors = foreign.deeprec("t", rows, parts)
    found = {}
    for name in ["t"] if parts is None else [f"t/part_{part}" for part in range(parts)]:
        offsets = tensors[f"{name}-partition_offset"]
        assert offsets.shape == (1001,) and offsets.dtype == np.int32
        for remainder in range(1000):
            for row in range(offsets[remainder], offsets[remainder + 1]):
                key = int(tensors[f"{name}-keys"][row])
                assert key % 1000 == remainder and key not in found
                found[key] = tensors[f"{name}-values"][row].tolist()
                assert tensors[f"{name}/Adagrad-values"][row].tolist() == [-one for one in found[key]]
    assert found == dict(zip(keys.tolist(), values.tolist()))


IDS = 40
BATCH = 12


def table(name, dim, filtered):
    options = dict(filter_option=sok.CounterFilter(filter_freq=2), evict_option=sok.GlobalStepEvict(3))
    option = sok.EmbeddingVariableOption(**options if filtered else {})
    return sok.get_embedding_variable(name, dim, ev_option=option)


def dense(name, inputs, units, activation=None):
    kernel = v1.get_variable(f"{name}/kernel", [inputs.shape[-1], units])
    outputs = tf.tensordot(inputs, kernel, 1) + v1.get_variable(f"{name}/bias", [units])
    return activation(outputs) if activation else outputs


def din(ids, filtered):
    """Attention of a candidate to a user's items: ids [batch, 6], of which the first one is the candidate."""
    items, users = table("din/items", 4, filtered), table("din/users", 4, filtered)
    rows = tf.nn.embedding_lookup(items, ids)
    candidate, history = rows[:, :1], rows[:, 1:]
    both = tf.concat([history, tf.tile(candidate, [1, 5, 1]), history * candidate], axis=-1)
    scores = tf.nn.softmax(dense("attention", both, 1), axis=1)
    user = tf.nn.embedding_lookup(users, ids[:, 0] * 7 % IDS)
    features = tf.concat([tf.reduce_sum(scores * history, axis=1), candidate[:, 0], user], axis=-1)
    logits = dense("top", dense("hidden", features, 8, tf.nn.relu), 1)
    return [items, users], logits, lambda loss: [v1.train.AdamOptimizer(0.01).minimize(loss, step_of_graph())]


def wide_and_deep(ids, filtered):
    """Weights of ids that FTRL trains, beside layers over embeddings that Adagrad trains."""
    deep, wide = table("deep/items", 4, filtered), table("wide/items", 1, filtered)
    features = tf.reshape(tf.nn.embedding_lookup(deep, ids), [-1, 24])
    hidden = dense("hidden", features, 8, tf.nn.relu)
    linear = tf.reduce_sum(tf.nn.embedding_lookup(wide, ids), axis=1)

    def minimize(loss):
        others = [one for one in v1.trainable_variables() if one is not wide]
        return [
            v1.train.FtrlOptimizer(0.1, l1_regularization_strength=0.001).minimize(loss, var_list=[wide]),
            v1.train.AdagradOptimizer(0.1).minimize(loss, step_of_graph(), var_list=others),
        ]

    return [deep, wide], dense("top", hidden, 1) + linear, minimize


def step_of_graph():
    return v1.train.get_or_create_global_step()


def batches(numbers):
    for number in numbers:
        rng = np.random.default_rng(number)
        ids = np.minimum(rng.geometric(0.1, [BATCH, 6]), IDS - 1)
        yield ids, (ids.sum(axis=1, keepdims=True) % 2).astype(np.float32)


def train_on(model, numbers, save, restore=None, filtered=True):
    """Trains on some batches; returns the losses."""
    with harness.graph_and_session() as session:
        ids, labels = v1.placeholder(tf.int64, [None, 6]), v1.placeholder(tf.float32, [None, 1])
        tables, logits, minimize = model(ids, filtered)
        loss = tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=logits))
        train = minimize(loss)
        session.run(v1.global_variables_initializer())
        if restore:
            restore(session, tables)
        losses = [
            session.run([loss, *train], dict(zip([ids, labels], batch)))[0] for batch in batches(numbers)
        ]
        v1.train.Saver().save(session, str(save))
        return losses


def by_saver(prefix):
    return lambda session, tables: v1.train.Saver().restore(session, str(prefix))


def of_sok2(folder):
    """Tables by `sok.load`, and the ordinary variables by a Saver."""

    def restore(session, tables):
        others = [one for one in v1.global_variables() if one not in tables]
        v1.train.Saver(others).restore(session, tf.train.latest_checkpoint(str(folder)))
        session.run(sok2.load(str(folder), tables, optimizer=v1.train.AdamOptimizer()))

    return restore


def write_tfra(prefix, to):
    """The form of recommenders-addons, which `export` does not write."""
    names = {"adam": ("Adam", {"m": "m", "v": "v"}), "adagrad": ("Adagrad", {"accumulator": "accumulator"})}
    names["ftrl"] = ("Ftrl", {"accumulator": "accum", "linear": "linear"})
    tables = [entry.open() for entry in open_checkpoint(prefix).tables]
    tensors = {
        name: tensor
        for name, tensor in saved_files.tensors_of(prefix).items()
        if "#" not in name and name not in [one.name for one in tables]
    }
    for one in tables:
        optimizer, slots = names[one.last.optimizer.name]
        columns, _ = saved_files.table_columns(prefix, one.name)
        of_slots = {f"{optimizer}/{theirs}": columns[f"slot-{ours}"] for ours, theirs in slots.items()}
        rows = foreign.Rows(columns["keys"], columns["values"], of_slots)
        tensors.update(foreign.tfra(one.name, rows, 2))
    foreign.save(to / prefix.name, tensors)


@pytest.mark.parametrize("form", ["deeprec", "variable", "sok2", "tfra"])
@pytest.mark.parametrize("model", [din, wide_and_deep])
def test_a_model_trains_on_with_the_same_bits(tmp_path, capsys, model, form):
    filtered = form == "deeprec"  # other forms have no counts
    first, to = tmp_path / "model.ckpt", tmp_path / "to"
    train_on(model, range(8), first, filtered=filtered)
    if form == "tfra":
        write_tfra(first, to)
    else:
        rows = ["--rows", str(IDS)] if form == "variable" else []
        assert cli.main(["export", str(first), "--format", form, "--to", str(to), *rows]) == 0
        assert capsys.readouterr().err == ""
    wanted = train_on(model, range(8, 16), tmp_path / "wanted", by_saver(first), filtered)
    prefix = to / first.name
    found = train_on(
        model, range(8, 16), tmp_path / "found", of_sok2(to) if form == "sok2" else by_saver(prefix), filtered
    )
    assert found == wanted and len(set(wanted)) == 8
    assert_same_tables(tmp_path / "wanted", tmp_path / "found", form)
    if form == "sok2":
        return
    names = [one.name for one in open_checkpoint(first).tables]
    more = [argument for name in names for argument in ("--table", name)]
    assert cli.main(["convert", str(prefix), "--to", str(tmp_path / "ours"), *more]) == 0
    ours = by_saver(tmp_path / "ours" / first.name)
    assert train_on(model, range(8, 16), tmp_path / "again", ours, filtered) == wanted
    assert_same_tables(tmp_path / "wanted", tmp_path / "again", form)


def assert_same_tables(wanted, found, form):
    one, two = ([entry.open() for entry in open_checkpoint(prefix).tables] for prefix in (wanted, found))
    assert len(one) == len(two) == 2
    for pair in zip(one, two):
        difference = compare(*pair)
        assert not (difference.removed or difference.changed or difference.waiting), difference
        # A variable has rows of all ids.
        assert not difference.added or form == "variable"
        assert pair[0].last.optimizer.slots == pair[1].last.optimizer.slots
