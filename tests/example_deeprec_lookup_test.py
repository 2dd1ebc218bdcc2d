"""examples/deeprec/group_lookup.py trains."""

from example_support import run_deeprec


def test_it_learns():
    ranks, first, last = run_deeprec("group_lookup.py", "--steps", "250")
    assert ranks == 1
    assert first > 0.6 and last < 0.58
