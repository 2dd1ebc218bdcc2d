"""Makes text from files and users safe to print."""

from __future__ import annotations


def printable(text: str) -> str:
    r"""Returns `text` with all characters escaped that are not printable, so that it is one line.

    Control characters, line separators, characters that change the writing direction, and bytes of paths that
    are not UTF-8 become `\xNN`, one for each byte of UTF-8. All other characters are unchanged.
    """
    if text.isprintable():
        return text
    return "".join(character if character.isprintable() else _escaped(character) for character in text)


def _escaped(character: str) -> str:
    # os.fsdecode maps each byte that is not UTF-8 to a surrogate.
    errors = "surrogateescape" if "\udc80" <= character <= "\udcff" else "surrogatepass"
    return "".join(f"\\x{byte:02x}" for byte in character.encode("utf-8", errors))
