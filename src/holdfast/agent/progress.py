"""Noticing an agent that gets nowhere: the same call with the same result, or answers that make no sense."""

from __future__ import annotations

from collections import Counter

from holdfast.model.errors import AgentStuck
from holdfast.model.failure import storable

LOOP_FLAG = "loop_suspected"
SUSPICIOUS = 3
"""The same call with the same result so many times sets the flag, and the model is told."""

_REMEDY = 'Look at the conversation, then go on with hold.resume(task, message="a hint"), or raise the limit'


class Progress:
    """What a conversation came to since anybody said anything: a message is a new start.

    Nothing is raised while it counts, because a replay counts again what led to an end that somebody has mended since.
    ``check`` raises, and is asked before something new is begun.
    """

    def __init__(self, *, most_identical: int, most_senseless: int) -> None:
        """So many identical calls, and so many senseless answers in a row, are allowed."""
        self._most_identical = most_identical
        self._most_senseless = most_senseless
        self._seen: Counter[tuple[str, str, str]] = Counter()
        self._senseless = 0

    def begin_anew(self) -> None:
        """Somebody has said something."""
        self._seen.clear()
        self._senseless = 0

    def note_call(self, tool: str, arguments: str, result: str) -> str | None:
        """Count a call; return what to tell the model if it repeats itself.

        A call whose result changes is no repetition: that is polling.
        """
        self._seen[tool, arguments, result] += 1
        count = self._seen[tool, arguments, result]
        if count < SUSPICIOUS:
            return None
        named = _named(tool)
        return f"[This is call number {count} of {named} with these arguments and this result. Try something else.]"

    def note_answer(self, *, is_senseless: bool) -> None:
        """Count an answer that led to nothing: empty, or nothing but calls that cannot be made."""
        self._senseless = self._senseless + 1 if is_senseless else 0

    def check(self) -> None:
        """Raise AgentStuck if there is none."""
        if self._senseless > self._most_senseless:
            raise AgentStuck(
                f"the model gave {self._senseless} answers in a row that were empty or called what cannot be called, "
                f"more than max_senseless_answers ({self._most_senseless}). {_REMEDY}"
            )
        for (tool, _, _), count in self._seen.most_common(1):
            if count > self._most_identical:
                raise AgentStuck(
                    f"{_named(tool)} was called {count} times with the same arguments and the same result, more than "
                    f"max_identical_calls ({self._most_identical}). {_REMEDY}"
                )


def _named(tool: str) -> str:
    """Return what a model called a tool, which may be anything, fit to be told and stored."""
    return storable(tool, 100)
