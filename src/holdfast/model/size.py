"""The size in bytes of Commits and new tasks, and how many of them are sent to a store together.

Only payloads are counted: everything else is small.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeVar

import msgspec

from holdfast.model.commit import Commit
from holdfast.model.errors import InvalidValue
from holdfast.model.operations import (
    ApplyPatch,
    Decide,
    Emit,
    Move,
    OpenApproval,
    Operation,
    ReopenChild,
    SaveCheckpoint,
    SubmitChild,
    WriteEffect,
    WriteOutcome,
    WriteStep,
)
from holdfast.model.step import Step
from holdfast.model.task import JsonValue, NewTask

Item = TypeVar("Item")

BATCH_BYTES: Final = 16 << 20
"""The most that one transaction should carry. PostgreSQL accepts no message above 1 GB, and all others wait while a
large one is encoded, sent and written. An item that is larger is sent alone."""

LARGEST_BYTES: Final = 256 << 20
"""More than this in one Commit, or one submission, is rejected: a database copies it several times."""

_to_json = msgspec.json.Encoder().encode


def batches(
    items: Sequence[Item], size: Callable[[Item], int], *, most: int, most_bytes: int = BATCH_BYTES
) -> Iterator[Sequence[Item]]:
    """Divide the items, in order, into batches of 1 to ``most`` items and, with more than 1, at most ``most_bytes``."""
    start, held = 0, 0
    for end, item in enumerate(items):
        own = size(item)
        if end > start and (end - start == most or held + own > most_bytes):
            yield items[start:end]
            start, held = end, 0
        held += own
    if start < len(items):
        yield items[start:]


def commit_size(commit: Commit) -> int:
    """Return about how many bytes the payloads of a Commit take. They are counted once: some have to be encoded."""
    size = commit.known_size
    if size is None:
        size = 0
        for operation in commit.operations:
            size += _operation_size(operation)
        object.__setattr__(commit, "known_size", size)
    return size


def task_size(task: NewTask) -> int:
    """Return about how many bytes the payloads of a new task take."""
    return sum(_value_size(value) for value in (task.user_input, task.result, task.error) if value is not None)


def check_commit_size(commit: Commit) -> None:
    """Reject a Commit that is too large for a database."""
    size = commit.known_size
    if size is None:
        size = commit_size(commit)
    if size > LARGEST_BYTES:
        raise InvalidValue(
            f"a Commit of task {commit.task_id} takes {size:,} bytes in {len(commit.operations)} operations, and "
            f"{LARGEST_BYTES:,} are allowed; store large outputs as artifacts and keep their ids"
        )


def check_submission_size(tasks: Sequence[NewTask]) -> None:
    """Reject a submission that is too large for a database."""
    size = sum(map(task_size, tasks))
    if size > LARGEST_BYTES:
        raise InvalidValue(
            f"{len(tasks)} tasks take {size:,} bytes together, and {LARGEST_BYTES:,} are allowed at once; submit them "
            "in parts, or store large inputs as artifacts and pass their ids"
        )


def _operation_size(op: Operation) -> int:  # noqa: C901, PLR0911 - one case an operation
    match op:
        case WriteStep(step):
            return _step_size(step)
        case WriteEffect(effect):
            return len(effect.arguments) + len(effect.result or b"")
        case Move(result=result, error=error) | WriteOutcome(result=result, error=error):
            return (0 if result is None else _value_size(result)) + (0 if error is None else _value_size(error))
        case SubmitChild(task):
            return task_size(task)
        case ReopenChild(user_input=user_input, lines=lines):
            return _value_size(user_input) + sum(map(_step_size, lines))
        case ApplyPatch(body=body):
            return len(body)
        case SaveCheckpoint(checkpoint):
            return len(checkpoint.body)
        case OpenApproval(approval):
            return len(approval.arguments_bytes)
        case Emit(payload=payload):
            return _value_size(payload)
        case Decide(answer=answer):
            return _value_size(answer)
        case _:
            return 0


def _step_size(step: Step) -> int:
    return len(step.output or b"") + len(step.error or b"")


def _value_size(value: JsonValue) -> int:
    if value is None or isinstance(value, bool | int | float):
        return 0
    if isinstance(value, str):
        return len(value)
    try:
        return len(_to_json(value))
    except (ValueError, TypeError, RecursionError):
        return 0  # the store rejects it with a better message
