"""Remarks: redacts the texts in a Commit that explain what went wrong and why, and leaves the data of tasks alone.

Every Commit passes here before the journal, so no remark contains a known credential. A pause is not a Commit: its verb
calls ``redact_remark``. Arguments, results, facts and other data belong to the application and are never changed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final, TypeVar

from holdfast.model.canonical import canonical, parse
from holdfast.model.operations import (
    ApplyPatch,
    Decide,
    Move,
    Operation,
    ReopenChild,
    RequestCancel,
    SetAsideCheckpoint,
    WriteEffect,
    WriteOutcome,
    WriteStep,
)
from holdfast.model.step import Step
from holdfast.model.task import JsonValue
from holdfast.redaction import knows_any, redacted

T = TypeVar("T")

_NAMES: Final = frozenset({"type", "types", "steps"})
"""Fields of a Failure that hold names."""


def redact_operations(operations: tuple[Operation, ...]) -> tuple[Operation, ...]:
    """Return the operations without credentials in their remarks; the same object where there are none."""
    if not knows_any():
        return operations  # the usual case, kept fast: every step makes a Commit
    found = [(_REDACTIONS[type(op)](op) if type(op) in _REDACTIONS else op) for op in operations]
    is_same = all(now is before for now, before in zip(found, operations, strict=True))
    return operations if is_same else tuple(found)


def redact_failure(data: JsonValue) -> JsonValue:
    """Return a stored failure without credentials in its texts. Names of steps and errors stay: code uses them."""
    match data:
        case str():
            return redacted(data)
        case list():
            return [redact_failure(part) for part in data]
        case dict():
            return {name: part if name in _NAMES else redact_failure(part) for name, part in data.items()}
    return data


def redact_bytes(body: bytes) -> bytes:
    """Return a stored failure, as JSON, without credentials."""
    return canonical(redact_failure(parse(body)))


def redact_remark(remark: str | None) -> str | None:
    """Return a person's reason or note without credentials, if there is one."""
    return None if remark is None else redacted(remark)


def _changed(operation: T, **fields: Any) -> T:  # noqa: ANN401 - each field has a type of its own
    """Return the operation with these fields, or the same object if nothing changes."""
    changes = {name: value for name, value in fields.items() if value != getattr(operation, name)}
    return replace(operation, **changes) if changes else operation  # type: ignore[type-var]


def _step(step: Step) -> Step:
    return step if step.error is None else _changed(step, error=redact_bytes(step.error))


def _reopened(operation: ReopenChild) -> ReopenChild:
    return _changed(
        operation,
        reason=redacted(operation.reason),
        feedback=redact_remark(operation.feedback),
        lines=tuple(map(_step, operation.lines)),
    )


def _moved(operation: Move) -> Move:
    return _changed(
        operation,
        reason=redacted(operation.reason),
        error=redact_failure(operation.error),
        feedback=redact_remark(operation.feedback),
    )


def _with_note(operation: WriteEffect) -> WriteEffect:
    return _changed(operation, effect=_changed(operation.effect, note=redact_remark(operation.effect.note)))


_REDACTIONS: Final[dict[type, Callable[[Any], Any]]] = {
    ApplyPatch: lambda op: _changed(op, reason=redacted(op.reason)),
    Decide: lambda op: _changed(op, note=redact_remark(op.note)),
    Move: _moved,
    ReopenChild: _reopened,
    RequestCancel: lambda op: _changed(op, reason=redacted(op.reason)),
    SetAsideCheckpoint: lambda op: _changed(op, why=redacted(op.why)),
    WriteEffect: _with_note,
    WriteOutcome: lambda op: _changed(op, error=redact_failure(op.error)),
    WriteStep: lambda op: op if op.step.error is None else _changed(op, step=_step(op.step)),
}
