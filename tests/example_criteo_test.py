"""The reader of Criteo's files: missing and omitted columns, malformed lines, one file or several."""

import numpy as np
import pytest
import tensorflow as tf

from ctr.bad_lines import BadLines
from ctr.datasets.criteo import Criteo
from example_support import criteo_line, id_of, joined, read_part, write_criteo
from same_length import zip_equal


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default():
        yield


def read_lines(folder, lines, bad_lines=None):
    """The samples of a train.txt with these lines (bytes)."""
    (folder / "train.txt").write_bytes(b"\n".join(lines) + b"\n")
    dataset = Criteo(str(folder), 1, 0.0, BadLines(0, print) if bad_lines is None else bad_lines)
    return joined(read_part(dataset, "training"))


def test_columns_stand_where_the_schema_says(tmp_path):
    sample = read_lines(tmp_path, [criteo_line(1, "20", "abcd1234").encode()])
    ids = dict(zip_equal(Criteo.schema.one_hot, sample["one_hot"][0]))
    assert sample["label"] == [1]
    assert ids["C1"] == id_of("C1", "abcd1234")
    assert ids["C2"] == id_of("C2", "")
    assert ids["C26"] == id_of("C26", "00000017")
    assert ids["I1"] == id_of("I1", str(int(np.log1p(20) ** 2)))
    # Missing, negative and zero integers are different categories; as numbers, all are 0.
    assert ids["I2"] == id_of("I2", "")
    assert ids["I3"] == id_of("I3", "-1")
    assert sample["dense"][0, :4] == pytest.approx(np.array([np.log1p(20) / 3, 0, 0, np.log1p(5) / 3]))


def test_trailing_categories_that_are_cut_off_read_as_missing(tmp_path):
    whole = criteo_line().split("\t")
    cut = "\t".join(whole[:37])
    padded = "\t".join(whole[:37] + [""] * 3)
    samples = read_lines(tmp_path, [cut.encode(), padded.encode()])
    assert samples["one_hot"][0].tolist() == samples["one_hot"][1].tolist()
    assert samples["one_hot"][0, 25] == id_of("C26", "")


def test_a_line_of_nothing_but_its_label_is_read(tmp_path):
    sample = read_lines(tmp_path, [b"1" + b"\t" * 39])
    assert sample["label"] == [1]
    assert not sample["dense"].any()


@pytest.mark.parametrize(
    "line, reason",
    [
        (b"1\t2\t3", "3 columns instead of 40"),
        (criteo_line().encode() + b"\tx", "41 columns instead of 40"),
        (criteo_line(first_integer="x").encode(), "I1 is 'x', not a whole number"),
        (criteo_line(first_integer="1.5").encode(), "I1 is '1.5', not a whole number"),
        (criteo_line(first_integer="-").encode(), "I1 is '-', not a whole number"),
        (criteo_line(label=2).encode(), "the label is '2', not 0 or 1"),
        (b"\xfe" + criteo_line()[1:].encode(), "byte 0xfe at position 0 is not UTF-8"),
        (criteo_line(first_category="\xe9").encode("latin-1"), "byte 0xe9 at position 28 is not UTF-8"),
    ],
)
def test_a_malformed_line_is_left_out_and_named(tmp_path, line, reason):
    bad_lines = BadLines(10, print)
    good = criteo_line().encode()
    assert len(read_lines(tmp_path, [line, good, good], bad_lines)["label"]) == 2
    assert bad_lines.entries() == [(str(tmp_path / "train.txt"), 1, reason)]


def test_the_days_of_the_terabyte_logs_are_read_together(tmp_path):
    for day in (0, 2, 10):
        write_criteo(tmp_path, lines=40)
        (tmp_path / "train.txt").rename(tmp_path / f"day_{day}")
    with (tmp_path / "day_2").open("a") as stream:
        stream.write("broken\n")
    bad_lines = BadLines(5, print)
    dataset = Criteo(str(tmp_path), 1, 0.25, bad_lines)
    sizes = [len(joined(read_part(dataset, part))["label"]) for part in ("training", "held_out")]
    assert sum(sizes) == 120
    assert bad_lines.entries() == [(str(tmp_path / "day_2"), 41, "1 columns instead of 40")]


def test_a_folder_without_files_is_an_error_that_names_them(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"train\.txt"):
        Criteo(str(tmp_path / "absent"), 1, 0.2, BadLines(0, print))
