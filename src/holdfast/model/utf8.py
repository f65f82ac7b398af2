"""UTF-8 that is cut, damaged or not text at all."""

from __future__ import annotations

_LONGEST_CHARACTER = 4
_CONTINUES, _BEGINS = 0x80, 0xC0  # a byte from the first on continues a character, from the second on it begins one
_STRANGE = "\ufffd"
_JUDGED = 8000


def encode(text: str) -> bytes:
    """Return the UTF-8 of ``text``. A lone surrogate, which models do write, takes three bytes and is restored."""
    return text.encode("utf-8", "surrogatepass")


def decode(data: bytes) -> str:
    """Return the text that was encoded; UnicodeDecodeError if it is not valid."""
    return data.decode("utf-8", "surrogatepass")


def decode_anything(data: bytes) -> str:
    """Return ``data`` as text, not longer, with a question mark for each part that is not valid UTF-8."""
    return data.decode("utf-8", "replace").replace(_STRANGE, "?").replace("\0", "?")


def is_text(data: bytes) -> bool:
    """Guess from the beginning of ``data`` whether people can read it: no NUL, and almost only valid UTF-8.

    A log with a few bytes in an older encoding is text. An image or UTF-16 is not.
    """
    shown = drop_cut_end(drop_cut_start(data[:_JUDGED])).decode("utf-8", "replace")
    return "\0" not in shown and shown.count(_STRANGE) * 10 <= len(shown)


def drop_cut_end(data: bytes) -> bytes:
    """Drop an incomplete character at the end."""
    for back in range(1, min(_LONGEST_CHARACTER, len(data) + 1)):
        byte = data[-back]
        if byte >= _BEGINS:
            needed = 8 - (byte ^ 0xFF).bit_length()  # as many bytes as it has leading ones
            return data[:-back] if needed > back else data
        if byte < _CONTINUES:
            break
    return data


def drop_cut_start(data: bytes) -> bytes:
    """Drop the rest of a character whose beginning was cut off."""
    start = 0
    while start < min(_LONGEST_CHARACTER - 1, len(data)) and _CONTINUES <= data[start] < _BEGINS:
        start += 1
    return data[start:]
