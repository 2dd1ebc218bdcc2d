"""The data sets, by their names on the command line. Each has

name, schema
training(batch_size, shuffle_seed) and held_out(batch_size)   tf.data.Datasets of batches (see `ctr.batches`)
training_size()                                               samples per epoch, possibly an estimate

A data set is made for a rank's share of the samples. Its batches hold the share; its size counts all samples.
"""

from __future__ import annotations

import argparse
from typing import Any

from ctr.bad_lines import BadLines
from ctr.batches import WHOLE, Share
from ctr.datasets.census import Census
from ctr.datasets.criteo import Criteo
from ctr.datasets.movielens import MovieLens
from ctr.datasets.synthetic import Synthetic


def make_dataset(flags: argparse.Namespace, bad_lines: BadLines, share: Share = WHOLE) -> Any:
    """The data set that the flags select. Raises FileNotFoundError, TooManyBadLines."""
    if flags.dataset == "movielens":
        return MovieLens(flags.data_dir, flags.seed, flags.held_out, bad_lines, share)
    if flags.dataset == "census":
        return Census(flags.data_dir, bad_lines, share)
    if flags.dataset == "criteo":
        return Criteo(flags.data_dir, flags.seed, flags.held_out, bad_lines, share)
    return Synthetic(flags.seed, flags.samples, flags.held_out_samples, share)
