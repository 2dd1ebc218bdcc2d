"""The text to translate: numbers in digits, and in words. Every translation can be checked exactly."""

from __future__ import annotations

import hashlib

import numpy as np

_SMALL = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
    "seventeen eighteen nineteen"
).split()
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety".split()

PAD, START, END = "<pad>", "<start>", "<end>"
# A token's number is its place. Digits and words share one vocabulary, as the languages of a translation do.
VOCABULARY = [PAD, START, END, *"0123456789", *_SMALL, *_TENS, "hundred", "thousand"]
NUMBER_OF = {token: number for number, token in enumerate(VOCABULARY)}

# One number in this many is held out.
_HELD_OUT = 10


def in_words(number: int) -> list[str]:
    """The words of a number below a million: 1947 is one thousand nine hundred forty seven."""
    if number >= 1000:
        rest = number % 1000
        return [*in_words(number // 1000), "thousand", *(in_words(rest) if rest else [])]
    if number >= 100:
        rest = number % 100
        return [_SMALL[number // 100], "hundred", *(in_words(rest) if rest else [])]
    if number >= 20:
        return [_TENS[number // 10 - 2], *([_SMALL[number % 10]] if number % 10 else [])]
    return [_SMALL[number]]


def longest_translation(digits: int) -> int:
    """The most words of a number with at most `digits` digits, plus one for the end."""
    # Numbers without zeros and ones have the most words of their length.
    return 1 + max(len(in_words(int("7" * length))) for length in range(1, digits + 1))


def held_out(numbers: np.ndarray) -> np.ndarray:
    """Which numbers are not trained on: about a tenth, scattered."""
    mixed = numbers.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) >> np.uint64(40)
    return mixed % np.uint64(_HELD_OUT) == 0


class Batches:
    """Batches of all ranks together; a rank takes its share of each.

    Args:
      digits: the most digits of a number, up to 6.
      seed: of the order of numbers, the same on all ranks.
    """

    def __init__(self, digits: int, seed: int) -> None:
        numbers = np.arange(10**digits)
        self.trained, self.held_out = numbers[~held_out(numbers)], numbers[held_out(numbers)]
        self._digits = digits
        self._random = np.random.default_rng(seed)

    def draw(self, size: int) -> np.ndarray:
        """The numbers of a batch, int64 [size]. Numbers of few digits are as frequent as those of many."""
        digits = self._random.integers(1, self._digits + 1, size)
        wanted = self._random.integers(10 ** (digits - 1), 10**digits)
        # The trained number at or after the wanted one, or the last.
        places = np.searchsorted(self.trained, wanted).clip(max=len(self.trained) - 1)
        return self.trained[places]

    def sources(self, numbers: np.ndarray) -> np.ndarray:
        """Tokens of the digits, int64 [numbers, digits], padded at the end."""
        return _tokens([list(str(number)) for number in numbers], self._digits)

    def targets(self, numbers: np.ndarray) -> np.ndarray:
        """Tokens of the words and the end, int64 [numbers, longest], padded at the end."""
        return _tokens([[*in_words(int(number)), END] for number in numbers], self.longest)

    @property
    def longest(self) -> int:
        """The length of targets."""
        return longest_translation(self._digits)


def _tokens(texts: list[list[str]], length: int) -> np.ndarray:
    tokens = np.full([len(texts), length], NUMBER_OF[PAD], np.int64)
    for row, text in enumerate(texts):
        tokens[row, : len(text)] = [NUMBER_OF[token] for token in text]
    return tokens


def hashed_ids() -> np.ndarray:
    """An id of 64 bits for each token of the vocabulary, as programs without a list of all words have."""
    digests = [hashlib.sha256(token.encode()).digest() for token in VOCABULARY]
    return np.array([int.from_bytes(digest[:8], "little", signed=True) for digest in digests], np.int64)
