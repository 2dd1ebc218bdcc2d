"""The list of malformed lines, and lines with too few or too many columns."""

import numpy as np
import pytest
import tensorflow as tf

from ctr.bad_lines import BadLines, TooManyBadLines
from text_columns import split_columns


def test_a_line_met_again_counts_once():
    bad_lines = BadLines(1, print)
    for _ in range(3):
        bad_lines.add("folder/file", 7, "reason")
    assert len(bad_lines) == 1


def test_beyond_the_limit_it_raises_and_names_the_last_line():
    bad_lines = BadLines(2, print)
    bad_lines.add("file", 1, "a")
    bad_lines.add("file", 2, "b")
    bad_lines.check(len(bad_lines))
    with pytest.raises(TooManyBadLines, match=r"more than 2 malformed lines .*file:3: c"):
        bad_lines.add("file", 3, "c")
    with pytest.raises(TooManyBadLines):
        bad_lines.check(len(bad_lines))


def test_a_limit_of_zero_allows_none():
    with pytest.raises(TooManyBadLines):
        BadLines(0, print).add("file", 1, "a")


def test_only_the_first_lines_are_announced_and_all_are_summed_up():
    said = []
    bad_lines = BadLines(100, said.append, announced=2)
    for number in (5, 3, 4):
        bad_lines.add("folder/one", number, "reason")
    bad_lines.add("folder/two", 1, "reason")
    assert said == ["malformed line folder/one:5: reason", "malformed line folder/one:3: reason"]
    assert bad_lines.summary() == "malformed lines left out: 4 (3 in one, 1 in two)"
    assert bad_lines.entries()[0] == ("folder/one", 3, "reason")


def test_nothing_bad_is_summed_up_as_nothing():
    assert BadLines(0, print).summary() == ""


def test_the_lines_of_other_ranks_are_merged_and_counted_beyond_any_limit():
    said = []
    bad_lines = BadLines(1, said.append)
    bad_lines.add("file", 2, "b")
    bad_lines.check(1)
    with pytest.raises(TooManyBadLines, match="more than 1 malformed lines .*file:2: b"):
        bad_lines.check(3)
    assert bad_lines.own_entries() == [("file", 2, "b")]
    bad_lines.merge([[("file", 1, "a")], [("file", 2, "b")], [("file", 3, "c")]])
    assert bad_lines.own_entries() == []
    with pytest.raises(TooManyBadLines):
        bad_lines.check(0)
    assert [number for _, number, _ in bad_lines.entries()] == [1, 2, 3]
    assert said == ["malformed line file:2: b", "malformed line file:1: a", "malformed line file:3: c"]


def test_missing_columns_are_empty_and_a_line_with_too_many_is_shown():
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        lines = tf.compat.v1.placeholder(tf.string, [None])
        columns = split_columns(lines, ",", 3)
        found = session.run(columns, {lines: ["a,b,c", "", "d,,", "e"]})
        np.testing.assert_array_equal(
            found, [[b"a", b"b", b"c"], [b""] * 3, [b"d", b"", b""], [b"e", b"", b""]]
        )
        assert session.run(columns, {lines: []}).shape == (0, 3)
        with pytest.raises(tf.errors.InvalidArgumentError, match=r"more than 3 columns.*d,e,f,g"):
            session.run(columns, {lines: ["a,b,c", "d,e,f,g,h", "i,j,k,l"]})
