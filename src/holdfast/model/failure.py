"""Failure: an error as the journal keeps it, after the exception itself is gone.

Data only: the class of a recorded error is a name, never imported again.
"""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from holdfast.model.errors import (
    AgentStuck,
    BudgetExceeded,
    CheckpointExpired,
    CodecError,
    DeadlineExceeded,
    EffectGivenUp,
    InvalidValue,
    JournalMismatch,
    Rejected,
    StepFailed,
    TaskCancelled,
    TaskFailed,
)
from holdfast.model.retry import RecordedError, qualified_name
from holdfast.model.task import JsonValue
from holdfast.redaction import redacted

MOST_TRIES = 100
"""Kept of each failure: a policy with a million attempts must not write them all down at each of them."""

_LONGEST_MESSAGE, _LONGEST_TRACEBACK = 4_000, 8_000

_NOT_THEIRS = (str(Path(__file__).parent.parent), str(Path(traceback.__file__).parent / "asyncio"), "<frozen")
NEVER_RETRIED = {
    **dict.fromkeys(map(qualified_name, (JournalMismatch, CodecError, InvalidValue)), "the code has to change first"),
    **dict.fromkeys(map(qualified_name, (Rejected, EffectGivenUp)), "a person decided so"),
    qualified_name(BudgetExceeded): "the budget has to be raised first",
    qualified_name(CheckpointExpired): "a person has to accept it first",
    qualified_name(AgentStuck): "it would only go on like that",
    "Poison": "its workers died of it",
}
"""Wrong now means wrong next time, for this reason."""

_OF_THE_JOURNAL = (StepFailed, Rejected, DeadlineExceeded, TaskFailed, TaskCancelled)
"""Errors that name the line of the journal they were recorded in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Try:
    """One try that ended badly."""

    number: int
    type_name: str
    message: str
    at: datetime
    is_away: bool = False
    """The other side could not be reached: an error of the policy's ``away_on``."""

    def to_json(self) -> JsonValue:
        """Return it as plain data."""
        data = {"number": self.number, "type": self.type_name, "message": self.message, "at": self.at.isoformat()}
        return data | {"away": True} if self.is_away else data

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Try:
        """Read what ``to_json`` wrote."""
        return cls(
            number=data["number"],
            type_name=data["type"],
            message=data["message"],
            at=datetime.fromisoformat(data["at"]),
            is_away=bool(data.get("away", False)),
        )


class Exited(Exception):
    """Carries an error of the user's that is no Exception, such as SystemExit, to the place where it is recorded.

    Raised as it is, asyncio would take it for the end of the whole process.
    """

    def __init__(self, error: BaseException) -> None:
        """``error`` is what the code raised."""
        super().__init__(error)
        self.error = error


def raised_by_code(error: BaseException) -> BaseException:
    """Return what the user's code raised: the error itself, or the one that it carries."""
    return error.error if isinstance(error, Exited) else error


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """What went wrong, how often, and why nobody tries again."""

    type_name: str
    message: str
    type_names: tuple[str, ...] = ()
    """The class and those above it, most derived first: what retry_on is compared with."""
    retry_after: float | None = None
    tries: tuple[Try, ...] = ()
    """Every try so far, the first first (the last hundred of them)."""
    reason: str = ""
    """Why it was given up."""
    steps: tuple[str, ...] = ()
    """The keys of the failed steps and waits that ended it; they run again when it does."""
    where: str = ""
    """The last line of the user's own code: ``app.py:16 in charge``."""
    traceback: str = ""

    @classmethod
    def of(cls, error: BaseException) -> Failure:
        """Describe an exception. That of a failed step is described by what the step recorded."""
        error = raised_by_code(error)
        described = RecordedError.of(error)
        steps = tuple(dict.fromkeys(failed_steps(error)))
        if isinstance(error, StepFailed):
            return replace(
                error.failure,
                type_names=error.failure.type_names + described.type_names,
                tries=(),
                steps=steps,
                reason="",
            )
        leaves = [Failure.of(leaf) for leaf in error.exceptions] if isinstance(error, BaseExceptionGroup) else []
        if len(leaves) == 1:
            return leaves[0]
        return cls(
            type_name=described.type_names[0],
            # A group is what it holds: a policy that gives up on one of them gives up on the group.
            type_names=(*described.type_names, *_inner_names(error), *(n for leaf in leaves for n in leaf.type_names)),
            message=storable("; ".join(f"{leaf.type_name}: {leaf.message}" for leaf in leaves) or _text_of(error)),
            retry_after=described.retry_after,
            steps=steps,
            where=_place(error),
            traceback=storable(_traceback_of(error), _LONGEST_TRACEBACK),
        )

    @property
    def recorded(self) -> RecordedError:
        """What a retry policy needs to know about it."""
        return RecordedError(type_names=self.type_names or (self.type_name,), retry_after=self.retry_after)

    @property
    def hopeless(self) -> str | None:
        """Why no retry could help; None if one might."""
        why = next((NEVER_RETRIED[name] for name in self.type_names if name in NEVER_RETRIED), None)
        return None if why is None else f"{self.type_name} is not retried: {why}"

    def after(self, earlier: tuple[Try, ...], *, number: int, at: datetime, is_away: bool = False) -> Failure:
        """Return it as the outcome of try ``number``, with those before it."""
        latest = Try(number=number, type_name=self.type_name, message=self.message, at=at, is_away=is_away)
        return replace(self, tries=(*earlier, latest)[-MOST_TRIES:])

    def to_json(self) -> JsonValue:
        """Return it as plain data; what is empty is left out."""
        data: dict[str, JsonValue] = {
            "type": self.type_name,
            "message": self.message,
            "types": list(self.type_names),
            "retry_after": self.retry_after,
            "tries": [one.to_json() for one in self.tries],
            "reason": self.reason,
            "steps": list(self.steps),
            "where": self.where,
            "traceback": self.traceback,
        }
        return {name: part for name, part in data.items() if part or name in {"type", "message"}}

    @classmethod
    def from_json(cls, data: JsonValue) -> Failure:
        """Read what ``to_json`` wrote; also what somebody else stored as a task's error."""
        if not isinstance(data, dict) or "message" not in data:
            return cls(type_name="error", message=str(data))
        return cls(
            type_name=str(data.get("type", "error")),
            message=str(data["message"]),
            type_names=tuple(data.get("types", ())),
            retry_after=data.get("retry_after"),
            tries=tuple(map(Try.from_json, data.get("tries", ()))),
            reason=data.get("reason", ""),
            steps=tuple(data.get("steps", ())),
            where=data.get("where", ""),
            traceback=data.get("traceback", ""),
        )


def _inner_names(error: BaseException) -> tuple[str, ...]:
    """Return what a child failed by: what nobody should repeat there, its parent should not repeat either."""
    if not isinstance(error, TaskFailed):
        return ()
    return error.failure.type_names or (error.failure.type_name,)


def failed_steps(error: BaseException) -> list[str]:
    """Find the keys of the failed steps and waits that an exception stands for: itself, its causes, its members."""
    found: list[str] = []
    seen: set[int] = set()
    ahead = [error]
    while ahead:
        one = ahead.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        if isinstance(one, _OF_THE_JOURNAL) and one.step is not None:
            found.append(one.step)
            continue
        if isinstance(one, BaseExceptionGroup):
            ahead.extend(one.exceptions)
        ahead.extend(linked for linked in (one.__cause__, one.__context__) if linked is not None)
    return found


def _text_of(error: BaseException) -> str:
    """Return the message of an exception, also of one that fails to tell it."""
    try:
        return str(error)
    except Exception as broken:  # noqa: BLE001 - somebody's __str__
        return f"(its message cannot be read: {type(broken).__name__} in __str__)"


def _traceback_of(error: BaseException) -> str:
    try:
        return "".join(traceback.format_exception(error))
    except Exception:  # noqa: BLE001 - the same __str__
        return "".join(traceback.format_tb(error.__traceback__))


def _place(error: BaseException) -> str:
    """Return the innermost line of the traceback that is neither Holdfast's nor Python's own."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if is_theirs(frame.filename)]
    if not frames:
        return ""
    last = frames[-1]
    return named_place(last.filename, last.lineno, last.name)


def is_theirs(filename: str) -> bool:
    """Say whether a source file is neither Holdfast's nor Python's own."""
    return not filename.startswith(_NOT_THEIRS)


def named_place(filename: str, line: int | None, function: str) -> str:
    """Return a line of code in words."""
    return f"{filename.replace(chr(92), '/').rpartition('/')[2]}:{line} in {function}"


def storable(text: str, longest: int = _LONGEST_MESSAGE) -> str:
    """Cut a text in the middle, and replace what no store holds and what none should hold: credentials.

    Those first: the half of one that is left after a cut would not be recognised.
    """
    text = redacted(text)
    text = text.replace("\0", "\ufffd").encode("utf-8", "replace").decode()
    if len(text) <= longest:
        return text
    half = longest // 2
    return f"{text[:half]} [... {len(text) - longest} characters ...] {text[-half:]}"
