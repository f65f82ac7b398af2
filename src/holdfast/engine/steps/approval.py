"""Asking a person, from inside a task: the question is a record, and the task waits for its answer without a worker.

A decision is bound to the exact arguments of the question. If the code asks about other arguments under the same key,
the old question is void and a new one is asked.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from holdfast.engine.attempt.journal import RESERVED, stable_bytes
from holdfast.engine.attempt.journal_line import journal_line
from holdfast.engine.attempt.step_owner import StepOwner
from holdfast.engine.runtime.store_retry import call_store
from holdfast.model.approval import Approval, ApprovalState, Ask, Decided
from holdfast.model.canonical import Unreadable, canonical, digest, parse
from holdfast.model.codec import decode, encode
from holdfast.model.deadline import as_seconds
from holdfast.model.errors import CodecError, Conflict, NotFound, Rejected
from holdfast.model.failure import Failure
from holdfast.model.operations import Decide, OpenApproval, Operation, UntilDecided, WriteStep
from holdfast.model.state_size import TEXT_BYTES, check_size
from holdfast.model.step import Step, StepState

APPROVAL, QUESTION = "approval", "question"
KIND = "approval"
"""The kind of the line in the journal, for both."""

_A = ApprovalState
_TAKEN_BACK = frozenset({_A.CLOSED, _A.VOID})
_NOTHING = canonical(None)


async def obtain(attempt: StepOwner, step_key: str, effect_id: str, ask: Ask, arguments: bytes) -> str:
    """Wait until a person approves one effect with exactly these arguments; return the id of the approval."""
    decided = await decision(attempt, _key_of(effect_id), ask, arguments, about=step_key)
    return decided.approval_id


async def question_about(attempt: StepOwner, effect_id: str) -> Approval | None:
    """Return the question, in any state, that was asked before an effect; None if none was asked."""
    line = attempt.journal.get(_key_of(effect_id))
    return None if line is None else await call_store(partial(attempt.services.store.approval, _id_of(attempt, line)))


async def withdraw(attempt: StepOwner, effect_id: str, why: str) -> None:
    """Withdraw the question about an effect, if it is still open: that effect will not be done."""
    question = await question_about(attempt, effect_id)
    if question is not None and question.state is _A.OPEN:
        await attempt.check()
        with suppress(Conflict):  # it was decided meanwhile; that decision is never used
            void = Decide(approval_id=question.id, state=_A.VOID, by=attempt.lease.worker_id, note=why)
            await attempt.outbox.commit(void)


def _key_of(effect_id: str) -> str:
    return f"{RESERVED}approval:{effect_id}"


async def decision(
    attempt: StepOwner,
    key: str,
    ask: Ask,
    arguments: bytes,
    *,
    kind: str = APPROVAL,
    about: str | None = None,
    also: Callable[[Approval], tuple[Operation, ...]] = lambda _: (),
) -> Decided:
    """Wait for a person's decision and return it. Raises Rejected, live and on replay.

    ``arguments`` is what the decision is about, ``about`` the key of the step that it is for. ``also`` returns what is
    written in the same Commit as an approval.
    """
    fingerprint = _fingerprint(ask, arguments)
    recorded = attempt.find(key, KIND)
    is_same = recorded is not None and recorded.digest == fingerprint
    if recorded is not None and is_same and recorded.state is StepState.COMPLETED:
        await attempt.take_turn(recorded)
        return _read(recorded)
    if recorded is not None and is_same and recorded.state is StepState.FAILED:
        await attempt.discovery.let_branches_pass()
        message = Failure.from_json(parse(recorded.error or b"null")).message
        raise Rejected(message, approval_id=_id_of(attempt, recorded), step=key)
    line = _line(attempt, key, recorded, fingerprint, is_same=is_same)
    approval = await _question(attempt, ask, line, arguments, kind=kind, about=about or key, before=recorded)
    if approval.state in _TAKEN_BACK:  # closed when its task ended; the task was revived since
        line = replace(line, attempts=line.attempts + 1, fence=attempt.task.fence)
        approval = await _question(attempt, ask, line, arguments, kind=kind, about=about or key, before=recorded)

    async def look() -> Approval | None:
        found = await call_store(lambda: attempt.services.store.approval(approval.id))
        if found is None:
            raise NotFound("approval", approval.id)
        return None if found.state is _A.OPEN else found

    waits = (UntilDecided(key=key, approval_id=approval.id),)
    found = await attempt.residence.waiting_branches().park(waits, line, (f"task:{attempt.task.id}",), look)
    return await _record(attempt, line, found, also)


async def _question(
    attempt: StepOwner, ask: Ask, line: Step, arguments: bytes, *, kind: str, about: str, before: Step | None
) -> Approval:
    """Return the stored question. If it was not asked yet, ask it, and withdraw one about other arguments."""
    store, identifier = attempt.services.store, _id_of(attempt, line)
    asked = await call_store(lambda: store.approval(identifier))
    if asked is not None:
        return asked
    if kind == QUESTION:
        check_size("the question", ask.question, TEXT_BYTES)
    approval = Approval(
        id=identifier,
        task_id=attempt.task.id,
        kind=kind,
        question=ask.question,
        step_key=about,
        risk=ask.risk,
        arguments_bytes=arguments,
        arguments_hash=digest(arguments),
        policy=ask.policy,
        requested_by=ask.requested_by or attempt.task.agent_id or attempt.task.name,
        deciders=tuple(ask.deciders),
        expires_at=_expiry(attempt, ask),
        default=_A(ask.default),
    )
    operations = (OpenApproval(approval), WriteStep(line))
    await attempt.check()
    if before is not None and before.digest != line.digest:
        void = Decide(
            approval_id=_id_of(attempt, before),
            state=_A.VOID,
            by=attempt.lease.worker_id,
            note="the arguments have changed",
        )
        try:
            await attempt.outbox.commit(void, *operations)
        except Conflict:
            # The old question was decided, or has expired, before it could be withdrawn. It is about other arguments.
            await attempt.outbox.commit(*operations)
    else:
        await attempt.outbox.commit(*operations)
    attempt.services.note_due(approval.expires_at)
    return approval


async def _record(
    attempt: StepOwner, line: Step, approval: Approval, also: Callable[[Approval], tuple[Operation, ...]]
) -> Decided:
    now = attempt.services.time.now()
    holds = approval.default if approval.state is _A.EXPIRED else approval.state
    if isinstance(approval.answer, Unreadable):
        raise CodecError(approval.answer, path=f"the answer to {line.key!r}")
    if holds in {_A.APPROVED, _A.ANSWERED}:
        decided = Decided(
            approval_id=approval.id,
            state=approval.state,
            by=approval.decided_by,
            note=approval.note,
            at=approval.decided_at,
            answer=approval.answer,
        )
        done = _over(line, StepState.COMPLETED, now, output=encode(_to_data(decided)))
        await attempt.outbox.commit(WriteStep(done), *also(approval))
        return decided
    error = Rejected(_why(approval), approval_id=approval.id, step=line.key)
    body = canonical(Failure.of(error).to_json())
    await attempt.outbox.commit(WriteStep(_over(line, StepState.FAILED, now, error=body)))
    raise error


def _why(approval: Approval) -> str:
    match approval.state:
        case ApprovalState.EXPIRED:
            how = "there was no decision in time, which counts as a rejection"
        case ApprovalState.VOID:
            how = f"withdrawn by {approval.decided_by}"
        case _:
            how = f"rejected by {approval.decided_by}"
    return f"{approval.question!r}: {how}" + (f": {approval.note}" if approval.note else "")


def _id_of(attempt: StepOwner, line: Step) -> str:
    """Return the id of the question of a line: another one for each key, for other arguments, and if asked again."""
    parts = ("approval", attempt.task.id, line.round, line.key, line.digest, line.attempts)
    return str(uuid.UUID(bytes=stable_bytes(*parts)[:16], version=5))


def _fingerprint(ask: Ask, arguments: bytes) -> str:
    """Return what a decision is bound to: its arguments, the risk, and who was asked.

    Without arguments, it is bound to the text of the question.
    """
    about = ask.question if arguments == _NOTHING else digest(arguments)
    return digest(canonical([about, ask.risk, list(ask.deciders), ask.policy]))


def _line(attempt: StepOwner, key: str, recorded: Step | None, fingerprint: str, *, is_same: bool) -> Step:
    if recorded is not None and is_same:
        return recorded
    return journal_line(
        attempt,
        key,
        KIND,
        recorded,
        state=StepState.PENDING,
        attempts=1 if recorded is None else recorded.attempts + 1,
        digest=fingerprint,
        started_at=attempt.services.time.now(),
    )


def _over(
    line: Step, state: StepState, now: datetime, *, output: bytes | None = None, error: bytes | None = None
) -> Step:
    return replace(line, state=state, output=output, error=error, finished_at=now)


def _expiry(attempt: StepOwner, ask: Ask) -> datetime | None:
    if ask.expires is None:
        return None
    return attempt.services.time.now() + timedelta(seconds=as_seconds(ask.expires, what="expires"))


def _to_data(decided: Decided) -> dict[str, Any]:
    return {
        "approval_id": decided.approval_id,
        "state": decided.state.value,
        "by": decided.by,
        "note": decided.note,
        "at": decided.at,
        "answer": decided.answer,
    }


def _read(recorded: Step) -> Decided:
    data = decode(recorded.output or b"", name=f"approval {recorded.key!r}")
    return Decided(**{**data, "state": ApprovalState(data["state"])})
