"""Functions that newer versions of Python have and the lowest supported one lacks."""

from __future__ import annotations


def removeprefix(text: str, prefix: str) -> str:
    """`text` without `prefix`, if it begins with it; `str.removeprefix` of Python 3.9."""
    return text[len(prefix) :] if text.startswith(prefix) else text


def removesuffix(text: str, suffix: str) -> str:
    """`text` without `suffix`, if it ends with it; `str.removesuffix` of Python 3.9."""
    return text[: -len(suffix)] if suffix and text.endswith(suffix) else text
