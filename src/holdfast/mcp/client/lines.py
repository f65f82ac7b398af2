"""Lines from a server that is started, up to a length: the SDK keeps whatever comes until the line ends.

All it lets us choose is the encoding. So here is one: UTF-8, but for the rest of a line that has become too long, which
is dropped. What is left of the line is no message and is taken for none; the lines after it are.
"""

from __future__ import annotations

import codecs
import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

ENCODING = "holdfast_mcp_lines"
LONGEST_LINE = 32 * 1024 * 1024
"""Characters of one line, and so of one answer."""

_log = logging.getLogger(__name__)
_UTF_8 = codecs.lookup("utf-8")


class _Decoder(codecs.IncrementalDecoder):
    def __init__(self, errors: str = "strict") -> None:
        super().__init__(errors)
        self._decoder = _UTF_8.incrementaldecoder(errors)
        self._length = 0

    def decode(self, input: ReadableBuffer, final: bool = False) -> str:  # noqa: A002, FBT001, FBT002 - as codecs calls them
        rest, *lines = self._decoder.decode(input, final).split("\n")
        kept = [self._kept(rest)]
        for line in lines:
            self._length = 0
            kept.append(self._kept(line))
        return "\n".join(kept)

    def _kept(self, part: str) -> str:
        room = LONGEST_LINE - self._length
        self._length = min(self._length + len(part), LONGEST_LINE + 1)
        if 0 <= room < len(part):
            _log.warning("an MCP server wrote a line of more than %d characters; it is lost", LONGEST_LINE)
        return part[: max(room, 0)]


def _find(name: str) -> codecs.CodecInfo | None:
    if name != ENCODING:
        return None
    return codecs.CodecInfo(_UTF_8.encode, _UTF_8.decode, incrementaldecoder=_Decoder, name=ENCODING)


codecs.register(_find)
