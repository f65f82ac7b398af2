"""From the database's answers to verdicts, in the model's own words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from holdfast.model.commit import Commit, Refusal, Verdict, judge, not_quiet_message, reopening_refused
from holdfast.model.errors import BudgetExceeded
from holdfast.model.operations import (
    ApplyPatch,
    ConsumeApproval,
    Decide,
    Emit,
    LinkArtifact,
    OpenApproval,
    ReopenChild,
    RequestCancel,
    WriteEffect,
    WriteOutcome,
)
from holdfast.model.task import Submitted, Task
from holdfast.model.transitions import TaskState
from holdfast.store.postgres.errors import full_queue, no_place, unknown_limit

Answer = Mapping[str, Any]

_DUPLICATE = "duplicate"
_SHOWN = (
    ApplyPatch | Decide | ConsumeApproval | LinkArtifact | OpenApproval | RequestCancel | WriteEffect | WriteOutcome
)
"""Operations after which a reader of the task sees something new."""


def verdict_of(commit: Commit, answer: Answer) -> Verdict:
    """Make the verdict on a Commit."""
    word = answer["verdict"]
    if word == Refusal.NOT_FOUND:
        return Verdict(task_id=commit.task_id, refusal=Refusal.NOT_FOUND, detail=f"no task {commit.task_id}")
    if word == "limit":  # a child has a key of no limit
        word, answer = Refusal.CONFLICT, {**answer, "detail": {"no_limit": answer["detail"]}}
    refusal = None if word in {None, _DUPLICATE} else Refusal(word)
    full = full_queue(answer["detail"]) if refusal is Refusal.FULL else None
    missing = no_place(answer["detail"]) if refusal is Refusal.NO_PLACE else None
    too_many = full or missing
    detail, budget = (str(too_many), None) if too_many is not None else _explain(commit, answer, refusal)
    return Verdict(
        task_id=commit.task_id,
        refusal=refusal,
        detail=detail,
        duplicate=word == _DUPLICATE,
        state=TaskState(answer["state"]),
        fence=answer["fence"],
        sequence=answer["sequence"],
        revision=answer["revision"],
        version=answer["version"],
        owner=answer["owner"],
        cancel_requested=answer["cancel_requested"],
        paused=answer["paused"],
        children=tuple(Submitted(**child) for child in answer.get("children", ())),
        budget=budget,
        full=full,
        no_place=missing,
    )


def _explain(commit: Commit, answer: Answer, refusal: Refusal | None) -> tuple[str, BudgetExceeded | None]:
    if refusal is None:
        return "", None
    if refusal is Refusal.BUDGET:
        exceeded = BudgetExceeded(**answer["detail"])
        return str(exceeded), exceeded
    return _words(commit, answer, refusal), None


def _words(commit: Commit, answer: Answer, refusal: Refusal) -> str:
    """Say why; what an operation refused comes with a detail, and a guard that did not hold without."""
    detail: Mapping[str, Any] = answer.get("detail") or {}
    match refusal:
        case Refusal.EFFECT:
            return f"effect {detail['id']} is {detail['before'] or 'not stored'}, it cannot become {detail['after']}"
        case Refusal.APPROVAL:
            return f"approval {detail['id']} of task {commit.task_id}: {detail['why']}"
        case Refusal.KEY:
            return f"a child of {commit.task_id} needs key {detail['key']!r}, taken by {detail['task_id']}"
        case Refusal.CONFLICT if detail:
            return _words_on_conflict(commit, detail)
    # The guard did not hold or the move is illegal: the model says why, from the same row.
    stood = ("fence", "sequence", "revision", "version", "owner")
    task = Task(id=commit.task_id, state=TaskState(answer["state"]), **{name: answer[name] for name in stood})
    judged = judge(task, commit)
    return judged[1] if judged else str(refusal)


def _words_on_conflict(commit: Commit, found: Mapping[str, Any]) -> str:
    if "child_id" in found:
        return _words_on_child(commit, found)
    if "no_limit" in found:
        return str(unknown_limit(found["no_limit"]))
    return not_quiet_message(found["channel"], after=found["after"], last=found["last"])


def _words_on_child(commit: Commit, found: Mapping[str, Any]) -> str:
    """Say why a child cannot be begun again, from its row; of several operations, the first that it refuses."""
    child = None
    if found["state"] is not None:
        stood = {name: found[name] for name in ("parent_id", "revision")}
        child = Task(id=found["child_id"], state=TaskState(found["state"]), **stood)
    wanted = [op for op in commit.operations if isinstance(op, ReopenChild) and op.child_id == found["child_id"]]
    reasons = [reopening_refused(commit.task_id, op, child) for op in wanted]
    return next((reason for reason in reasons if reason is not None), str(Refusal.CONFLICT))


def topics_of(commits: Iterable[Commit], verdicts: Iterable[Verdict]) -> set[str]:
    """Return what to hint at, beyond the moves and wake-ups that the database reports itself."""
    topics = set()
    for commit, verdict in zip(commits, verdicts, strict=True):
        if not verdict.applied or verdict.duplicate:
            continue
        topics |= {f"channel:{op.channel}" for op in commit.operations if isinstance(op, Emit)}
        if any(isinstance(op, _SHOWN) for op in commit.operations):
            topics.add(f"task:{commit.task_id}")
    return topics
