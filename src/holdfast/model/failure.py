"""Failure: an error as the journal keeps it, after the exception itself is gone.

It is only data: the class of a recorded error is a name, and is never imported again.
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
"""Kept of each failure: with a million attempts, each attempt must not write down all those before it."""

_LONGEST_MESSAGE, _LONGEST_TRACEBACK = 4_000, 8_000

_NOT_THEIRS = (str(Path(__file__).parent.parent), str(Path(traceback.__file__).parent / "asyncio"), "<frozen")
NEVER_RETRIED = {
    **dict.fromkeys(map(qualified_name, (JournalMismatch, CodecError, InvalidValue)), "the code has to change first"),
    **dict.fromkeys(map(qualified_name, (Rejected, EffectGivenUp)), "a person decided so"),
    qualified_name(BudgetExceeded): "the budget has to be raised first",
    qualified_name(CheckpointExpired): "a person has to accept it first",
    qualified_name(AgentStuck): "it would only repeat itself",
    "Poison": "its workers died while running it",
}
"""Errors that a retry cannot help, each with the reason."""

_OF_THE_JOURNAL = (StepFailed, Rejected, DeadlineExceeded, TaskFailed, TaskCancelled, BudgetExceeded, InvalidValue)
"""Errors that name the line of the journal they were recorded in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Try:
    """One try that failed."""

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
    """Carries a BaseException of the user's code that is not an Exception, such as SystemExit, until it is recorded.

    If it were raised directly, asyncio would end the whole process.
    """

    def __init__(self, error: BaseException) -> None:
        """``error`` is what the code raised."""
        super().__init__(error)
        self.error = error


def raised_by_code(error: BaseException) -> BaseException:
    """Return the error that the user's code raised: the one inside an Exited, or the error itself."""
    return error.error if isinstance(error, Exited) else error


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """What went wrong, how often, and why there is no further try."""

    type_name: str
    message: str
    type_names: tuple[str, ...] = ()
    """The class and its base classes, most derived first. ``retry_on`` is compared with them."""
    retry_after: float | None = None
    tries: tuple[Try, ...] = ()
    """The tries so far, the oldest first (at most the last hundred)."""
    reason: str = ""
    """Why it was given up."""
    steps: tuple[str, ...] = ()
    """The keys of the failed steps and waits that ended it; they run again when the task runs again."""
    where: str = ""
    """The last line of the user's own code: ``app.py:16 in charge``."""
    traceback: str = ""

    @classmethod
    def of(cls, error: BaseException) -> Failure:
        """Describe an exception. For a StepFailed, use what the step recorded."""
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
            # A group has the types of its members: a policy that gives up on one of them gives up on the group.
            type_names=(*described.type_names, *_inner_names(error), *(n for leaf in leaves for n in leaf.type_names)),
            message=storable("; ".join(f"{leaf.type_name}: {leaf.message}" for leaf in leaves) or _text_of(error)),
            retry_after=described.retry_after,
            steps=steps,
            where=_place(error),
            traceback=storable(_traceback_of(error), _LONGEST_TRACEBACK),
        )

    @property
    def recorded(self) -> RecordedError:
        """The part of it that a retry policy needs."""
        return RecordedError(type_names=self.type_names or (self.type_name,), retry_after=self.retry_after)

    @property
    def hopeless(self) -> str | None:
        """Why a retry cannot help; None if it might."""
        why = next((NEVER_RETRIED[name] for name in self.type_names if name in NEVER_RETRIED), None)
        return None if why is None else f"{self.type_name} is not retried: {why}"

    def after(self, earlier: tuple[Try, ...], *, number: int, at: datetime, is_away: bool = False) -> Failure:
        """Return it as the outcome of try ``number``, with the earlier tries."""
        latest = Try(number=number, type_name=self.type_name, message=self.message, at=at, is_away=is_away)
        return replace(self, tries=(*earlier, latest)[-MOST_TRIES:])

    def to_json(self) -> JsonValue:
        """Return it as plain data, without empty fields."""
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
        """Read what ``to_json`` wrote; also an error in another form that another program stored."""
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
    """Return the error types of a failed child: if they are not retried there, the parent does not retry either."""
    if not isinstance(error, TaskFailed):
        return ()
    return error.failure.type_names or (error.failure.type_name,)


def failed_steps(error: BaseException) -> list[str]:
    """Return the keys of the failed steps and waits in an exception, its causes and the members of its groups."""
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
    """Return the message of an exception, even if its ``__str__`` raises."""
    try:
        return str(error)
    except Exception as broken:  # noqa: BLE001 - the user's __str__
        return f"(its message cannot be read: {type(broken).__name__} in __str__)"


def _traceback_of(error: BaseException) -> str:
    try:
        return "".join(traceback.format_exception(error))
    except Exception:  # noqa: BLE001 - the same __str__
        return "".join(traceback.format_tb(error.__traceback__))


def _place(error: BaseException) -> str:
    """Return the innermost line of the traceback that belongs to neither Holdfast nor Python."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if is_user_code(frame.filename)]
    if not frames:
        return ""
    last = frames[-1]
    return named_place(last.filename, last.lineno, last.name)


def is_user_code(filename: str) -> bool:
    """Return whether a source file belongs to neither Holdfast nor Python."""
    return not filename.startswith(_NOT_THEIRS)


def named_place(filename: str, line: int | None, function: str) -> str:
    """Return a line of code as text: ``app.py:16 in charge``."""
    return f"{filename.replace(chr(92), '/').rpartition('/')[2]}:{line} in {function}"


def storable(text: str, longest: int = _LONGEST_MESSAGE) -> str:
    """Redact credentials, replace characters that a store cannot hold, and cut a long text in the middle.

    Credentials come first: half of one, left after a cut, would not be recognised.
    """
    text = redacted(text)
    text = text.replace("\0", "\ufffd").encode("utf-8", "replace").decode()
    if len(text) <= longest:
        return text
    half = longest // 2
    return f"{text[:half]} [... {len(text) - longest} characters ...] {text[-half:]}"
