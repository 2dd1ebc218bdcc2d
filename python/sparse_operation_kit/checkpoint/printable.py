"""Text from files and of users, made safe to print."""

from __future__ import annotations


def printable(text: str) -> str:
    r"""Returns `text` on one line, and such that printing it moves no cursor and hides nothing.

    Control characters, line separators, characters that turn the direction of writing, and bytes of paths
    that are no text become `\xNN`, one for each byte of UTF-8. All else is as it was.
    """
    if text.isprintable():
        return text
    return "".join(character if character.isprintable() else _escaped(character) for character in text)


def _escaped(character: str) -> str:
    # os.fsdecode has a surrogate for each byte that is no text.
    errors = "surrogateescape" if "\udc80" <= character <= "\udcff" else "surrogatepass"
    return "".join(f"\\x{byte:02x}" for byte in character.encode("utf-8", errors))
