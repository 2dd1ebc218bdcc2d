"""The held-out split: the same on every pass, disjoint from the training part, and of the given size."""

import numpy as np
import pytest
import tensorflow as tf

from ctr.bad_lines import BadLines
from ctr.datasets.criteo import Criteo
from ctr.datasets.synthetic import Synthetic
from ctr.parsing import HeldOut
from example_support import criteo_line, id_of, joined, read_part


def mask(fraction, seed, count, file=0):
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        numbers = tf.range(1, count + 1, dtype=tf.int64)
        return session.run(HeldOut(fraction, seed).mask(tf.fill([count], np.int64(file)), numbers))


@pytest.mark.parametrize("fraction", [0.0, 0.05, 0.2, 0.5])
def test_the_fraction_is_kept(fraction):
    assert mask(fraction, 1, 20000).mean() == pytest.approx(fraction, abs=0.01)


def test_the_split_is_a_function_of_seed_file_and_line():
    assert (mask(0.2, 3, 500) == mask(0.2, 3, 500)).all()
    assert (mask(0.2, 3, 500) == mask(0.2, 3, 700)[:500]).all()
    assert (mask(0.2, 3, 500) != mask(0.2, 4, 500)).any()
    assert (mask(0.2, 3, 500, file=0) != mask(0.2, 3, 500, file=1)).any()


def test_parts_are_disjoint_whole_and_the_same_in_every_order(tmp_path):
    lines = [criteo_line(0, "1", f"{number:08x}") for number in range(120)]
    (tmp_path / "train.txt").write_text("\n".join(lines) + "\n")
    everything = {id_of("C1", f"{number:08x}") for number in range(120)}

    def first_categories(part, seed):
        with tf.Graph().as_default():
            dataset = Criteo(str(tmp_path), 9, 0.3, BadLines(0, print))
            return joined(read_part(dataset, part, shuffle_seed=seed))["one_hot"][:, 0].tolist()

    training, again = first_categories("training", 1), first_categories("training", 2)
    held_out = first_categories("held_out", 1)
    assert training != again and sorted(training) == sorted(again)
    assert training == first_categories("training", 1)
    assert not set(training) & set(held_out)
    assert set(training) | set(held_out) == everything
    assert len(training) + len(held_out) == 120


def test_synthetic_parts_differ_and_repeat():
    with tf.Graph().as_default():
        dataset = Synthetic(4, 5000, 5000)
        training, held_out = (joined(read_part(dataset, part, 512)) for part in ("training", "held_out"))
        again = joined(read_part(Synthetic(4, 5000, 5000), "held_out", 512))
    assert (held_out["one_hot"] == again["one_hot"]).all()
    assert (held_out["label"] == again["label"]).all()
    assert (held_out["dense"] != training["dense"]).any()
