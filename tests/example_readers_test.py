# Not on GPUs: a program; the tests gpu_* have one
"""The example's data: features of each data set, malformed lines, what ranks read, and generated samples."""

import numpy as np
import pytest
import tensorflow as tf

from ctr.bad_lines import BadLines, TooManyBadLines
from ctr.batches import WHOLE, BatchSource, Share
from ctr.datasets.census import Census
from ctr.datasets.criteo import Criteo
from ctr.datasets.movielens import MovieLens
from ctr.datasets.synthetic import Synthetic
from ctr.history import auc
from ctr.parsing import HeldOut, split_columns
from example_support import (
    GENRES,
    census_line,
    criteo_line,
    id_of,
    joined,
    read_part,
    write_census,
    write_criteo,
    write_movielens,
)
from same_length import zip_equal


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default():
        yield


def dataset_of(cls, folder, bad_lines=None, held_out=0.0):
    bad_lines = BadLines(0, print) if bad_lines is None else bad_lines
    return Census(str(folder), bad_lines) if cls is Census else cls(str(folder), 1, held_out, bad_lines)


FILES = {Census: "adult.data", Criteo: "train.txt", MovieLens: "u.data"}
WRITE = {Census: write_census, Criteo: write_criteo, MovieLens: write_movielens}


def read_lines(cls, folder, *lines, bad_lines=None):
    """The training samples of a file with these lines (text or bytes)."""
    WRITE[cls](folder)
    lines = [line.encode() if isinstance(line, str) else line for line in lines]
    (folder / FILES[cls]).write_bytes(b"\n".join(lines) + b"\n")
    return joined(read_part(dataset_of(cls, folder, bad_lines), "training"))


def test_columns_of_census_stand_where_the_schema_says(tmp_path):
    sample = read_lines(Census, tmp_path, census_line(age=47, workclass="State-gov", gain=2174))
    ids = dict(zip_equal(Census.schema.one_hot, sample["one_hot"][0]))
    assert ids["workclass"] == id_of("workclass", "State-gov")
    assert ids["native_country"] == id_of("native_country", "United-States")
    assert ids["age_bucket"] == id_of("age_bucket", "9")
    assert ids["gain_bucket"] == id_of("gain_bucket", str(int(np.log1p(2174) * 4)))
    expected = [(47 - 38) / 14, (13 - 10) / 2.5, np.log1p(2174) / 4, 0, 0]
    assert sample["dense"][0] == pytest.approx(np.array(expected), rel=1e-5)


def test_columns_of_criteo_stand_where_the_schema_says(tmp_path):
    sample = read_lines(Criteo, tmp_path, criteo_line(1, "20", "abcd1234"))
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


def test_a_rating_is_joined_with_its_user_and_movie(tmp_path):
    sample = read_lines(MovieLens, tmp_path, "3\t7\t4\t881250949")
    expected = [("user", "3"), ("item", "7"), ("age", "4"), ("gender", "F"), ("occupation", "writer")]
    expected += [("zip", "103"), ("year", "1987")]
    assert sample["one_hot"].tolist() == [[id_of(*pair) for pair in expected]]
    assert sample["dense"] == pytest.approx(np.array([[(21 - 33) / 12, (1987 - 1985) / 15]]))
    # Movie 7 has the genres 7 and 7 * 7 % 19 = 11.
    assert np.flatnonzero(sample["multi_hot_present"][0, 0]).tolist() == [7, 11]
    assert sample["multi_hot"][0, 0].tolist() == [id_of("genres", f"genre={g}") for g in range(GENRES)]


def test_labels(tmp_path):
    incomes = {"<=50K": 0, ">50K": 1, "<=50K.": 0, ">50K.": 1, ">50K \r": 1, " >50K": 1}
    lines = [census_line(age=30 + i, label=text) for i, text in enumerate(incomes)]
    samples = read_lines(Census, tmp_path, *lines)
    assert samples["label"][np.argsort(samples["dense"][:, 0])].tolist() == list(incomes.values())
    # A rating of four and more is a click. Each is of another movie, and so of another year.
    samples = read_lines(MovieLens, tmp_path, *(f"1\t{rating}\t{rating}\t1" for rating in range(1, 6)))
    assert samples["label"][np.argsort(samples["dense"][:, 1])].tolist() == [0, 0, 0, 1, 1]


def test_files_of_census_are_read_whole(tmp_path):
    write_census(tmp_path, training=101, held_out=53)
    bad_lines = BadLines(0, print)
    dataset = dataset_of(Census, tmp_path, bad_lines)
    assert len(joined(read_part(dataset, "training"))["label"]) == 101
    assert len(joined(read_part(dataset, "held_out"))["label"]) == 53
    # The header of adult.test and the empty last lines are not malformed.
    assert len(bad_lines) == 0


def test_a_missing_value_of_census_is_a_value_of_its_own(tmp_path):
    sample = read_lines(Census, tmp_path, census_line(workclass="?"))
    assert sample["one_hot"][0, 0] == id_of("workclass", "?")


def test_trailing_categories_of_criteo_that_are_cut_off_read_as_missing(tmp_path):
    whole = criteo_line().split("\t")
    samples = read_lines(Criteo, tmp_path, "\t".join(whole[:37]), "\t".join(whole[:37] + [""] * 3))
    assert samples["one_hot"][0].tolist() == samples["one_hot"][1].tolist()
    assert samples["one_hot"][0, 25] == id_of("C26", "")
    sample = read_lines(Criteo, tmp_path, "1" + "\t" * 39)
    assert sample["label"] == [1] and not sample["dense"].any()


def test_every_rating_is_read_once_also_without_a_last_newline(tmp_path):
    write_movielens(tmp_path, ratings=250)
    text = (tmp_path / "u.data").read_text().rstrip("\n")
    (tmp_path / "u.data").write_text(text)
    samples = joined(read_part(dataset_of(MovieLens, tmp_path), "training"))
    expected = sorted((id_of("user", line.split("\t")[0])) for line in text.split("\n"))
    assert sorted(samples["one_hot"][:, 0].tolist()) == expected


def test_ratings_of_unknown_users_and_movies_keep_their_ids(tmp_path):
    sample = read_lines(MovieLens, tmp_path, "999\t888\t4\t1")
    unknown = [(field, "") for field in ("age", "gender", "occupation", "zip", "year")]
    expected = [("user", "999"), ("item", "888"), *unknown]
    assert sample["one_hot"].tolist() == [[id_of(*pair) for pair in expected]]
    assert not sample["multi_hot_present"].any()


def test_a_movie_without_a_date_and_one_with_a_short_day(tmp_path):
    write_movielens(tmp_path)
    flags = "|0" * GENRES
    (tmp_path / "u.item").write_text(f"1|unknown|||{flags}\n2|Old|4-Feb-1971||u{flags}\n", encoding="latin-1")
    (tmp_path / "u.data").write_text("1\t1\t4\t1\n1\t2\t4\t1\n")
    years = sorted(joined(read_part(dataset_of(MovieLens, tmp_path), "training"))["one_hot"][:, 6].tolist())
    assert years == sorted([id_of("year", ""), id_of("year", "1971")])


GOOD = {Census: census_line(), Criteo: criteo_line(), MovieLens: "1\t1\t5\t1"}
MALFORMED = [
    (Census, "39, Private", "2 columns instead of 15"),
    (Census, census_line() + ", 1", "16 columns instead of 15"),
    (Census, census_line().replace("39,", "old,"), "age is 'old', not a whole number"),
    (Census, census_line().replace("77516", ""), "fnlwgt is '', not a whole number"),
    (Census, census_line(gain=-1), "capital_gain is '-1', not a whole number"),
    (Census, census_line(label="rich"), "the label is 'rich', not <=50K or >50K"),
    (Census, census_line(label=""), "the label is '', not <=50K or >50K"),
    (
        Census,
        census_line(workclass="Pr\xfcvate").encode("latin-1"),
        "byte 0xfc at position 6 is not UTF-8",
    ),
    (Criteo, "1\t2\t3", "3 columns instead of 40"),
    (Criteo, criteo_line() + "\tx", "41 columns instead of 40"),
    (Criteo, criteo_line(first_integer="x"), "I1 is 'x', not a whole number"),
    (Criteo, criteo_line(first_integer="1.5"), "I1 is '1.5', not a whole number"),
    (Criteo, criteo_line(first_integer="-"), "I1 is '-', not a whole number"),
    (Criteo, criteo_line(label=2), "the label is '2', not 0 or 1"),
    (Criteo, b"\xfe" + criteo_line()[1:].encode(), "byte 0xfe at position 0 is not UTF-8"),
    (
        Criteo,
        criteo_line(first_category="\xe9").encode("latin-1"),
        "byte 0xe9 at position 28 is not UTF-8",
    ),
    (MovieLens, "1\t2\t3", "3 columns instead of 4"),
    (MovieLens, "1\t2\t3\t4\t5", "5 columns instead of 4"),
    (MovieLens, "one\t2\t3\t4", "column 1 is 'one', not a whole number"),
    (MovieLens, "1\t-2\t3\t4", "column 2 is '-2', not a whole number"),
    (MovieLens, "1\t2\t6\t4", "column 3 is '6', not a rating from 1 to 5"),
    (MovieLens, "1\t2\t3\t", "column 4 is '', not a whole number"),
    (MovieLens, b"1\t2\t3\t\xff", "column 4 is 'ÿ', not a whole number"),
    (MovieLens, "9" * 30 + "\t2\t3\t4", f"column 1 is '{'9' * 30}', not a whole number"),
]


@pytest.mark.parametrize("cls", GOOD)
def test_malformed_lines_are_left_out_and_named(tmp_path, cls):
    malformed = [(line, reason) for of_class, line, reason in MALFORMED if of_class is cls]
    lines = [line for bad, _ in malformed for line in (GOOD[cls], bad)]
    bad_lines = BadLines(10, print)
    samples = read_lines(cls, tmp_path, *lines, "", GOOD[cls], bad_lines=bad_lines)
    assert len(samples["label"]) == len(malformed) + 1
    path = str(tmp_path / FILES[cls])
    assert bad_lines.entries() == [(path, 2 + 2 * i, reason) for i, (_, reason) in enumerate(malformed)]


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
    dataset = dataset_of(MovieLens, tmp_path, bad_lines)
    assert len(joined(read_part(dataset, "training"))["label"]) == 300
    assert bad_lines.entries() == [(str(tmp_path / name), 7, reason)]


def test_the_days_of_the_terabyte_logs_are_read_together(tmp_path):
    for day in (0, 2, 10):
        write_criteo(tmp_path, lines=40)
        (tmp_path / "train.txt").rename(tmp_path / f"day_{day}")
    with (tmp_path / "day_2").open("a") as stream:
        stream.write("broken\n")
    bad_lines = BadLines(5, print)
    dataset = dataset_of(Criteo, tmp_path, bad_lines, held_out=0.25)
    sizes = [len(joined(read_part(dataset, part))["label"]) for part in ("training", "held_out")]
    assert sum(sizes) == 120
    assert bad_lines.entries() == [(str(tmp_path / "day_2"), 41, "1 columns instead of 40")]


@pytest.mark.parametrize(
    "cls, missing, message",
    [
        (Census, ("adult.data", "adult.test"), "has no adult.data, adult.test"),
        (Criteo, ("train.txt",), r"train\.txt"),
        (MovieLens, ("u.item",), r"u\.data, u\.user, u\.item in --data_dir: .* has no u\.item"),
    ],
)
def test_missing_files_are_named(tmp_path, cls, missing, message):
    WRITE[cls](tmp_path)
    for name in missing:
        (tmp_path / name).unlink()
    with pytest.raises(FileNotFoundError, match=message):
        dataset_of(cls, tmp_path)


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


def numbered_criteo(folder, lines, held_out=0.3):
    """What makes data sets, for `read_share`, of a train.txt whose lines have different first categories."""
    text = [criteo_line(0, "1", f"{number:08x}") for number in range(lines)]
    (folder / "train.txt").write_text("\n".join(text) + "\n")
    return lambda share: Criteo(str(folder), 9, held_out, BadLines(0, print), share)


def read_share(make, share, part, batch_size=6, shuffle_seed=1):
    with tf.Graph().as_default():
        return read_part(make(share), part, batch_size, shuffle_seed)


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
    make = numbered_criteo(tmp_path, 120)
    everything = {id_of("C1", f"{number:08x}") for number in range(120)}

    def first_categories(part, seed):
        return joined(read_share(make, WHOLE, part, 7, seed))["one_hot"][:, 0].tolist()

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


@pytest.mark.parametrize("ranks, part", [(2, "training"), (3, "training"), (3, "held_out"), (7, "held_out")])
def test_a_step_of_all_ranks_is_a_step_of_one_process(tmp_path, ranks, part):
    # More lines than the ranks' blocks together, so that shares span several blocks.
    make = numbered_criteo(tmp_path, 2048 * ranks + 501)
    expected = read_share(make, WHOLE, part, batch_size=50 * ranks)
    shares = [read_share(make, Share(rank, ranks), part, batch_size=50) for rank in range(ranks)]
    for step, whole in enumerate(expected):
        # A rank may have no samples in the last step.
        pieces = [share[step]["one_hot"][:, 0] for share in shares if step < len(share)]
        assert sorted(np.concatenate(pieces)) == sorted(whole["one_hot"][:, 0])


def test_every_epoch_distributes_the_samples_differently(tmp_path):
    make = numbered_criteo(tmp_path, 200, held_out=0.0)
    first, second = (
        set(joined(read_share(make, Share(1, 2), "training", shuffle_seed=seed))["one_hot"][:, 0])
        for seed in (1, 2)
    )
    assert len(first) == len(second) == 100 and first != second


@pytest.mark.parametrize("part, count", [("training", 101), ("held_out", 53)])
def test_shares_of_census_are_all_of_it(tmp_path, part, count):
    folder = str(write_census(tmp_path, training=101, held_out=53))
    shares = [
        read_share(lambda share: Census(folder, BadLines(0, print), share), Share(rank, 3), part)
        for rank in range(3)
    ]
    assert sum(len(joined(share)["label"]) for share in shares) == count


def test_a_malformed_line_is_reported_by_one_rank(tmp_path):
    folder = write_movielens(tmp_path)
    for name in ("u.data", "u.user", "u.item"):
        with open(folder / name, "a", encoding="utf-8") as stream:
            stream.write("broken\n")
    ledgers = [BadLines(5, print) for _ in range(3)]
    for rank, ledger in enumerate(ledgers):
        make = lambda share, ledger=ledger: MovieLens(str(folder), 1, 0.0, ledger, share)  # noqa: E731
        read_share(make, Share(rank, 3), "training")
    met = [entry[:2] for ledger in ledgers for entry in ledger.entries()]
    assert sorted(met) == sorted(
        (str(folder / name), line) for name, line in (("u.data", 301), ("u.user", 21), ("u.item", 16))
    )


def test_synthetic_blocks_are_dealt_out():
    samples = 5 * 4096 + 100

    def labels(share):
        return joined(read_share(lambda share: Synthetic(4, samples, 1, share), share, "training", 512))

    everything = labels(WHOLE)["dense"][:, 0]
    shares = [labels(Share(rank, 4))["dense"][:, 0] for rank in range(4)]
    # Six blocks, the last of them short, for four ranks.
    assert sum(len(share) for share in shares) == samples
    assert max(len(share) for share in shares) == 2 * 4096
    assert (np.sort(np.concatenate(shares)) == np.sort(everything)).all()


def test_a_rank_without_data_steps_on_with_empty_batches():
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        samples = Synthetic(4, 100, 100, Share(0, 2))
        source = BatchSource(samples, samples, 64)
        feeds = source.start_training(session, 1)
        steps = [session.run([tf.size(source.batch["label"]), source.more], feeds) for _ in range(5)]
    assert steps == [[0, True], [64, True], [36, False], [0, False], [0, False]]
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        samples = Synthetic(4, 100, 100, Share(1, 2))
        source = BatchSource(samples, samples, 64)
        feeds = source.start_held_out(session)
        assert not session.run(source.more, feeds)
        assert session.run(source.batch, feeds)["one_hot"].shape == (0, 26)


@pytest.fixture(scope="module")
def samples():
    with tf.Graph().as_default():
        return joined(read_part(Synthetic(2, 100, 30000), "held_out", 1000))


def test_batches_have_the_size_asked_for_and_the_last_holds_the_rest():
    with tf.Graph().as_default():
        batches = read_part(Synthetic(2, 9000, 1), "training", 2000)
    assert [len(batch["label"]) for batch in batches] == [2000, 2000, 2000, 2000, 1000]


def test_shapes_are_criteos(samples):
    assert samples["dense"].shape == (30000, 13)
    assert samples["one_hot"].shape == (30000, 26)
    assert set(np.unique(samples["label"])) == {0.0, 1.0}


def test_categories_follow_zipfs_law(samples):
    # In the largest vocabulary, the most frequent value is very frequent, and very many values occur only
    # once.
    _, counts = np.unique(samples["one_hot"][:, -1], return_counts=True)
    assert counts.max() > 0.05 * 30000
    assert np.count_nonzero(counts == 1) > 1000
    assert len(np.unique(samples["one_hot"][:, 0])) <= 4


def test_no_two_columns_share_an_id(samples):
    columns = [set(column.tolist()) for column in samples["one_hot"].T]
    assert len(set.union(*columns)) == sum(len(column) for column in columns)


def test_labels_are_drawn_with_the_true_probabilities():
    labels, logits = Synthetic(2, 1, 60000).best_logits()
    probabilities = 1 / (1 + np.exp(-logits))
    for low in np.arange(0.0, 0.8, 0.1):
        chosen = (probabilities >= low) & (probabilities < low + 0.1)
        error = 4 * np.sqrt(0.25 / chosen.sum())
        assert labels[chosen].mean() == pytest.approx(probabilities[chosen].mean(), abs=error)


def test_the_true_logits_belong_to_the_held_out_samples(samples):
    labels, logits = Synthetic(2, 100, 30000).best_logits()
    assert (labels == samples["label"]).all()
    assert 0.7 < auc(labels, logits) < 0.95


def test_another_seed_is_another_model():
    labels, logits = Synthetic(2, 1, 5000).best_logits()
    other_labels, other_logits = Synthetic(3, 1, 5000).best_logits()
    assert (labels != other_labels).any() and (logits != other_logits).any()
