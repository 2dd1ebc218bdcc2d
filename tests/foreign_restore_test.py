# Tags: versions, old_version
"""Tables are read from checkpoints that other systems wrote, by the calls that read our own."""

from __future__ import annotations

import re

import numpy as np
import pytest
import tensorflow as tf

import foreign_checkpoints as foreign
import forked
import harness
import saved_files
import sparse_operation_kit as sok
from saved_files import table_columns
from sparse_operation_kit.checkpoint.rows import waiting_ids

v1 = tf.compat.v1
DIM = 3
REAL_ROWS = {
    1: [0.06724618, 0.03839818, 0.0289635, -0.06597091],
    2: [0.06724618, 0.03839818, 0.0289635, -0.06597091],
    -7: [-0.0773621, -0.08581089, -0.04740113, -0.05402663],
    2**40: [-0.0773621, -0.08581089, -0.04740113, -0.05402663],
}
OPTIMIZERS = {
    "Adam": lambda: v1.train.AdamOptimizer(0.1),
    "Adagrad": lambda: v1.train.AdagradOptimizer(0.1),
    "Ftrl": lambda: v1.train.FtrlOptimizer(0.1),
    "RMSProp": lambda: v1.train.RMSPropOptimizer(0.1, momentum=0.5, centered=True),
    "Momentum": lambda: v1.train.MomentumOptimizer(0.1, 0.9),
    "Adadelta": lambda: v1.train.AdadeltaOptimizer(1.0),
}
# The slots of each in TensorFlow's order: their names here and there.
SLOTS = {
    "Adam": [("m", "m"), ("v", "v")],
    "Adagrad": [("accumulator", "accumulator")],
    "Ftrl": [("accumulator", "accum"), ("linear", "linear")],
    "RMSProp": [("rms", "rms"), ("mg", "mg"), ("momentum", "momentum")],
    "Momentum": [("momentum", "momentum")],
    "Adadelta": [("accumulator", "accum"), ("accumulated_update", "accum_update")],
}
POLICIES = dict(
    ev_option=sok.EmbeddingVariableOption(
        filter_option=sok.CounterFilter(filter_freq=3), evict_option=sok.GlobalStepEvict(steps_to_live=100)
    )
)


class Model:
    """A table and a dense variable, trained with the global step."""

    def __init__(self, optimizer="Adam", name="scope/items", **options):
        step = v1.train.get_or_create_global_step()
        self.keys = v1.placeholder(tf.int64, [None])
        self.table = sok.get_embedding_variable(name, embedding_dim=DIM, **options)
        self.rows = tf.nn.embedding_lookup(self.table, self.keys)
        self.dense = v1.get_variable("dense", initializer=[1.0, -2.0, 0.5])
        loss = tf.reduce_sum(tf.square(self.rows * self.dense))
        self.train = OPTIMIZERS[optimizer]().minimize(loss, global_step=step)
        self.saver = v1.train.Saver()

    def steps(self, session, numbers, keys):
        for number in numbers:
            session.run(self.train, {self.keys: np.random.default_rng(number).choice(keys, 9)})

    def result(self, session, keys):
        return session.run([self.rows, self.dense], {self.keys: keys})


def others(prefix):
    """The tensors of one of our checkpoints that belong to no table."""
    tensors = saved_files.tensors_of(prefix).items()
    return {name: tensor for name, tensor in tensors if "#" not in name and name != "scope/items"}


def numbered(optimizer, columns):
    return {
        optimizer if number == 0 else f"{optimizer}_{number}": columns[f"slot-{ours}"]
        for number, (ours, _) in enumerate(SLOTS[optimizer])
    }


def named(optimizer, columns):
    return {f"{optimizer}/{theirs}": columns[f"slot-{ours}"] for ours, theirs in SLOTS[optimizer]}


def in_form(form, optimizer, columns):
    keys, values = columns["keys"], columns["values"]
    if form == "tfra":
        return foreign.tfra("scope/items", foreign.Rows(keys, values, named(optimizer, columns)), shards=3)
    if form == "variable":
        return foreign.variable("scope/items", values, **numbered(optimizer, columns))
    if form == "slices":
        return foreign.in_slices(foreign.variable("scope/items", values, **numbered(optimizer, columns)), 3)
    rows = foreign.Rows(keys, values, numbered(optimizer, columns))
    return foreign.deeprec("scope/items", rows, {"deeprec": None, "deeprec parts": 4}[form])


@pytest.mark.skipif(foreign.REAL is None, reason="there is no folder shared/data/foreign")
def test_the_rows_of_a_real_one():
    with harness.graph_and_session() as session:
        table = sok.EmbeddingVariable("scope/users", dim=4)
        rows = tf.nn.embedding_lookup(table, tf.constant(list(REAL_ROWS), tf.int64))
        v1.train.Saver([table]).restore(session, str(foreign.REAL / "tfra" / "m"))
        np.testing.assert_allclose(session.run(rows), list(REAL_ROWS.values()), rtol=1e-6)


FORMS = ["deeprec", "deeprec parts", "tfra", "variable", "slices"]


@pytest.mark.parametrize(
    "form, optimizer",
    [(form, "Adam") for form in FORMS]
    + [("deeprec parts", one) for one in OPTIMIZERS if one != "Adam"]
    + [("tfra", "Ftrl"), ("tfra", "Adadelta")],
)
def test_training_goes_on_with_the_same_bits(tmp_path, form, optimizer):
    keys = np.arange(40) if form in ("variable", "slices") else np.arange(40) * 10**9 + 7
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    with harness.graph_and_session() as session:
        model = Model(optimizer)
        session.run(v1.global_variables_initializer())
        model.result(session, keys)
        session.run(model.train, {model.keys: keys})
        model.steps(session, range(5), keys)
        model.saver.save(session, str(ours))
        model.steps(session, range(5, 9), keys)
        wanted = model.result(session, keys)
    columns, _ = table_columns(ours)
    assert len(columns["keys"]) == len(keys)
    foreign.save(theirs, {**others(ours), **in_form(form, optimizer, columns)})
    with harness.graph_and_session() as session:
        model = Model(optimizer)
        session.run(v1.global_variables_initializer())
        model.saver.restore(session, str(theirs))
        model.steps(session, range(5, 9), keys)
        found = model.result(session, keys)
        model.saver.save(session, str(tmp_path / "again"))
    np.testing.assert_array_equal(found[0], wanted[0])
    np.testing.assert_array_equal(found[1], wanted[1])
    assert table_columns(tmp_path / "again")[1].last.optimizer.steps == 10


def deeprec_rows(rows=70, waiting=20, dtype=np.int64):
    """Rows with Adam's slots, counts, versions, and keys that wait."""
    keys = np.random.default_rng(3).permutation(10 * (rows + waiting))[: rows + waiting].astype(dtype)
    return foreign.random_rows(keys[:rows], keys[rows:], DIM)


def dense_of(optimizer="Adam", steps=50):
    return {
        "global_step": np.int64(steps),
        "dense": np.float32([3, 4, 5]),
        **{f"dense/{name}": np.zeros([3], np.float32) for name in numbered(optimizer, ANY_SLOTS)},
        **(foreign.adam_powers(steps) if optimizer == "Adam" else {}),
    }


ANY_SLOTS = {f"slot-{ours}": None for slots in SLOTS.values() for ours, _ in slots}


def restored(prefix, optimizer="Adam", **options):
    """What a table has after it was restored from a checkpoint and saved again."""
    again = prefix.parent / "again"
    with harness.graph_and_session() as session:
        model = Model(optimizer, **options)
        session.run(v1.global_variables_initializer())
        model.saver.restore(session, str(prefix))
        model.saver.save(session, str(again))
    return table_columns(again)


def assert_rows(columns, rows, names=("slot-m", "slot-v")):
    order = np.argsort(rows.keys)
    wanted = {
        "keys": rows.keys,
        "values": rows.values,
        "slot-m": rows.slots["Adam"],
        "slot-v": rows.slots["Adam_1"],
    }
    for name in ("keys", "values", *names):
        np.testing.assert_array_equal(columns[name], wanted[name][order], name)


@pytest.mark.parametrize("parts", [None, 1, 3])
@pytest.mark.parametrize("dtype", [np.int64, np.int32])
def test_counts_versions_and_keys_that_wait(tmp_path, parts, dtype):
    rows = deeprec_rows(dtype=dtype)
    foreign.save(tmp_path / "m", {**dense_of(), **foreign.deeprec("scope/items", rows, parts)})
    columns, table = restored(tmp_path / "m", **POLICIES)
    assert_rows(columns, rows)
    order = np.argsort(rows.keys)
    np.testing.assert_array_equal(columns["frequency"], rows.freqs[order])
    np.testing.assert_array_equal(columns["last_step"], rows.versions[order])
    found, wanted = waiting_ids(table), rows.filtered
    for name, one, other in zip("keys counts steps".split(), found, wanted):
        np.testing.assert_array_equal(one[np.argsort(found[0])], other[np.argsort(wanted[0])], name)
    assert (table.last.steps, table.last.optimizer.steps) == (50, 50)
    # A table without the policies leaves them out, and takes the rows and slots.
    columns, _ = restored(tmp_path / "m")
    assert_rows(columns, rows)
    assert columns.keys() == {"keys", "values", "slot-m", "slot-v"}


def test_a_filter_without_counts_starts_at_its_threshold(tmp_path):
    rows = deeprec_rows()
    rows.freqs, rows.versions, rows.filtered = rows.freqs[:0], rows.versions[:0], None
    foreign.save(tmp_path / "m", {**dense_of(), **foreign.deeprec("scope/items", rows, 2)})
    columns, table = restored(tmp_path / "m", **POLICIES)
    assert_rows(columns, rows)
    assert set(columns["frequency"]) == {3} and set(columns["last_step"]) == {50}
    assert not len(waiting_ids(table)[0])


@pytest.mark.parametrize("missing", [0, 1])
def test_slots_in_another_order_and_without_some_rows(tmp_path, missing):
    rows = deeprec_rows()
    tensors = foreign.deeprec("scope/items", rows, 2)
    for part in range(2):
        table = f"scope/items/part_{part}/Adam_1"
        for name in ("keys", "values"):
            # Without offsets, any order is DeepRec's.
            tensors[f"{table}-{name}"] = tensors[f"{table}-{name}"][::-1][missing:]
        del tensors[f"{table}-partition_offset"]
    gone = np.isin(rows.keys, [tensors[f"scope/items/part_{part}-keys"][-1] for part in range(2)])
    foreign.save(tmp_path / "m", {**dense_of(), **tensors})
    columns, _ = restored(tmp_path / "m")
    if missing:
        rows.slots["Adam_1"][gone] = 0
    assert_rows(columns, rows)


def test_init_from_checkpoint_and_warm_start(tmp_path):
    rows = deeprec_rows()
    tensors = {**foreign.deeprec("old/items", rows, 2), **foreign.variable("old/dense", rows.values)}
    foreign.save(tmp_path / "m", tensors)
    for call in (
        lambda: v1.train.init_from_checkpoint(str(tmp_path), {"old/": "new/"}),
        lambda: v1.train.init_from_checkpoint(
            str(tmp_path), {"old/items": "new/items", "old/dense": "new/dense"}
        ),
        lambda: sok.init_from_checkpoint(str(tmp_path), {"old/": "new/"}),
        lambda: v1.train.warm_start(
            str(tmp_path), var_name_to_prev_var_name={"new/items": "old/items", "new/dense": "old/dense"}
        ),
    ):
        with harness.graph_and_session() as session:
            with v1.variable_scope("new"):
                tables = [sok.get_embedding_variable(name, embedding_dim=DIM) for name in ("items", "dense")]
            found = [
                tf.nn.embedding_lookup(table, tf.constant(keys, tf.int64))
                for table, keys in zip(tables, (rows.keys, np.arange(len(rows.keys))))
            ]
            call()
            session.run(v1.global_variables_initializer())
            for one in session.run(found):
                np.testing.assert_array_equal(one, rows.values)


def test_a_table_without_hashing_takes_a_variable_of_its_size(tmp_path):
    values = np.random.default_rng(0).random([6, DIM], np.float32)
    foreign.save(tmp_path / "m", foreign.variable("t", values))
    for capacity in (6, 7):
        with harness.graph_and_session() as session:
            table = sok.EmbeddingVariable("t", DIM, capacity=capacity, use_hashtable=False)
            rows = tf.nn.embedding_lookup(table, tf.range(6, dtype=tf.int64))
            session.run(v1.global_variables_initializer())
            saver = v1.train.Saver([table])
            if capacity == 6:
                saver.restore(session, str(tmp_path / "m"))
                np.testing.assert_array_equal(session.run(rows), values)
            else:
                with pytest.raises(tf.errors.InvalidArgumentError, match=r"'t'.*\[0, 7\).*6 rows"):
                    saver.restore(session, str(tmp_path / "m"))


@pytest.mark.skipif(not hasattr(tf, "estimator"), reason=f"TensorFlow {tf.__version__} has no Estimator")
def test_an_estimator_goes_on_in_deeprecs_model_dir(tmp_path):
    rows = deeprec_rows()
    slots = {"Adagrad": rows.values + 1}
    tensors = foreign.deeprec("items", foreign.Rows(rows.keys, rows.values, slots), 2)
    foreign.save(tmp_path / "model.ckpt-1000", {**tensors, "global_step": np.int64(1000)})

    def model_fn(features, labels, mode):
        del labels
        sok.Init(global_batch_size=harness.GLOBAL_BATCH_SIZE, seed=harness.SEED)
        found = tf.nn.embedding_lookup(sok.EmbeddingVariable("items", DIM), features)
        if mode == tf.estimator.ModeKeys.PREDICT:
            return tf.estimator.EstimatorSpec(mode, predictions={"rows": found})
        loss = tf.reduce_sum(found)
        train = v1.train.AdagradOptimizer(0.5).minimize(loss, v1.train.get_global_step())
        return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train)

    estimator = tf.estimator.Estimator(model_fn, str(tmp_path))
    batch = lambda: tf.data.Dataset.from_tensors(rows.keys)  # noqa: E731
    predicted = lambda: np.stack([one["rows"] for one in estimator.predict(batch)])  # noqa: E731
    np.testing.assert_array_equal(predicted(), rows.values)
    estimator.train(batch)
    assert estimator.latest_checkpoint().endswith("-1001")
    stepped = rows.values - 0.5 / np.sqrt(slots["Adagrad"] + 1)
    np.testing.assert_allclose(predicted(), stepped, rtol=1e-5, atol=1e-6)


def test_increments_of_deeprec(tmp_path):
    rows = deeprec_rows()
    full = {**dense_of(), **foreign.deeprec("scope/items", rows, 3)}
    foreign.save(tmp_path / "model.ckpt-50", full)
    # Some rows change, one that waited has a row now, and one is new.
    changed, waited = np.arange(0, 70, 7), rows.filtered[0][4]
    keys = np.concatenate([rows.keys[changed], [waited, 99999]])
    later = foreign.random_rows(keys, keys[:0], DIM, seed=1)
    later.versions = 50 + later.versions % 10
    prefix = tmp_path / ".incremental_checkpoint" / "incremental_model.ckpt-60"
    foreign.save(prefix, {**dense_of(steps=60), **foreign.deeprec_increment("scope/items", later, 3)})
    columns, table = restored(prefix, **POLICIES)
    kept = ~np.isin(rows.keys, keys)
    whole = foreign.Rows(
        np.concatenate([rows.keys[kept], keys]),
        np.concatenate([rows.values[kept], later.values]),
        {slot: np.concatenate([rows.slots[slot][kept], later.slots[slot]]) for slot in later.slots},
    )
    assert_rows(columns, whole)
    counts = np.concatenate([rows.freqs[kept], later.freqs])
    np.testing.assert_array_equal(columns["frequency"], counts[np.argsort(whole.keys)])
    assert sorted(waiting_ids(table)[0]) == sorted(set(rows.filtered[0]) - {waited})
    assert (table.last.steps, table.last.optimizer.steps) == (60, 60)
    # The full checkpoint is needed, with the same parts, and no later.
    for tensors, reason in (
        ({**dense_of(), **foreign.deeprec("scope/items", rows, 2)}, "parts, dims or global steps differ"),
        ({**dense_of(steps=70), **foreign.deeprec("scope/items", rows, 3)}, "global steps differ"),
        ({**dense_of(), **foreign.deeprec("scope/others", rows, 3)}, "has no 'scope/items'"),
    ):
        foreign.save(tmp_path / "model.ckpt-50", tensors)
        with pytest.raises(tf.errors.OpError, match=reason):
            restored(prefix)
    (tmp_path / "checkpoint").unlink()
    with pytest.raises(tf.errors.NotFoundError, match="names no full checkpoint"):
        restored(prefix)


def restore_into_three(prefix):
    """Restores two tables without slots, and one with Adam's."""
    with harness.graph_and_session() as session:
        tables = [sok.get_embedding_variable(name, DIM) for name in ("items", "users", "bare")]
        rows = [tf.nn.embedding_lookup(table, tf.constant([1], tf.int64)) for table in tables]
        v1.train.GradientDescentOptimizer(0.1).minimize(tf.reduce_sum(rows[0] + rows[1]))
        v1.train.AdamOptimizer(0.1).minimize(tf.reduce_sum(rows[2]))
        v1.train.Saver(tables).restore(session, prefix)


def test_what_a_restore_leaves_out_is_said(tmp_path):
    """Once for a table, by the names of tensors; nothing is said of a table that takes everything."""
    rows = deeprec_rows()
    tensors = {**foreign.deeprec("items", rows), **foreign.deeprec("users", rows, 2)}
    rows.freqs, rows.versions, rows.filtered = rows.freqs[:0], rows.versions[:0], None
    foreign.save(tmp_path / "m", {**tensors, **foreign.deeprec("bare", rows)})
    code = f"import foreign_restore_test as it; it.restore_into_three({str(tmp_path / 'm')!r})"
    run = forked.run_interpreter("-c", code, TF_CPP_MIN_LOG_LEVEL="0")
    forked.succeeded(run)
    said = re.findall(
        "Embedding variable '(.*)' has no place for what its checkpoint has as (.*)", run.stderr
    )
    left = ["Adam-values", "Adam_1-values", "freqs", "keys_filtered", "versions"]
    names = {"items": ["items"], "users": ["users/part_0", "users/part_1"]}
    assert sorted(name for name, _ in said) == ["items", "users"]
    for name, tensors in said:
        wanted = [
            f"'{part}{'/' if one.startswith('Adam') else '-'}{one}'" for part in names[name] for one in left
        ]
        assert sorted(tensors.split(", ")) == sorted(wanted)


@pytest.mark.parametrize("call", ["before", "after", "rows only"])
def test_slots_whenever_the_optimizer_is_made(tmp_path, call):
    """`sok.init_from_checkpoint` may come before the optimizer that has the slots."""
    rows = deeprec_rows()
    foreign.save(tmp_path / "m", {**dense_of(), **foreign.deeprec("old", rows, 2)})

    def load():
        sok.init_from_checkpoint(str(tmp_path / "m"), {"old": table}, optimizer_state=call != "rows only")

    with harness.graph_and_session() as session:
        table = sok.EmbeddingVariable("new", DIM)
        found = tf.nn.embedding_lookup(table, tf.constant(rows.keys))
        if call != "after":
            load()
        v1.train.AdamOptimizer(0.1).minimize(tf.reduce_sum(found))
        if call == "after":
            load()
        session.run(v1.global_variables_initializer())
        v1.train.Saver([table]).save(session, str(tmp_path / "again"))
    columns, opened = table_columns(tmp_path / "again", "new")
    if call == "rows only":
        assert opened.last.optimizer is None
    else:
        assert_rows(columns, rows)
        assert opened.last.optimizer.steps == 50


def test_slots_of_an_imported_meta_graph(tmp_path):
    rows = deeprec_rows()
    foreign.save(tmp_path / "m", {**dense_of(), **foreign.deeprec("scope/items", rows, 2)})
    with harness.graph_and_session():
        Model()
        v1.train.export_meta_graph(str(tmp_path / "graph.meta"))
    with tf.Graph().as_default(), v1.Session() as session:
        saver = v1.train.import_meta_graph(str(tmp_path / "graph.meta"))
        session.run(v1.global_variables_initializer())
        saver.restore(session, str(tmp_path / "m"))
        saver.save(session, str(tmp_path / "again"))
    assert_rows(table_columns(tmp_path / "again")[0], rows)
