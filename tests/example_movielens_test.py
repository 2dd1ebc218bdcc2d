"""The reader of MovieLens 100K: good lines, malformed lines, encodings, unknown users and movies."""

import numpy as np
import pytest
import tensorflow as tf

from ctr.bad_lines import BadLines
from ctr.datasets.movielens import MovieLens
from example_support import GENRES, id_of, joined, read_part, write_movielens


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default():
        yield


def read_all(folder, bad_lines=None):
    dataset = MovieLens(str(folder), 1, 0.0, BadLines(100, print) if bad_lines is None else bad_lines)
    return joined(read_part(dataset, "training"))


def only_rating(folder, line):
    write_movielens(folder)
    (folder / "u.data").write_bytes(line)
    return read_all(folder)


def test_a_rating_is_joined_with_its_user_and_movie(tmp_path):
    sample = only_rating(tmp_path, b"3\t7\t4\t881250949\n")
    expected = [("user", "3"), ("item", "7"), ("age", "4"), ("gender", "F"), ("occupation", "writer")]
    expected += [("zip", "103"), ("year", "1987")]
    assert sample["one_hot"].tolist() == [[id_of(*pair) for pair in expected]]
    assert sample["dense"] == pytest.approx(np.array([[(21 - 33) / 12, (1987 - 1985) / 15]]))
    # Movie 7 has the genres 7 and 7 * 7 % 19 = 11.
    assert np.flatnonzero(sample["multi_hot_present"][0, 0]).tolist() == [7, 11]
    assert sample["multi_hot"][0, 0].tolist() == [id_of("genres", f"genre={g}") for g in range(GENRES)]


@pytest.mark.parametrize("rating, label", [(1, 0), (2, 0), (3, 0), (4, 1), (5, 1)])
def test_a_rating_of_four_and_more_is_a_click(tmp_path, rating, label):
    assert only_rating(tmp_path, f"1\t1\t{rating}\t1\n".encode())["label"] == [label]


def test_every_line_is_read_once_also_without_a_last_newline(tmp_path):
    write_movielens(tmp_path, ratings=250)
    text = (tmp_path / "u.data").read_text().rstrip("\n")
    (tmp_path / "u.data").write_text(text)
    samples = read_all(tmp_path)
    expected = sorted((id_of("user", line.split("\t")[0])) for line in text.split("\n"))
    assert sorted(samples["one_hot"][:, 0].tolist()) == expected


@pytest.mark.parametrize(
    "line, reason",
    [
        (b"1\t2\t3", "3 columns instead of 4"),
        (b"1\t2\t3\t4\t5", "5 columns instead of 4"),
        (b"one\t2\t3\t4", "column 1 is 'one', not a whole number"),
        (b"1\t-2\t3\t4", "column 2 is '-2', not a whole number"),
        (b"1\t2\t6\t4", "column 3 is '6', not a rating from 1 to 5"),
        (b"1\t2\t3\t", "column 4 is '', not a whole number"),
        (b"1\t2\t3\t\xff", "column 4 is 'ÿ', not a whole number"),
        (b"9" * 30 + b"\t2\t3\t4", f"column 1 is '{'9' * 30}', not a whole number"),
    ],
)
def test_a_malformed_rating_is_left_out_and_named(tmp_path, line, reason):
    write_movielens(tmp_path)
    (tmp_path / "u.data").write_bytes(b"1\t1\t5\t1\n" + line + b"\n\n2\t1\t5\t1\n")
    bad_lines = BadLines(10, print)
    assert len(read_all(tmp_path, bad_lines)["label"]) == 2
    assert bad_lines.entries() == [(str(tmp_path / "u.data"), 2, reason)]


@pytest.mark.parametrize(
    "name, line, reason",
    [
        ("u.user", b"7|24|M|writer", "4 columns instead of 5"),
        ("u.user", b"7|young|M|writer|12345", "column 2 is 'young', not a whole number"),
        (
            "u.user",
            b"7|24|M|\xff|12345",
            "'utf-8' codec can't decode byte 0xff in position 7: invalid start byte",
        ),
        ("u.item", b"7|A|soon||u" + b"|0" * GENRES, "column 3 is 'soon', not a date like 01-Jan-1995"),
        ("u.item", b"7|A|01-Jan-1995||u" + b"|0" * 18 + b"|x", "column 24 is 'x', not 0 or 1"),
        ("u.item", b"7|A|01-Jan-1995||u|0", "6 columns instead of 24"),
    ],
)
def test_a_malformed_user_or_movie_is_left_out_and_named(tmp_path, name, line, reason):
    write_movielens(tmp_path)
    lines = (tmp_path / name).read_bytes().split(b"\n")
    lines[6] = line
    (tmp_path / name).write_bytes(b"\n".join(lines))
    bad_lines = BadLines(10, print)
    assert len(read_all(tmp_path, bad_lines)["label"]) == 300
    assert bad_lines.entries() == [(str(tmp_path / name), 7, reason)]


def test_ratings_of_unknown_users_and_movies_keep_their_ids(tmp_path):
    sample = only_rating(tmp_path, b"999\t888\t4\t1\n")
    unknown = [(field, "") for field in ("age", "gender", "occupation", "zip", "year")]
    expected = [("user", "999"), ("item", "888"), *unknown]
    assert sample["one_hot"].tolist() == [[id_of(*pair) for pair in expected]]
    assert not sample["multi_hot_present"].any()


def test_a_movie_without_a_date_and_one_with_a_short_day(tmp_path):
    write_movielens(tmp_path)
    flags = "|0" * GENRES
    (tmp_path / "u.item").write_text(f"1|unknown|||{flags}\n2|Old|4-Feb-1971||u{flags}\n", encoding="latin-1")
    (tmp_path / "u.data").write_text("1\t1\t4\t1\n1\t2\t4\t1\n")
    years = sorted(read_all(tmp_path)["one_hot"][:, 6].tolist())
    assert years == sorted([id_of("year", ""), id_of("year", "1971")])


def test_missing_files_are_named(tmp_path):
    write_movielens(tmp_path)
    (tmp_path / "u.item").unlink()
    with pytest.raises(
        FileNotFoundError, match=r"u\.data, u\.user, u\.item in --data_dir: .* has no u\.item"
    ):
        MovieLens(str(tmp_path), 1, 0.2, BadLines(0, print))
