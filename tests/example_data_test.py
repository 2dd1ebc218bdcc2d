"""Parts of the example's data: what ranks read of it, and generated samples."""

import numpy as np
import pytest
import tensorflow as tf

from ctr.bad_lines import BadLines
from ctr.batches import WHOLE, BatchSource, Share
from ctr.datasets.census import Census
from ctr.datasets.criteo import Criteo
from ctr.datasets.movielens import MovieLens
from ctr.datasets.synthetic import Synthetic
from ctr.history import auc
from ctr.parsing import HeldOut
from example_support import criteo_line, id_of, joined, read_part, write_census, write_movielens


def write_numbered_criteo(folder, lines):
    """Writes a train.txt in which all lines have different first categories."""
    text = [criteo_line(0, "1", f"{number:08x}") for number in range(lines)]
    (folder / "train.txt").write_text("\n".join(text) + "\n")
    return str(folder)


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
    folder = write_numbered_criteo(tmp_path, 120)
    everything = {id_of("C1", f"{number:08x}") for number in range(120)}

    def first_categories(part, seed):
        samples = read_share(lambda share: Criteo(folder, 9, 0.3, BadLines(0, print)), WHOLE, part, 7, seed)
        return joined(samples)["one_hot"][:, 0].tolist()

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
    folder = write_numbered_criteo(tmp_path, 2048 * ranks + 501)

    def make(share):
        return Criteo(folder, 9, 0.3, BadLines(0, print), share)

    expected = read_share(make, WHOLE, part, batch_size=50 * ranks)
    shares = [read_share(make, Share(rank, ranks), part, batch_size=50) for rank in range(ranks)]
    for step, whole in enumerate(expected):
        # A rank may have no samples in the last step.
        pieces = [share[step]["one_hot"][:, 0] for share in shares if step < len(share)]
        assert sorted(np.concatenate(pieces)) == sorted(whole["one_hot"][:, 0])


def test_every_epoch_distributes_the_samples_differently(tmp_path):
    folder = write_numbered_criteo(tmp_path, 200)

    def make(share):
        return Criteo(folder, 9, 0.0, BadLines(0, print), share)

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
