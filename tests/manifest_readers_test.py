"""The engine's reader of manifests and the one in Python accept and refuse the same manifests.

SOK_TEST_MANIFESTS sets the number of random changes.
"""

import os
import random

import pytest

import hostile_manifests
from manifest_readers import compare

RANDOM = int(os.environ.get("SOK_TEST_MANIFESTS", "2000"))


def test_good_manifests():
    cases = [
        (str(number), hostile_manifests.text_of(one)) for number, one in enumerate(hostile_manifests.good())
    ]
    assert compare(cases) == (len(cases), 0)


def test_every_member_with_every_value():
    good, bad = compare(list(hostile_manifests.each_change()))
    assert good > 200 and bad > 5000


def test_texts_that_parsers_disagree_about():
    good, bad = compare(list(hostile_manifests.texts_by_hand()))
    assert good > 5 and bad > 50


def test_placements():
    good, bad = compare(list(hostile_manifests.each_placement()))
    assert good > 40 and bad > 2000


@pytest.mark.parametrize("seed", range(2))
def test_random_changes(seed):
    draw = random.Random(seed)
    good, bad = compare([hostile_manifests.random_change(draw) for _ in range(RANDOM)])
    assert good > RANDOM // 50 and bad > RANDOM // 4
