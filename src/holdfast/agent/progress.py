"""Detects an agent without progress: the same call with the same result, or answers that make no sense."""

from __future__ import annotations

from collections import Counter

from holdfast.model.errors import AgentStuck
from holdfast.model.failure import storable

LOOP_FLAG = "loop_suspected"
SUSPICIOUS = 3
"""After so many equal calls with the same result, the flag is set and the model gets a note."""

_REMEDY = 'Read the conversation, then continue with hold.resume(task, message="a hint"), or raise the limit'


class Progress:
    """Counts repeated calls and senseless answers since the last message: a message is a new start.

    Counting raises nothing, because a replay counts the same calls again after a person has fixed the cause. Only
    ``check`` raises; it is called before something new begins.
    """

    def __init__(self, *, most_identical: int, most_senseless: int) -> None:
        """The arguments are how many identical calls, and how many senseless answers in a row, are allowed."""
        self._most_identical = most_identical
        self._most_senseless = most_senseless
        self._seen: Counter[tuple[str, str, str]] = Counter()
        self._senseless = 0

    def restart(self) -> None:
        """Start counting again: a message came."""
        self._seen.clear()
        self._senseless = 0

    def note_call(self, tool: str, arguments: str, result: str) -> str | None:
        """Count a call; return a note for the model if the call repeats itself.

        A call whose result changes is not a repetition: that is polling.
        """
        self._seen[tool, arguments, result] += 1
        count = self._seen[tool, arguments, result]
        if count < SUSPICIOUS:
            return None
        named = _named(tool)
        return f"[This is call number {count} of {named} with these arguments and this result. Try something else.]"

    def note_answer(self, *, is_senseless: bool) -> None:
        """Count a senseless answer: empty, or only with calls that cannot be made. Any other resets the count."""
        self._senseless = self._senseless + 1 if is_senseless else 0

    def check(self) -> None:
        """Raise AgentStuck if there is no progress."""
        if self._senseless > self._most_senseless:
            raise AgentStuck(
                f"the model gave {self._senseless} answers in a row that were empty or had only impossible calls, "
                f"more than max_senseless_answers ({self._most_senseless}). {_REMEDY}"
            )
        for (tool, _, _), count in self._seen.most_common(1):
            if count > self._most_identical:
                raise AgentStuck(
                    f"{_named(tool)} was called {count} times with the same arguments and the same result, more than "
                    f"max_identical_calls ({self._most_identical}). {_REMEDY}"
                )


def _named(tool: str) -> str:
    """Return a tool's name as the model wrote it, which may be anything, in a form that can be shown and stored."""
    return storable(tool, 100)
