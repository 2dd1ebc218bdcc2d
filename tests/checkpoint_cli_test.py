# Not on GPUs: files, which are the same: see gpu_checkpoints_test
"""The command line: inspect, diff, all kinds of paths, and users' errors."""

import os
import re

import numpy as np
import pytest
import tensorflow as tf

import checkpoint_files
import forked
import harness  # noqa: F401 - quiets TensorFlow
from checkpoint_files import BLOCKS, BLOOM, COUNTER, History, shard, table_description, write_table
from same_length import zip_equal
from saved_files import refused
from saved_files import run_command as run
from sparse_operation_kit.checkpoint import CheckpointError, compare, diff, open_checkpoint


def saved_history(tmp_path, name="items", steps=3, seed=0, **fields):
    made = History(tmp_path, np.random.default_rng(seed), table=table_description(name=name), **fields)
    made.save_steps(steps, 100)
    return made


def two_tables(tmp_path):
    """The histories of two tables in checkpoints of one directory."""
    made = [
        History(tmp_path, np.random.default_rng(0), table=table_description(name=name))
        for name in ("items", "scope/users")
    ]
    checkpoint_files.save_steps(made, 2, 20)
    (tmp_path / "checkpoint").write_text('model_checkpoint_path: "model.ckpt-1"\n')
    return made


def test_every_kind_of_path(tmp_path, capsys):
    two_tables(tmp_path)
    for path in (tmp_path / "model.ckpt-1", tmp_path, tmp_path / "model.ckpt-1.index"):
        checkpoint = open_checkpoint(path)
        assert [entry.name for entry in checkpoint.tables] == ["items", "scope/users"]
        assert checkpoint.prefix == tmp_path / "model.ckpt-1"
        assert run(capsys, "verify", path)[0] == 0


@pytest.mark.parametrize("command", [["inspect"], ["verify"], ["diff"], ["compact"], ["export"]])
def test_errors_of_users_have_no_traceback(tmp_path, capsys, command):
    others = {
        "diff": [tmp_path / "other"],
        "compact": ["--to", tmp_path / "new"],
        "export": ["--format", "npy", "--to", tmp_path / "new"],
    }
    nothing = tmp_path / "nothing"
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("no checkpoint")
    (tmp_path / "broken.index").write_text("no checkpoint")
    messages = {
        nothing: "there is neither a checkpoint with this prefix nor such a folder",
        tmp_path / "empty": "holds no checkpoint",
        tmp_path / "file": "is a file",
        tmp_path / "broken": "is damaged, or not the index of a checkpoint",
    }
    for path, message in messages.items():
        status, output, error = run(capsys, *command, path, *others.get(command[0], []))
        assert status == 2 and output == ""
        assert message in error and str(path) in error and len(error.splitlines()) == 1
    assert not (tmp_path / "new").exists()


def test_a_checkpoint_without_tables(tmp_path, capsys):
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        tf.compat.v1.get_variable("plain", initializer=1.0)
        session.run(tf.compat.v1.global_variables_initializer())
        tf.compat.v1.train.Saver().save(session, str(tmp_path / "plain"))
    assert "without any embedding table" in refused(capsys, "inspect", tmp_path / "plain")


def test_inspect(tmp_path, capsys):
    description = table_description(admission=COUNTER, capacity=1000)
    made = History(tmp_path, np.random.default_rng(0), table=description)
    saved = made.save_steps(2, 100)
    status, output, error = run(capsys, "inspect", saved.prefix)
    assert status == 0 and error == ""
    for expected in (
        "items\n",
        str(saved.prefix),
        "delta after 1 checkpoint, of step 2",
        "int64, hashed, at most 1,000 on a rank (on_full: error)",
        "uniform, a -0.05, b 0.05, seed 17",
        "lazy_adam, 2 steps; first with alpha 0.001",
        "m [4], v [4]",
        "counter, filter_freq 5, default_value 0.25",
        f"waiting     {len(saved.waiting)} ids",
        f"rows        {len(saved.rows)} of 4 floats in 2 shards",
        str(made.saved[0].prefix),
    ):
        assert expected in output, expected


def counts_of(output, title):
    """{label: count} of a histogram in inspect's output."""
    lines = output.split(f"  {title}\n")[1].splitlines()
    found = {}
    for line in lines:
        if not line.startswith("    "):
            break
        label, count = line.split("#")[0].rsplit(maxsplit=1)
        found[label.strip()] = int(count.replace(",", ""))
    return found


def test_histograms(tmp_path, capsys):
    keys = np.concatenate([np.arange(10), [-1, -2, -4, 2**62]]).astype(np.int64)
    values = np.zeros([len(keys), 4], "<f4")
    values[1] = [3e-4, 0, 4e-4, 0]
    values[2:6, 0] = 2.0
    values[7, 2] = np.nan
    shards = [{"keys": keys[keys % 2 == n], "values": values[keys % 2 == n]} for n in (0, 1)]
    write_table(tmp_path / "a", shards)
    output = run(capsys, "inspect", tmp_path / "a")[1]
    assert counts_of(output, "rows by shard") == {"shard 0": 8, "shard 1": 6}
    leading = {label: n for label, n in counts_of(output, "rows by the first bits of the key").items() if n}
    assert leading == {"0000…": 10, "0100…": 1, "1111…": 3}
    norms = {label: n for label, n in counts_of(output, "rows by Euclidean norm").items() if n}
    assert norms == {"0": 8, "0.00032 to 0.001": 1, "1 to 3.2": 4}
    assert "1 row with a weight that is NaN" in output
    assert "rows by" not in run(capsys, "inspect", tmp_path / "a", "--brief")[1]


def test_memory_for_the_rows_that_are_looked_up_most(tmp_path, capsys):
    rng = np.random.default_rng(0)
    counts = np.concatenate([rng.zipf(1.3, 3000).clip(0, 10**9), [0, 0, 5_000_000_000]]).astype(np.int64)
    write_table(tmp_path / "a", [shard(range(len(counts)), frequency=counts)])
    lines = run(capsys, "inspect", tmp_path / "a")[1].split("memory for the rows")[1].splitlines()[1:4]
    falling = np.cumsum(np.sort(counts)[::-1]) / counts.sum()
    for line, share in zip_equal(lines, (0.9, 0.99, 0.999)):
        percent, rows, size = re.fullmatch(r" +(\S+) % of lookups +(\S+) rows +(\S+) bytes", line).groups()
        found = int(rows.replace(",", ""))
        assert float(percent) == 100 * share and int(size.replace(",", "")) == 16 * found
        # Counts of a bin differ by at most 1/16 of them.
        assert falling[max(found - 2, 0)] <= share + 0.07 and falling[found] >= share * 0.93
    assert "memory for" not in run(capsys, "inspect", tmp_path / "a", "--brief")[1]


HOSTILE_NAME = "it\x1b[2J\x07ems\n\u202e\u2028\x9b31m"
PRINTED_NAME = r"it\x1b[2J\x07ems\x0a\xe2\x80\xae\xe2\x80\xa8\xc2\x9b31m"


def test_text_from_files_is_printed_as_text(tmp_path, capsys):
    """Names, optimizers, slots and all other text of entries, in output and in errors."""
    made = saved_history(tmp_path / "a\x1bb", HOSTILE_NAME)
    first = made.saved[-1].prefix
    second = saved_history(tmp_path / "other", HOSTILE_NAME, seed=1).saved[-1].prefix
    lagging = saved_history(tmp_path / "a\x1bb" / "lagging", HOSTILE_NAME, 1)
    lagging.train()
    late = lagging.save("late", delta=True, lagging=True).prefix
    damaged = tmp_path / "damaged"
    write_table(damaged, [shard([1, 1])], table=table_description(name=HOSTILE_NAME))
    commands = [
        ("inspect", first),
        ("inspect", first, "--id", next(iter(made.rows))),
        ("inspect", second, "--table", "none"),
        ("verify", damaged),
        ("diff", first, second),
        ("diff", first, late),
        ("export", first, "--to", tmp_path / HOSTILE_NAME / "x", "--format", "npy"),
        ("compact", first, "--to", tmp_path / HOSTILE_NAME / "x"),
    ]
    for command in commands:
        _, output, error = run(capsys, *command)
        printed = output + error
        assert all(line.isprintable() for line in printed.split("\n")), command
        assert any(text in printed for text in (PRINTED_NAME, repr(HOSTILE_NAME), r"a\x1bb")), command
        assert HOSTILE_NAME not in printed


def test_errors_name_undecodable_text(tmp_path):
    with pytest.raises(CheckpointError) as error:
        open_checkpoint(os.fsdecode(bytes(tmp_path) + b"/\xff\x1b\n"))
    assert str(error.value).startswith(rf"{tmp_path}/\xff\x1b\x0a: ")
    assert error.value.path == os.fsdecode(bytes(tmp_path) + b"/\xff\x1b\n")


def test_a_chain_with_a_path_above_the_root(tmp_path, capsys):
    """The parent of the root is the root, as for the system, so the checkpoint is looked for there."""
    first, last = saved_history(tmp_path, steps=2).saved
    up = "../" * 1000
    for prefix in (f"{up}none", f"{up}{first.prefix}"):
        chain = [{"prefix": prefix, "id": first.id}]
        checkpoint_files.write(last.prefix, checkpoint_files.changed(last.tensors, "items", chain=chain))
        if prefix.endswith("none"):
            for command in ("inspect", "verify"):
                _, output, error = run(capsys, command, last.prefix)
                assert "'/none.index'" in output + error
    assert run(capsys, "verify", last.prefix)[0] == 0


def test_empty_tables(tmp_path, capsys):
    made = History(tmp_path, np.random.default_rng(0))
    prefix = made.save("model.ckpt-0").prefix
    status, output, _ = run(capsys, "inspect", prefix, "--png", tmp_path / "a.png")
    assert status == 0 and "rows        0 of 4 floats" in output


def test_pictures(tmp_path, capsys):
    made = saved_history(tmp_path)
    assert run(capsys, "inspect", made.saved[-1].prefix, "--png", tmp_path / "a.png")[0] == 0
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    assert "a.png" in refused(capsys, "inspect", made.saved[-1].prefix, "--png", tmp_path / "no" / "a.png")


def test_one_id(tmp_path, capsys):
    made = History(tmp_path, np.random.default_rng(0), table=table_description(admission=COUNTER))
    made.train(100)
    made.waiting = {5: (3, 1)}
    made.rows.pop(5, None)
    saved = made.save("model.ckpt-0")
    key = min(saved.rows)
    made_row = saved.rows[key]
    output = run(capsys, "inspect", saved.prefix, "--id", key, "--table", "items")[1]
    assert output.startswith(f"items: id {key}, shard {key % 2}\n")
    fields = dict(line.strip().split(maxsplit=1) for line in output.splitlines()[1:])
    assert fields.keys() == {"values", "slot-m", "slot-v", "frequency"}
    assert np.array_equal(np.array(fields["values"].strip("[]").split(), "<f4"), made_row["values"])
    assert fields["frequency"] == str(made_row["frequency"])
    output = run(capsys, "inspect", saved.prefix, "--id", 5)[1]
    assert "waits for admission" in output and "3 of 5" in output
    assert "no row of the id 31337" in refused(capsys, "inspect", saved.prefix, "--id", 31337)
    assert "not in [-2^63, 2^63)" in refused(capsys, "inspect", saved.prefix, "--id", 2**63)
    error = refused(capsys, "inspect", saved.prefix, "--table", "none")
    assert "has no table 'none'; it has 'items'" in error


def test_an_id_of_several_tables(tmp_path, capsys):
    two_tables(tmp_path)
    error = refused(capsys, "inspect", tmp_path / "model.ckpt-0", "--id", 1)
    assert "name one with --table: 'items', 'scope/users'" in error


def compare_states(old, new):
    """(added, removed, changed) of two states of a History."""
    both = old.rows.keys() & new.rows.keys()
    changed = [
        key
        for key in both
        if any(np.any(old.rows[key][name] != new.rows[key][name]) for name in old.rows[key])
    ]
    return len(new.rows.keys() - old.rows.keys()), len(old.rows.keys() - new.rows.keys()), len(changed)


@pytest.mark.parametrize("held", [1500, 1 << 28])
@pytest.mark.parametrize("admission", [None, COUNTER, BLOOM, BLOCKS])
def test_diff_of_states(tmp_path, monkeypatch, held, admission):
    monkeypatch.setattr(diff, "_HELD_BYTES", held)
    made = History(tmp_path, np.random.default_rng(3), table=table_description(admission=admission), shards=3)
    made.save_steps(4, 80, fulls=(0, 2))
    tables = [open_checkpoint(saved.prefix).tables[0].open() for saved in made.saved]
    for old, old_table in zip_equal(made.saved, tables):
        for new, new_table in zip_equal(made.saved, tables):
            found = compare(old_table, new_table)
            assert (found.added, found.removed, found.changed) == compare_states(old, new)
            assert found.is_empty == (old is new)
            waiting = [
                key
                for key in old.waiting.keys() | new.waiting.keys()
                if old.waiting.get(key) != new.waiting.get(key)
            ]
            assert found.waiting == len(waiting)
            assert found.bloom == (admission in (BLOOM, BLOCKS) and old is not new)
            changes = {
                key: np.abs(new.rows[key]["values"].astype(float) - old.rows[key]["values"]).max()
                for key in old.rows.keys() & new.rows.keys()
            }
            assert found.largest_change == max(changes.values(), default=0)
            if old is not new:
                assert changes[found.largest_at] == found.largest_change


def test_diff_does_not_see_shards_or_order(tmp_path, capsys):
    made = saved_history(tmp_path, steps=1)
    made.shards = 3
    made.bloom = made.bloom + made.bloom[:1]
    made.rows = dict(reversed(list(made.rows.items())))
    again = made.save("again")
    assert run(capsys, "diff", made.saved[0].prefix, again.prefix) == (0, "", "")


def test_diff_output(tmp_path, capsys):
    made = History(tmp_path, np.random.default_rng(0), table=table_description(admission=COUNTER))
    made.train(100)
    made.save("model.ckpt-0")
    key = next(iter(made.rows))
    made.rows[key]["values"] = made.rows[key]["values"] + np.float32(2)
    made.rows[list(made.rows)[-1]]["frequency"] += 1
    made.rows[12345] = made.rows[key]
    made.steps += 1
    changed = made.save("changed")
    status, output, _ = run(capsys, "diff", made.saved[0].prefix, changed.prefix)
    assert status == 1
    assert "items: ids: 1 added, 0 removed, 2 changed" in output
    assert "items: values: of 1 id changed, a weight by 2" in output and f"(id {key})" in output
    assert "items: frequency: of 1 id changed" in output
    assert "items: steps is 2, was 1" in output


def test_diff_of_nan(tmp_path, capsys):
    made = saved_history(tmp_path, steps=1)
    key = next(iter(made.rows))
    made.rows[key]["values"] = np.full([4], np.nan, "<f4")
    first, second = made.save("first"), made.save("second")
    assert run(capsys, "diff", first.prefix, second.prefix)[0] == 0
    status, output, _ = run(capsys, "diff", made.saved[0].prefix, second.prefix)
    assert status == 1 and "a weight by inf" in output


def test_diff_of_other_tables(tmp_path, capsys):
    both = two_tables(tmp_path / "b")[0].saved[0].tensors
    of_one = {name: value for name, value in both.items() if not name.startswith("scope/users")}
    checkpoint_files.write(tmp_path / "a" / "model.ckpt-0", of_one)
    first, second = tmp_path / "a" / "model.ckpt-0", tmp_path / "b" / "model.ckpt-0"
    assert run(capsys, "diff", first, second)[:2] == (1, f"scope/users: only in {second}\n")
    assert run(capsys, "diff", second, first)[:2] == (1, f"scope/users: only in {second}\n")
    assert run(capsys, "diff", first, second, "--table", "items")[0] == 0


@pytest.mark.parametrize("damage", ["a variable", "the new files"])
def test_compaction_that_fails_leaves_nothing(tmp_path, capsys, damage):
    made = saved_history(tmp_path)
    saved, new = made.saved[-1], tmp_path / "new" / "model.ckpt-2"
    new.parent.mkdir()
    checkpoint_files.write(saved.prefix, {**saved.tensors, "dense": np.ones([1000], "<f4")})
    data = tmp_path / "model.ckpt-2.data-00000-of-00002"
    content = data.read_bytes()
    if damage == "a variable":
        data.write_bytes(content.replace(np.ones([2], "<f4").tobytes(), bytes(8), 1))
    else:
        # The new checkpoint's index cannot be written where there is a folder.
        new.with_name("model.ckpt-2.index").mkdir()
    error = refused(capsys, "compact", saved.prefix, "--to", new)
    assert ("'dense' is damaged" if damage == "a variable" else f"{new}.index: exists already") in error
    assert [path.name for path in new.parent.iterdir() if not path.is_dir()] == []
    # Once the reason is gone, the same command works.
    data.write_bytes(content)
    if damage == "the new files":
        new.with_name("model.ckpt-2.index").rmdir()
    assert run(capsys, "compact", saved.prefix, "--to", new)[0] == 0
    assert run(capsys, "verify", new)[0] == 0
    assert tf.train.load_checkpoint(str(new)).get_tensor("dense").tolist() == [1.0] * 1000


@pytest.mark.parametrize("command", [[], ["inspect"], ["verify"], ["diff"], ["compact"], ["export"]])
def test_help(capsys, command):
    status, output, _ = run(capsys, *command, "--help")
    assert status == 0 and "%" not in output and len(output.splitlines()) > 5


def test_as_a_program(tmp_path):
    made = saved_history(tmp_path, steps=1)
    command = ["-m", "sparse_operation_kit.checkpoint", "inspect", str(made.saved[0].prefix)]
    assert forked.succeeded(forked.run_interpreter(*command)).startswith("items\n")
