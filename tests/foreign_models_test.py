"""Models that were written in another system's form train on as if they had not been."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

import foreign_checkpoints as foreign
import harness
import sparse_operation_kit as sok
import sparse_operation_kit.experiment as sok2
from sparse_operation_kit.checkpoint import cli, compare, open_checkpoint, row_blocks

v1 = tf.compat.v1
IDS = 40
BATCH = 12


def table(name, dim, filtered):
    options = {"filter_option": sok.CounterFilter(filter_freq=2)} if filtered else {}
    return sok.get_embedding_variable(name, dim, ev_option=sok.EmbeddingVariableOption(**options))


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
    reader = tf.train.load_checkpoint(str(prefix))
    tables = [entry.open() for entry in open_checkpoint(prefix).tables]
    tensors = {
        name: reader.get_tensor(name)
        for name in reader.get_variable_to_shape_map()
        if "#" not in name and name not in [one.name for one in tables]
    }
    for one in tables:
        optimizer, slots = names[one.last.optimizer.name]
        blocks = list(row_blocks(one, ["values", *(f"slot-{slot}" for slot in slots)]))
        column = lambda name: np.concatenate([block.columns[name] for block in blocks])  # noqa: B023, E731
        of_slots = {f"{optimizer}/{theirs}": column(f"slot-{ours}") for ours, theirs in slots.items()}
        keys = np.concatenate([block.keys for block in blocks])
        tensors.update(foreign.tfra(one.name, foreign.Rows(keys, column("values"), of_slots), 2))
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
