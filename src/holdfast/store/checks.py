"""What is refused at a store's door, before anything is written: the same for every store."""

from __future__ import annotations

from collections.abc import AsyncIterable, Collection, Sequence
from datetime import datetime, timedelta
from enum import Enum

from holdfast.model.approval import DECISIONS, ApprovalState
from holdfast.model.canonical import canonical
from holdfast.model.checks import (
    MAX_NAME_LENGTH,
    check_amounts,
    check_integer,
    check_key,
    check_member,
    check_moment,
    check_name,
    check_text,
)
from holdfast.model.commit import Commit, Expect
from holdfast.model.effect import Evidence
from holdfast.model.errors import InvalidValue
from holdfast.model.limits import describe
from holdfast.model.operations import (
    SAME_INPUT,
    ApplyPatch,
    Decide,
    Emit,
    LinkArtifact,
    Move,
    OpenApproval,
    Operation,
    Release,
    ReopenChild,
    RequestCancel,
    RequireUndo,
    Reserve,
    Rest,
    RotateCheckpoints,
    SetAsideCheckpoint,
    SetLimits,
    Settle,
    ShareWorker,
    SubmitChild,
    Wait,
    WriteEffect,
    WriteOutcome,
    WriteStep,
)
from holdfast.model.queries import TaskFilter
from holdfast.model.size import check_commit_size, check_submission_size
from holdfast.model.task import MAX_PRIORITY, IfExists, JsonValue, NewTask, rank
from holdfast.model.transitions import TaskState
from holdfast.model.worker import Claim

HIGHEST = (1 << 31) - 1
"""What PostgreSQL holds in an integer."""


def check_commits(commits: Sequence[Commit]) -> None:
    """Raise InvalidValue where a Commit could not mean anything, whatever the store holds."""
    for commit in commits:
        if not _is_plain(commit.task_id):
            check_name("task id", commit.task_id)
        if not commit.actor.isascii() or "\0" in commit.actor:
            check_text("actor", commit.actor)
        if isinstance(commit.guard, Expect):
            check_name("request", commit.guard.request)
        check_commit_size(commit)
        moves = 0
        for op in commit.operations:
            if isinstance(op, WriteStep):  # the most frequent by far, and checked when it was made
                continue
            if isinstance(op, Move):
                moves += 1
                _check_move(commit.task_id, op)
            else:
                _check_operation(commit, op)
        if moves > 1:
            raise InvalidValue(f"a Commit of task {commit.task_id} moves it twice; send one Move a Commit")


def _is_plain(name: str) -> bool:
    """Return whether a name is short plain ASCII, as ids are. Any other name is checked in full, and may be good."""
    return isinstance(name, str) and 0 < len(name) < MAX_NAME_LENGTH and name.isascii() and name.isprintable()


def _check_operation(commit: Commit, op: Operation) -> None:  # noqa: C901, PLR0912, PLR0915 - one case an operation
    match op:
        case Release() if isinstance(commit.guard, Expect):
            raise InvalidValue("only the worker that holds a task can release it")
        case Rest() | ShareWorker() if isinstance(commit.guard, Expect):
            raise InvalidValue(f"only the worker that holds a task can say {type(op).__name__} of it; use Held")
        case ReopenChild(child_id=child_id) if isinstance(commit.guard, Expect):
            raise InvalidValue(f"only the worker that holds the parent can begin child {child_id} again; use Held")
        case ReopenChild(user_input=user_input, available_at=available_at):
            _check_any_rank(available_at)
            if user_input is not SAME_INPUT:
                check_payload("user_input", user_input)
        case OpenApproval(approval) if approval.task_id != commit.task_id:
            raise InvalidValue(f"approval {approval.id} is of task {approval.task_id}, not {commit.task_id}")
        case Decide(state=state) if state not in DECISIONS:
            raise InvalidValue(f"{state} is not a decision; choose one of {', '.join(sorted(DECISIONS))}")
        case OpenApproval(approval) if approval.state is not ApprovalState.OPEN or approval.decided_by is not None:
            raise InvalidValue(
                f"approval {approval.id} is {approval.state} before a person was asked; open it undecided"
            )
        case OpenApproval(approval):
            for what in ("question", "step_key", "kind", "risk", "policy", "requested_by"):
                check_text(f"approval {what}", getattr(approval, what))
        case Decide(by=by, note=note, answer=answer):
            check_name("decider", by)
            check_text("note", note)
            check_payload("answer", answer)
        case Emit(channel=channel, key=key, payload=payload):
            check_name("channel", channel)
            check_event_key(key)
            check_payload("payload", payload)
        case ApplyPatch():
            for what in ("author", "reason", "step_key"):
                check_text(f"patch {what}", getattr(op, what))
        case WriteEffect(effect):
            check_name("effect id", effect.effect_id)
            check_text("note", effect.note)
            check_text("thread_of", effect.thread_of)
        case RequireUndo(required=False, begun=True):
            # Its deadline would wake no worker, and no worker could claim it past its deadline: it would be lost.
            raise InvalidValue("undoing that has begun is required; send RequireUndo(required=True, begun=True)")
        case LinkArtifact(link):
            check_name("artifact id", link.artifact_id)
            for what in ("name", "type", "summary", "step"):
                check_text(f"artifact {what}", getattr(link, what))
        case RequestCancel(reason=text) | SetAsideCheckpoint(why=text):
            check_text("reason", text)
        case (
            Reserve(account=account, amounts=amounts, step_key=key)
            | Settle(account=account, amounts=amounts, step_key=key)
        ):
            check_name("account", account)
            check_key("step key", key)
            check_amounts(amounts)
        case SetLimits(account=account, limits=limits):
            check_name("account", account)
            check_amounts(limits, unlimited=True)
        case RotateCheckpoints(keep=keep, before=before):
            check_integer("keep", keep, lowest=0)
            check_moment("before", before)
        case SubmitChild(task) if task.replaces or task.if_exists is not IfExists.RETURN:
            raise InvalidValue(
                "a child is submitted once, under its parent's key; it has no if_exists= and no debounce="
            )
        case SubmitChild(task):
            check_payload("user_input", task.user_input)
        case WriteOutcome(result=result, error=error):
            check_payload("result", result)
            check_payload("error", error)
        case _ if not isinstance(op, Operation):
            raise InvalidValue(f"{op!r} is not an operation; wrap it, as a StatePatch in ApplyPatch")


def _check_move(task_id: str, move: Move) -> None:
    check_text("reason", move.reason)
    if move.feedback is not None:
        check_text("feedback", move.feedback)
    if move.result is not None:
        canonical(move.result, name="result")
    if move.error is not None:
        canonical(move.error, name="error")
    if move.deadline is not None and move.to is not TaskState.PENDING:
        raise InvalidValue(
            f"a Move of task {task_id} to {move.to} has a deadline; only a Move to pending sets a new deadline"
        )
    if move.waits:
        _check_waits(task_id, move.waits)
    _check_any_rank(move.available_at)


def _check_waits(task_id: str, waits: Sequence[Wait]) -> None:
    keys = [check_key("wait key", wait.key) for wait in waits]
    if len(set(keys)) < len(keys):
        raise InvalidValue(f"task {task_id} waits twice under one key; give each wait its own")


def check_payload(what: str, value: JsonValue) -> None:
    """Refuse what cannot be stored exactly, before a lock or a transaction is held for it."""
    if value is not None:
        canonical(value, name=what)


def check_submission(tasks: Sequence[NewTask]) -> None:
    """Refuse a submission whose payloads cannot be stored, alone or together."""
    check_submission_size(tasks)
    for task in tasks:
        for what, value in (("user_input", task.user_input), ("result", task.result), ("error", task.error)):
            if value is not None:
                canonical(value, name=what)
        if task.available_at is not None and task.priority:
            _check_rank(task.available_at, task.priority)


def _check_rank(available_at: datetime, priority: int) -> None:
    """Refuse a place in the queue that lies outside of all time."""
    try:
        rank(available_at, priority)
    except OverflowError as error:
        raise InvalidValue(
            f"available_at is {available_at} with priority {priority}, which ranks it outside of the years 1 to 9999; "
            "choose another time, or no priority"
        ) from error


def _check_any_rank(available_at: datetime | None) -> None:
    """Refuse a time that some priority ranks outside of all time: that of the task is not known at the door."""
    if available_at is None:
        return
    try:
        rank(available_at, MAX_PRIORITY)
        rank(available_at, -MAX_PRIORITY)
    except OverflowError as error:
        raise InvalidValue(
            f"available_at is {available_at}, which some priorities rank outside of the years 1 to 9999; choose a time "
            "that is not so far away"
        ) from error


def check_claim(claim: Claim) -> None:
    """Refuse names that no database could look for, and numbers that one of them cannot count to."""
    check_sought("worker id", claim.worker_id)
    check_integer("claim limit", claim.limit, highest=HIGHEST)
    check_key_form(claim.key_form)
    for name in (*claim.queues, *claim.names):
        check_sought("a queue or a name to claim", name)


def check_key_form(key_form: int) -> None:
    """Refuse an unknown form of keys."""
    check_integer("the form of keys", key_form, lowest=1, highest=HIGHEST)


def check_content(content: object) -> None:
    """Refuse what is neither bytes nor a stream of them."""
    if not isinstance(content, bytes | AsyncIterable):
        raise InvalidValue(f"the content of an artifact is {describe(content)}; give bytes, or a stream of them")


def check_evidence(evidence: Evidence) -> None:
    """Refuse evidence that could not be stored, or found."""
    check_name("task id", evidence.task_id)
    check_name("effect id", evidence.effect_id)
    check_integer("fence", evidence.fence, lowest=0)
    check_moment("at", evidence.at)
    if not isinstance(evidence.body, bytes):
        raise InvalidValue(f"the body of evidence is {describe(evidence.body)}; give bytes")


def check_sought(what: str, value: str | None, *, optional: bool = False) -> None:
    """Refuse to look for what no database could hold; a text that names nothing is simply not found.

    PostgreSQL refuses a NUL where SQLite finds nothing: without this check each store would answer in its own way.
    """
    if isinstance(value, str):
        if not value.isascii() or "\0" in value:  # an id is plain ASCII, and needs no closer look
            check_text(what, value)
    elif value is not None or not optional:
        check_string(what, value)


def check_string(what: str, value: str | None) -> None:
    """Refuse what is not a text; any text will do."""
    if not isinstance(value, str):
        raise InvalidValue(f"{what} is {value!r}; it has to be a string")


def check_all_sought(what: str, values: Collection[str]) -> None:
    """Refuse one string where several are meant, and each that no database could hold."""
    if isinstance(values, str) or not isinstance(values, Collection):
        raise InvalidValue(f"{what} is {values!r}; give a list of them")
    for value in values:
        check_sought(what, value)


def check_states(states: Collection[Enum] | None, members: type[Enum]) -> None:
    """Refuse an unknown state: a store might take it for one without tasks."""
    for state in states or ():
        if not isinstance(state, members):
            check_member("a state", state, members)


def check_filter(where: TaskFilter | None) -> None:
    """Refuse a question about tasks that no database could ask."""
    if where is None:
        return
    check_states(where.states, TaskState)
    for what in ("queue", "name", "agent_id", "parent_id", "owner", "key", "text"):
        check_sought(what, getattr(where, what), optional=True)


def check_age(older_than: timedelta) -> None:
    """Refuse an age that lies in the future: it would delete what was made just now."""
    if not isinstance(older_than, timedelta) or older_than < timedelta(0):
        raise InvalidValue(f"older_than is {older_than!r}; give a timedelta of zero or more")


def check_timeout(timeout: float) -> None:
    """Refuse a time limit that has passed before it begins."""
    if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not timeout > 0:
        raise InvalidValue(f"timeout is {timeout!r}; give seconds, more than 0")


def check_range(offset: int, length: int | None) -> None:
    """Refuse a range that begins or ends before it begins."""
    check_integer("offset", offset, lowest=0)
    if length is not None:
        check_integer("length", length, lowest=0)


def check_event_key(key: str | None) -> None:
    """Refuse an event key that no index could hold."""
    if key is not None:
        check_name("event key", key)


def check_limit(limit: int) -> None:
    """Refuse a page size that makes no sense."""
    if type(limit) is not int:
        check_integer("limit", limit)
    if not 1 <= limit <= 10_000:  # noqa: PLR2004 - said in the message
        raise InvalidValue(f"limit is {limit}; choose 1 to 10000")
