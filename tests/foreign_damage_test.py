# Not on GPUs: files, which are the same: see gpu_checkpoints_test
"""Damaged checkpoints of other systems: errors that name what is wrong, and nothing changes."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
import tensorflow as tf

import checkpoint_files
import foreign_checkpoints as foreign
import harness
import sparse_operation_kit as sok
from sparse_operation_kit.checkpoint import cli

v1 = tf.compat.v1
DIM = 3
ROWS = 60
KEYS = (np.arange(ROWS, dtype=np.int64) * 37) % 2048
WAITING = 5000 + np.arange(7, dtype=np.int64)
# The names of parts in each form.
FIRST = {
    "deeprec": "t/part_0",
    "tfra": "t/t_mht_1of2",
    "variable": "t",
}


def rows(form):
    slots = ("Adam/m", "Adam/v") if form == "tfra" else ("Adam", "Adam_1")
    return foreign.random_rows(KEYS, WAITING, DIM, slots)


def good(form):
    """The tensors of a good checkpoint."""
    table = rows(form)
    form_of = {
        "deeprec": lambda: foreign.deeprec("t", table, 2),
        "tfra": lambda: foreign.tfra("t", table, 2),
        "variable": lambda: foreign.variable("t", table.values, **table.slots),
    }
    others = {
        "dense": np.float32([7, 8]),
        "dense/Adam": np.float32([1, 2]),
        "dense/Adam_1": np.float32([3, 4]),
        **foreign.adam_powers(2),
        "global_step": np.int64(50),
    }
    return {**form_of[form](), **others}


def is_read(name):
    """Whether a tensor is one that a restore reads: not the counts of slots, and what waits in them."""
    return not ("Adam" in name and name.endswith(("freqs", "versions", "filtered", "filter_offset")))


class Model:
    """A table with policies and a dense variable, which were trained."""

    def __init__(self, session):
        self.session = session
        step = v1.train.get_or_create_global_step()
        option = sok.EmbeddingVariableOption(
            filter_option=sok.CounterFilter(filter_freq=3), evict_option=sok.GlobalStepEvict(100)
        )
        self.table = sok.get_embedding_variable("t", embedding_dim=DIM, ev_option=option)
        self.rows = tf.nn.embedding_lookup(self.table, tf.constant(KEYS, tf.int64))
        self.dense = v1.get_variable("dense", initializer=[1.0, 2.0])
        loss = tf.reduce_sum(tf.square(self.rows[:, :2] * self.dense))
        train = v1.train.AdamOptimizer(0.1).minimize(loss, global_step=step)
        self.saver = v1.train.Saver()
        self.values = [*self.table.export(), self.dense, step]
        session.run(v1.global_variables_initializer())
        for _ in range(3):
            session.run(train)
        self.before = session.run(self.values)

    def refuses(self, prefix, names=()):
        """Checks that a restore fails, names one of these, and changes nothing. Returns the message."""
        with pytest.raises((tf.errors.OpError, ValueError)) as caught:
            self.saver.restore(self.session, str(prefix))
        text = str(caught.value)
        assert isinstance(
            caught.value,
            (tf.errors.DataLossError, tf.errors.InvalidArgumentError, tf.errors.NotFoundError, ValueError),
        ), text
        assert any(name in text for name in [*names, str(prefix)]), text
        self.is_unchanged()
        return text

    def is_unchanged(self):
        harness.assert_equal_arrays(self.session.run(self.values), self.before)


@pytest.fixture(scope="module")
def model():
    with harness.graph_and_session() as session:
        yield Model(session)


def damages(form):
    """Changes of a good checkpoint's tensors: a name, the tensor that the error names, and the change."""

    def changed(name, change):
        return lambda tensors: {**tensors, name: change(tensors[name])}

    def without(name):
        return lambda tensors: {key: value for key, value in tensors.items() if key != name}

    def added(name, value):
        return lambda tensors: {**tensors, name: value}

    first = FIRST[form]
    for name, value in good(form).items():
        if not name.startswith((first, "t/", "m/", "v/")) or name == "dense":
            continue
        if not is_read(name):
            continue
        is_optional = name.endswith(("-freqs", "-versions", "_offset", "versions_filtered", "-keys_filtered"))
        is_slot_of_variable = form == "variable" and name != "t"
        if not is_optional and not is_slot_of_variable:
            yield f"no {name}", name, without(name)
        for what, change in {
            "as uint8": lambda one: one.astype(np.uint8),
            "cut": lambda one: one[:-1],
            "with one more": lambda one: np.concatenate([one, one[:1]]),
            "with one more dimension": lambda one: one[:, None],
            "with its sizes in another order": lambda one: one.T if one.ndim == 2 else one[None],
        }.items():
            yield f"{name} {what}", name, changed(name, change)
        if value.ndim == 2 and value.dtype == np.float32:
            yield f"{name} of another dim", name, changed(name, lambda one: np.repeat(one, 2, axis=1))
        if name.endswith("_offset"):
            for place, number in ((0, 1), (500, 10**6), (500, -1), (1000, 5), (1000, 10**6)):

                def wrong(one, place=place, number=number):
                    one = one.copy()
                    one[place] = number
                    return one

                yield f"{name} with {number} at {place}", name, changed(name, wrong)
        if name.endswith(("-freqs", "-versions", "s_filtered")) and "keys" not in name:
            yield f"{name} negative", name, changed(name, lambda one: one - 1000)
    yield "global_step negative", "global_step", changed("global_step", lambda one: np.int64(-1))
    if form == "variable":
        yield "another form", "t", lambda tensors: {**tensors, **good("tfra")}
        return
    second = first.replace("0", "1").replace("1of", "2of")
    keys = f"{first}-keys"
    yield "a key twice", keys, changed(keys, lambda one: np.concatenate([one[:1], one[:1], one[2:]]))

    def of_other_part(tensors):
        twice = tensors[keys].copy()
        twice[1] = tensors[f"{second}-keys"][1]
        return {**tensors, keys: twice}

    yield "a key in two parts", keys, of_other_part
    yield "the variable too", "t", added("t", np.zeros([4, DIM], np.float32))
    yield (
        "the other form too",
        "t",
        lambda tensors: {**tensors, **good("tfra" if form == "deeprec" else "deeprec")},
    )
    yield (
        "no first part",
        keys,
        lambda tensors: {name: one for name, one in tensors.items() if not name.startswith(first)},
    )

    def of_another_optimizer(tensors):
        tables = {name: one for name, one in tensors.items() if "-" in name}
        slots = {name: one for name, one in tables.items() if "Adam" in name}
        renamed = {
            name.replace("m/t_Adam_m", "accumulator/t_Adagrad_accumulator").replace("Adam-", "Adagrad-"): one
            for name, one in slots.items()
            if "Adam_1" not in name and "Adam_v" not in name
        }
        return {**{name: one for name, one in tensors.items() if name not in slots}, **renamed}

    yield "another optimizer", "Adagrad", of_another_optimizer
    if form == "deeprec":
        yield "the whole too", "t/part_1", added("t-keys", KEYS)
        waits = f"{first}-keys_filtered"
        yield (
            "a key that waits twice",
            waits,
            changed(waits, lambda one: np.concatenate([one[:1], one[:1], one[2:]])),
        )

        def has_row(tensors):
            waiting = tensors[waits].copy()
            waiting[0] = tensors[keys][0]
            return {**tensors, waits: waiting}

        yield "a key with a row that waits", waits, has_row
    else:
        yield (
            "three shards",
            "t",
            lambda tensors: {name.replace("of2", "of3"): one for name, one in tensors.items()},
        )
        yield "two scopes", "t_1/t_mht_1of2", added("t_1/t_mht_1of2-keys", KEYS)


@pytest.mark.parametrize("form", FIRST)
def test_tensors(model, tmp_path, form):
    count = 0
    for number, (what, name, change) in enumerate(damages(form)):
        prefix = tmp_path / str(number)
        checkpoint_files.write_files(prefix, change(good(form)))
        try:
            text = model.refuses(prefix, [name])
        except BaseException as error:
            raise AssertionError(what) from error
        more = ["--to", str(tmp_path / "to"), *(["--table", "t"] if form == "variable" else [])]
        # Slots of another optimizer are that one's where no program says which it is, or left out.
        passes = what in (
            "another optimizer",
            "t/Adam with one more dimension",
            "t/Adam_1 with one more dimension",
        )
        assert cli.main(["convert", str(prefix), *more]) == (0 if passes else 2), what
        assert (tmp_path / "to").exists() == passes, what
        shutil.rmtree(tmp_path / "to", ignore_errors=True)
        lines = [line for line in text.split("\n") if "Embedding variable" in line or "error has" in line]
        # Of tensors that do not fit each other, any.
        told = [
            name,
            name.split("-")[0] + "-",
            name.replace("_1", ""),
            "shard 1 of 2",
            "shard 2 of 2",
            "has 3 columns, not 6",
        ]
        assert any(one in line for one in told for line in lines or text.split("\n")), (
            what,
            lines,
            text[:300],
        )
        count += 1
    assert count >= {"deeprec": 100, "tfra": 50, "variable": 15}[form]


@pytest.mark.parametrize("form", FIRST)
def test_bytes(model, tmp_path, form):
    """A changed byte of the index or the data, or what is left of either, never gives other rows."""
    prefix = tmp_path / "m"
    tensors = {name: one for name, one in good(form).items() if is_read(name)}
    checkpoint_files.write_files(prefix, tensors, alignment=64)
    rng = np.random.default_rng(0)
    for path in (tmp_path / "m.index", checkpoint_files.data_file(prefix, 0, 1)):
        whole = path.read_bytes()
        places = [place for place in range(len(whole)) if whole[place]]
        for place in rng.choice(places, 25, replace=False):
            path.write_bytes(
                whole[:place] + bytes([whole[place] ^ 1 << rng.integers(8)]) + whole[place + 1 :]
            )
            model.refuses(prefix)
        for size in rng.integers(0, len(whole), 8):
            path.write_bytes(whole[:size])
            model.refuses(prefix)
        path.write_bytes(whole)


@pytest.mark.parametrize("form", FIRST)
def test_links(model, tmp_path, form):
    """A file of the checkpoint must not be a link; its folder may be one."""
    prefix = tmp_path / "real" / "m"
    prefix.parent.mkdir()
    checkpoint_files.write_files(prefix, good(form))
    (tmp_path / "links").symlink_to("real")
    for path in sorted(prefix.parent.iterdir()):
        kept = path.rename(tmp_path / "kept")
        path.symlink_to(kept)
        text = model.refuses(prefix, [f"{path}' is a symbolic link"])
        assert path.name in text
        assert cli.main(["inspect", str(prefix), "--table", "t"]) == 2
        path.unlink()
        kept.rename(path)
    assert cli.main(["inspect", str(tmp_path / "links" / "m"), "--table", "t"]) == 0


HOSTILE = {
    "rows": {"shape": (2**62,)},
    "rows and floats": {"shape": (2**40, 2**40)},
    "no columns": {"shape": (ROWS, 0)},
    "bytes": {"size": 2**62},
    "offset": {"offset": 2**62},
    "file": {"file": 1},
    "a type": {"dtype": 99},
    "many sizes": {"shape": (1,) * 300},
}


@pytest.mark.parametrize("form", FIRST)
def test_entries(model, tmp_path, form):
    """Entries of an index with a good checksum and impossible numbers."""
    names = ["t"] if form == "variable" else [f"{FIRST[form]}-keys", f"{FIRST[form]}-values"]
    for number, (name, what) in enumerate((name, what) for name in names for what in HOSTILE):
        prefix = tmp_path / str(number)
        entries, data = {}, b""
        for tensor, value in good(form).items():
            dtype, shape, content, crc = checkpoint_files._encode(value)
            fields = {
                "dtype": dtype,
                "shape": shape,
                "file": 0,
                "offset": len(data),
                "size": len(content),
                "crc": crc,
            }
            entries[tensor] = checkpoint_files.place(
                **{**fields, **(HOSTILE[what] if tensor == name else {})}
            )
            data += content
        checkpoint_files.data_file(prefix, 0, 1).write_bytes(data)
        checkpoint_files.write_index(prefix.with_name(f"{prefix.name}.index"), entries, 1)
        model.refuses(prefix, [name])


def test_large_tables_are_checked_before_anything_changes(tmp_path):
    """Those beyond 4 MiB do not load beside the table that they replace."""
    count, dim = 30000, 16
    keys = np.arange(count, dtype=np.int64) * 3
    values = np.random.default_rng(0).random([count, dim], np.float32)
    table = foreign.Rows(keys, values, {"Adam": values + 1, "Adam_1": values + 2})
    tensors = {**foreign.adam_powers(0), **foreign.deeprec("t", table, 2)}

    def with_last(name, value):
        array = tensors[name].copy()
        array.flat[-1] = value
        return {**tensors, name: array}

    bad = {
        "t/part_1-keys": with_last("t/part_1-keys", tensors["t/part_0-keys"][7]),
        "t/part_1-freqs": {**tensors, "t/part_1-freqs": np.arange(5)},
    }
    with harness.graph_and_session() as session:
        variable = sok.EmbeddingVariable("t", dim)
        rows = tf.nn.embedding_lookup(variable, tf.constant(keys))
        v1.train.AdamOptimizer(0.1).minimize(tf.reduce_sum(rows))
        session.run(v1.global_variables_initializer())
        saver = v1.train.Saver()
        foreign.save(tmp_path / "m", tensors)
        saver.restore(session, str(tmp_path / "m"))
        np.testing.assert_array_equal(session.run(rows), values)
        for name, tensors_of in bad.items():
            foreign.save(tmp_path / "bad", tensors_of)
            with pytest.raises(tf.errors.DataLossError, match=name):
                saver.restore(session, str(tmp_path / "bad"))
            np.testing.assert_array_equal(session.run(rows), values)
        data = checkpoint_files.data_file(tmp_path / "m", 0, 1)
        whole = data.read_bytes()
        place = whole.index(tensors["t/part_0/Adam_1-values"][100].tobytes())
        data.write_bytes(whole[:place] + b"?" + whole[place + 1 :])
        with pytest.raises(tf.errors.DataLossError, match="t/part_0/Adam_1-values.*damaged"):
            saver.restore(session, str(tmp_path / "m"))
        np.testing.assert_array_equal(session.run(rows), values)
