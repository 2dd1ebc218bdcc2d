"""The reader of census income: both files as published, missing values, malformed lines."""

import numpy as np
import pytest
import tensorflow as tf

from ctr.bad_lines import BadLines
from ctr.datasets.census import Census
from example_support import census_line, id_of, joined, read_part, write_census
from same_length import zip_equal


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default():
        yield


def read_lines(folder, lines, bad_lines=None):
    """The samples of an adult.data with these lines (bytes)."""
    write_census(folder)
    (folder / "adult.data").write_bytes(b"\n".join(lines) + b"\n")
    return joined(
        read_part(Census(str(folder), BadLines(0, print) if bad_lines is None else bad_lines), "training")
    )


def test_training_and_held_out_files_are_read_whole(tmp_path):
    write_census(tmp_path, training=101, held_out=53)
    bad_lines = BadLines(0, print)
    dataset = Census(str(tmp_path), bad_lines)
    assert len(joined(read_part(dataset, "training"))["label"]) == 101
    assert len(joined(read_part(dataset, "held_out"))["label"]) == 53
    # The header of adult.test and the empty last lines are not malformed.
    assert len(bad_lines) == 0


@pytest.mark.parametrize(
    "text, label", [("<=50K", 0), (">50K", 1), ("<=50K.", 0), (">50K.", 1), (">50K \r", 1), (" >50K", 1)]
)
def test_labels_with_and_without_a_dot(tmp_path, text, label):
    assert read_lines(tmp_path, [census_line(label=text).encode()])["label"] == [label]


def test_columns_stand_where_the_schema_says(tmp_path):
    sample = read_lines(tmp_path, [census_line(age=47, workclass="State-gov", gain=2174).encode()])
    ids = dict(zip_equal(Census.schema.one_hot, sample["one_hot"][0]))
    assert ids["workclass"] == id_of("workclass", "State-gov")
    assert ids["native_country"] == id_of("native_country", "United-States")
    assert ids["age_bucket"] == id_of("age_bucket", "9")
    assert ids["gain_bucket"] == id_of("gain_bucket", str(int(np.log1p(2174) * 4)))
    expected = [(47 - 38) / 14, (13 - 10) / 2.5, np.log1p(2174) / 4, 0, 0]
    assert sample["dense"][0] == pytest.approx(np.array(expected), rel=1e-5)


def test_a_missing_value_is_a_value_of_its_own(tmp_path):
    sample = read_lines(tmp_path, [census_line(workclass="?").encode()])
    assert sample["one_hot"][0, 0] == id_of("workclass", "?")


@pytest.mark.parametrize(
    "line, reason",
    [
        (b"39, Private", "2 columns instead of 15"),
        (census_line().encode() + b", 1", "16 columns instead of 15"),
        (census_line().replace("39,", "old,").encode(), "age is 'old', not a whole number"),
        (census_line().replace("77516", "").encode(), "fnlwgt is '', not a whole number"),
        (census_line(gain=-1).encode(), "capital_gain is '-1', not a whole number"),
        (census_line(label="rich").encode(), "the label is 'rich', not <=50K or >50K"),
        (census_line(label="").encode(), "the label is '', not <=50K or >50K"),
        (census_line(workclass="Pr\xfcvate").encode("latin-1"), "byte 0xfc at position 6 is not UTF-8"),
    ],
)
def test_a_malformed_line_is_left_out_and_named(tmp_path, line, reason):
    bad_lines = BadLines(10, print)
    good = census_line().encode()
    assert len(read_lines(tmp_path, [good, good, line, good], bad_lines)["label"]) == 3
    assert bad_lines.entries() == [(str(tmp_path / "adult.data"), 3, reason)]


def test_missing_files_are_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="has no adult.data, adult.test"):
        Census(str(tmp_path), BadLines(0, print))
