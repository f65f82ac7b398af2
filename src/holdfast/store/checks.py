"""What is refused at a store's door, before anything is written: the same for every store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from holdfast.model.approval import DECISIONS
from holdfast.model.checks import check_name, check_text
from holdfast.model.commit import Commit, Expect
from holdfast.model.errors import InvalidValue
from holdfast.model.operations import (
    ApplyPatch,
    Decide,
    Emit,
    LinkArtifact,
    Move,
    OpenApproval,
    Operation,
    Release,
    RequestCancel,
    Reserve,
    SetAsideCheckpoint,
    Settle,
    Wait,
    WriteEffect,
    WriteStep,
)


def check_commits(commits: Sequence[Commit]) -> None:
    """Raise InvalidValue where a Commit could not mean anything, whatever the store holds."""
    for commit in commits:
        if sum(isinstance(op, Move) for op in commit.operations) > 1:
            raise InvalidValue(f"a Commit of task {commit.task_id} moves it twice; send one Move a Commit")
        check_text("actor", commit.actor)
        for op in commit.operations:
            if not isinstance(op, WriteStep):  # the most frequent by far, and checked when it was made
                _check_operation(commit, op)


def _check_operation(commit: Commit, op: Operation) -> None:  # noqa: C901, PLR0912 - one case an operation
    match op:
        case Release() if isinstance(commit.guard, Expect):
            raise InvalidValue("only the worker that holds a task can release it")
        case OpenApproval(approval) if approval.task_id != commit.task_id:
            raise InvalidValue(f"approval {approval.id} is of task {approval.task_id}, not {commit.task_id}")
        case Decide(state=state) if state not in DECISIONS:
            raise InvalidValue(f"{state} is no decision; choose one of {', '.join(sorted(DECISIONS))}")
        case OpenApproval(approval):
            for what in ("question", "step_key", "kind", "risk", "policy", "requested_by"):
                check_text(f"approval {what}", getattr(approval, what))
        case Decide(by=by, note=note):
            check_name("decider", by)
            check_text("note", note)
        case Emit(channel=channel, key=key):
            check_name("channel", channel)
            check_text("event key", key)
        case Move(reason=reason, feedback=feedback, waits=waits):
            check_text("reason", reason)
            check_text("feedback", feedback)
            _check_waits(commit.task_id, waits)
        case ApplyPatch(author=author, reason=reason):
            check_text("author", author)
            check_text("reason", reason)
        case WriteEffect(effect):
            check_name("effect id", effect.effect_id)
            check_text("note", effect.note)
        case LinkArtifact(link):
            for what in ("artifact_id", "name", "type", "summary", "step"):
                check_text(f"artifact {what}", getattr(link, what))
        case RequestCancel(reason=text) | SetAsideCheckpoint(why=text):
            check_text("reason", text)
        case Reserve(account=account, amounts=amounts) | Settle(account=account, amounts=amounts):
            check_name("account", account)
            _check_amounts(amounts)
        case _:
            pass


def _check_waits(task_id: str, waits: Sequence[Wait]) -> None:
    keys = [wait.key for wait in waits]
    if len(set(keys)) < len(keys):
        raise InvalidValue(f"task {task_id} waits twice under one key; give each wait its own")


def _check_amounts(amounts: Mapping[str, int]) -> None:
    for meter, amount in amounts.items():
        check_name("meter", meter)
        if amount < 0:
            raise InvalidValue(f"{amount} {meter} is less than nothing; amounts count upwards")


def check_limit(limit: int) -> int:
    """Refuse a page size nobody can mean."""
    if not 1 <= limit <= 10_000:  # noqa: PLR2004 - said in the message
        raise InvalidValue(f"limit is {limit}; choose 1 to 10000")
    return limit
