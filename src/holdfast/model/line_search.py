"""A search for lines in a stream, with limits: grep for a model.

The pattern is plain text, and case is ignored. Regular expressions are not allowed: one that a model invents, or that
an attacker suggests to it, can run for hours, and Python's ``re`` cannot be interrupted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from holdfast.model.checks import check_integer, check_text
from holdfast.model.errors import InvalidValue
from holdfast.model.utf8 import decode_anything, drop_cut_end, drop_cut_start, encode

SMALLEST_RESULT = 256
"""Bytes: room for one line and the note under it."""

LONGEST_PATTERN = 200
"""Characters."""

_NOTE = 120  # bytes kept free for the last line of a result
_LONGEST_SHOWN = 300  # characters of one line
_FRAME = 24  # bytes around them: the number of the line, and dots where it was cut
_MOST_CONTEXT = 20

_LONGEST_PART = 64 << 10  # bytes; a longer line is searched in parts, so that an endless line does not fill the memory
_OVERLAP = 4 * LONGEST_PATTERN  # bytes that two parts share, so that no match is cut in two


class LineSearch:
    """Collects the lines that contain a pattern, with ``context`` lines around each, until ``max_bytes`` are full.

    Matching lines are shown as ``12: text``, lines around them as ``11- text``, with ``--`` where lines were skipped.
    Of a long line the part around the first match is shown. The last line of the result counts the lines that matched,
    or the bytes that were not searched because there was no more room.
    """

    def __init__(self, pattern: str, *, max_bytes: int, context: int = 0) -> None:
        """Check the pattern and the limits."""
        check_integer("max_bytes", max_bytes, lowest=SMALLEST_RESULT)
        check_integer("context", context, lowest=0, highest=_MOST_CONTEXT)
        check_text("pattern", pattern)
        if not pattern or len(pattern) > LONGEST_PATTERN or "\n" in pattern:
            raise InvalidValue(
                f"the pattern has {len(pattern)} characters; give 1 to {LONGEST_PATTERN} of plain text, all of one line"
            )
        self._pattern = pattern.casefold()
        self._room = max_bytes - _NOTE
        self._width = min(_LONGEST_SHOWN, (self._room - _FRAME) // 4)  # a character takes up to four bytes
        self._context = context
        self._parts = _Parts()
        self._line = 0
        # One more than is shown: it may hold the beginning of a long line in which a match is found later.
        self._before: deque[tuple[int, str]] = deque(maxlen=context + 1)
        self._wanted_after = 0
        self._shown: list[str] = []
        self._last_shown = 0
        self._matches = 0
        self._last_match = 0
        self._stopped: _Part | None = None

    @property
    def is_full(self) -> bool:
        """Whether there was no room for a match: bytes fed after that are not searched."""
        return self._stopped is not None

    def feed(self, data: bytes) -> None:
        """Search the next bytes."""
        for part in self._parts.feed(data):
            if self.is_full:
                return
            self._look_at(part)

    def finish(self, size: int) -> str:
        """Return what was found in a text of ``size`` bytes."""
        for part in self._parts.end():
            if not self.is_full:
                self._look_at(part)
        if self._stopped is not None:
            left = size - self._stopped.start
            note = f"[no room for more: stopped at line {self._stopped.line}, {left} of {size} bytes not searched]"
        else:
            note = f"[{self._matches} of {self._line} lines contain the pattern]"
        return "\n".join([*self._shown, note])

    def _look_at(self, part: _Part) -> None:
        begins_line, self._line = part.line != self._line, part.line
        if part.line == self._last_match:
            return
        text = decode_anything(part.data).removesuffix("\r")
        found = text.casefold().find(self._pattern)
        if found >= 0:
            self._take_match(part, f"{part.line}: {self._cut(text, found)}")
        elif begins_line:
            self._take_context(part.line, f"{part.line}- {self._cut(text, 0)}")

    def _take_match(self, part: _Part, shown: str) -> None:
        around = [(line, text) for line, text in self._before if part.line - self._context <= line < part.line]
        # Show it with the lines before it, or at least alone.
        if not self._show([*around, (part.line, shown)]) and not self._show([(part.line, shown)]):
            self._stopped = part
            return
        self._before.clear()
        self._matches += 1
        self._last_match = part.line
        self._wanted_after = self._context

    def _take_context(self, line: int, shown: str) -> None:
        if self._wanted_after and self._show([(line, shown)]):
            self._wanted_after -= 1
        else:
            self._wanted_after = 0
            self._before.append((line, shown))

    def _show(self, lines: Sequence[tuple[int, str]]) -> bool:
        """Add these lines if there is room for all of them."""
        passed_over = self._context and self._shown and lines[0][0] > self._last_shown + 1
        added = [*(["--"] if passed_over else []), *(text for _, text in lines)]
        size = sum(len(encode(text)) + 1 for text in added)
        if size > self._room:
            return False
        self._room -= size
        self._shown += added
        self._last_shown = lines[-1][0]
        return True

    def _cut(self, text: str, found: int) -> str:
        start = max(0, min(found - self._width // 3, len(text) - self._width))
        end = start + self._width
        return f"{'...' if start else ''}{text[start:end]}{'...' if end < len(text) else ''}"


@dataclass(frozen=True, slots=True)
class _Part:
    """A line, or a part of a very long one."""

    line: int
    start: int
    """Where it begins, in bytes."""
    data: bytes


class _Parts:
    """Cuts a stream of bytes into lines, and very long lines into parts that overlap."""

    def __init__(self) -> None:
        self._rest = b""
        self._line = 1
        self._start = 0

    def feed(self, data: bytes) -> Iterator[_Part]:
        """Add bytes, and yield the complete parts."""
        buffer, at = self._rest + data, 0
        while True:
            end = buffer.find(b"\n", at, at + _LONGEST_PART)
            if end >= 0:
                yield _Part(self._line, self._start + at, buffer[at:end])
                at = end + 1
                self._line += 1
            elif len(buffer) - at > _LONGEST_PART:
                part = drop_cut_end(buffer[at : at + _LONGEST_PART])
                yield _Part(self._line, self._start + at, part)
                shared = drop_cut_start(part[-_OVERLAP:])
                at += len(part) - len(shared)
            else:
                break
        self._rest = buffer[at:]
        self._start += at

    def end(self) -> Iterator[_Part]:
        """Yield the last line, if it has no line end."""
        if self._rest:
            yield _Part(self._line, self._start, self._rest)
