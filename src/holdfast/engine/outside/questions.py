"""Questions of agents outside to people. The task has no holder while it waits; the next claim brings the answer."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from holdfast.engine.outside.lines import ASKED, write_line
from holdfast.engine.steps.approval import QUESTION
from holdfast.model.agent_state import AgentState, KnownFact
from holdfast.model.approval import Approval, ApprovalState, Ask
from holdfast.model.canonical import canonical, digest
from holdfast.model.ids import new_id
from holdfast.model.operations import ApplyPatch, Move, OpenApproval, Operation, UntilDecided
from holdfast.model.patch import StatePatch
from holdfast.model.queries import Loaded
from holdfast.model.state_size import TEXT_BYTES, check_size, fit_patch
from holdfast.model.step import StepState
from holdfast.model.task import JsonValue, Task
from holdfast.model.transitions import TaskState
from holdfast.store.base import StateStore


@dataclass(frozen=True, slots=True)
class HumanAnswer:
    """What became of a question."""

    question: str
    state: ApprovalState
    """answered; or rejected, expired: there will be no answer."""
    answer: JsonValue
    by: str | None
    note: str | None

    def to_json(self) -> dict[str, JsonValue]:
        """Return the JSON form."""
        return {
            "question": self.question,
            "state": str(self.state),
            "answer": self.answer,
            "by": self.by,
            "note": self.note,
        }


async def asking(
    store: StateStore, task: Task, question: str, *, by: str, at: datetime
) -> tuple[Approval, tuple[Operation, ...]]:
    """Return the question, and the operations that ask it and make the task wait for its answer."""
    Ask(question)  # refuses what cannot be asked
    check_size("the question", question, TEXT_BYTES)
    identifier, nothing = new_id(), canonical(None)
    key = f"{ASKED}{identifier}"
    approval = Approval(
        id=identifier,
        task_id=task.id,
        kind=QUESTION,
        question=question,
        step_key=key,
        arguments_bytes=nothing,
        arguments_hash=digest(nothing),
        requested_by=by,
    )
    patch = ApplyPatch(body=canonical(StatePatch(add_questions=(question,)).to_json()), author=by, step_key=key)
    return approval, (
        OpenApproval(approval),
        await write_line(store, task, key, at=at, state=StepState.PENDING),
        *((patch,) if task.version else ()),
        Move(
            to=TaskState.WAITING,
            reason=reason_of(question, by),
            waits=(UntilDecided(key=key, approval_id=identifier),),
        ),
    )


def reason_of(question: str, by: str) -> str:
    """Return why the task waits."""
    return f"{by} asks: {question}"[:500]


def answers_of(loaded: Loaded) -> list[HumanAnswer]:
    """Return people's answers to the questions of agents outside, first to last."""
    return [
        HumanAnswer(one.question, one.state, one.answer, one.decided_by, one.note)
        for one in sorted(loaded.approvals, key=lambda one: (one.decided_at is None, one.decided_at, one.id))
        if one.step_key.startswith(ASKED) and one.state is not ApprovalState.OPEN
    ]


async def taking_note(store: StateStore, loaded: Loaded, state: AgentState, at: datetime) -> tuple[Operation, ...]:
    """Return the operations that put new answers into the state: each becomes a fact, and its question is closed."""
    operations: list[Operation] = []
    still_open = set(state.open_questions)
    for approval in _unnoted(loaded):
        key = approval.step_key
        is_open = approval.question in still_open
        still_open.discard(approval.question)
        closed = (approval.question,) if is_open else ()
        patch = fit_patch(StatePatch(append_facts=_fact(approval), resolve_questions=closed), closed)
        operations.append(await write_line(store, loaded.task, key, at=at, output=_outcome(approval)))
        if not patch.is_empty:
            author = f"human:{approval.decided_by}" if approval.decided_by else "engine"
            operations.append(ApplyPatch(body=canonical(patch.to_json()), author=author, step_key=approval.step_key))
    return tuple(operations)


def _unnoted(loaded: Loaded) -> Iterable[Approval]:
    asked = [step for step in loaded.steps if step.key.startswith(ASKED) and step.round == loaded.task.round]
    waiting = {step.key for step in asked if step.state is not StepState.COMPLETED}
    return [one for one in loaded.approvals if one.step_key in waiting and one.state is not ApprovalState.OPEN]


def _fact(approval: Approval) -> tuple[KnownFact, ...]:
    if approval.state is not ApprovalState.ANSWERED:
        return ()
    source = f"human:{approval.decided_by}"
    return (KnownFact(key=approval.question, value=approval.answer, source=source, at=approval.decided_at),)


def _outcome(approval: Approval) -> JsonValue:
    return {"state": str(approval.state), "answer": approval.answer, "by": approval.decided_by}
