"""How much room a text takes in a model's context: its bytes (exact) and its tokens (estimated)."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.model.checks import check_integer
from holdfast.model.utf8 import encode


def estimate_tokens(text: str) -> int:
    """Estimate how many tokens a model reads in ``text``; too many rather than too few, because tokenizers differ.

    Two tokens for seven bytes of ASCII (English and code take about that or less), one for two bytes of anything else
    (one for a Cyrillic letter, one and a half for a Chinese character, two for an emoji). Dense ASCII, such as base64,
    can take more than this. The sum of the estimates of several texts is never below the estimate of all in one.
    """
    size = len(encode(text))
    ascii_bytes = size if text.isascii() else sum(character < "\x80" for character in text)
    return -(-(4 * ascii_bytes + 7 * (size - ascii_bytes)) // 14)


@dataclass(frozen=True, slots=True)
class TextSize:
    """The room that some texts take."""

    bytes: int = 0
    tokens: int = 0

    @classmethod
    def of(cls, *texts: str) -> TextSize:
        """Measure ``texts``, each on its own."""
        return cls(sum(len(encode(text)) for text in texts), sum(map(estimate_tokens, texts)))

    def __add__(self, other: TextSize) -> TextSize:
        return TextSize(self.bytes + other.bytes, self.tokens + other.tokens)


@dataclass(frozen=True, slots=True)
class ContextRoom:
    """How much room there is; None means no limit."""

    max_bytes: int | None = None
    max_tokens: int | None = None

    def __post_init__(self) -> None:
        """Reject a negative limit."""
        for name, limit in (("max_bytes", self.max_bytes), ("max_tokens", self.max_tokens)):
            if limit is not None:
                check_integer(name, limit, lowest=0)

    def holds(self, size: TextSize) -> bool:
        """Return whether ``size`` fits, in bytes and in tokens."""
        return (self.max_bytes is None or size.bytes <= self.max_bytes) and (
            self.max_tokens is None or size.tokens <= self.max_tokens
        )
