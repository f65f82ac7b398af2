"""What agents share about a task: its plan, facts and artifacts, with a lease or without one.

An agent may not change everything. Goal, budget and constraints are the operator's: an agent that could change the
constraints would need no approval. Facts carry the caller's name, so that none of them looks like the word of a person.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

from holdfast.engine.api.holdfast import Holdfast
from holdfast.engine.manage.artifacts import MAX_BYTES
from holdfast.engine.manage.state import TaskMoved
from holdfast.engine.manage.state import patch_state as change_state
from holdfast.engine.outside.facts import fact_of_agent, without_known_facts
from holdfast.engine.outside.lease_holder import LeaseHolder
from holdfast.engine.outside.lease_token import LeaseToken
from holdfast.engine.outside.offer import begun, found
from holdfast.model.agent_state import AgentState, ArtifactRef
from holdfast.model.canonical import canonical
from holdfast.model.commit import Commit, Expect
from holdfast.model.errors import Conflict, InvalidValue, StateConflict
from holdfast.model.operations import ApplyPatch, LinkArtifact, Operation
from holdfast.model.patch import StatePatch, apply
from holdfast.model.records import ArtifactLink
from holdfast.model.state_size import TEXT_BYTES, check_growth, check_patch_size, check_size
from holdfast.model.task import Task
from holdfast.model.transitions import OPEN

ALLOWED = frozenset(
    {
        "append_facts",
        "replace_plan",
        "add_questions",
        "resolve_questions",
        "set_flags",
        "clear_flags",
        "current_step",
        "complete_steps",
    }
)
"""What a patch from an agent outside may hold."""

_MOST_ASKED = 10_000
_MOST_TRIES = 20
"""Tries of an addition. Each failed try means that another writer has written something."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedState:
    """A task, and its state as it is now."""

    task: Task
    state: AgentState


def checked_patch(given: dict[str, object], by: str) -> StatePatch:
    """Read a patch of an agent outside, with its facts in its name. Raises InvalidValue."""
    if refused := sorted(set(given) - ALLOWED):
        raise InvalidValue(
            f"a patch cannot hold {', '.join(refused)}; it may hold {', '.join(sorted(ALLOWED))}. Goal, budget and "
            "constraints are the operator's, and artifacts come with add_artifact"
        )
    facts = given.get("append_facts") or []
    if not isinstance(facts, list) or not all(isinstance(fact, dict) for fact in facts):
        raise InvalidValue('append_facts is a list of objects like {"key": "disk", "value": "92%"}')
    named = [{"source": "", **fact} for fact in facts]
    patch = StatePatch.from_json({**given, "append_facts": named})
    check_patch_size(patch)
    if patch.is_empty:
        raise InvalidValue(f"the patch changes nothing; name one of {', '.join(sorted(ALLOWED))}")
    return replace(patch, append_facts=tuple(fact_of_agent(fact, by) for fact in patch.append_facts))


async def patch_state(
    hold: Holdfast, task_id: str, patch: StatePatch, *, version: int, by: str, reason: str
) -> SharedState:
    """Change the state if it is still at ``version``. Raises StateConflict, which carries the newer one.

    Where it closes questions, check and change are one compare-and-set on the whole task: when a person is asked a
    question that is open already, the state does not change, but the task does.
    """
    await begun(hold.store, task_id, by=by)
    for _ in range(_MOST_TRIES):
        task = await found(hold.store, task_id)
        _check_open(task)
        await _check_answers(hold, task, patch)
        change = partial(change_state, hold.services, task_id, patch, version=version, by=by, reason=reason)
        try:
            state = await change(revision=task.revision if patch.resolve_questions else None)
        except TaskMoved:
            continue
        return SharedState(task=await found(hold.store, task_id), state=state)
    raise Conflict(f"task {task_id} changes too fast to close a question of it; nothing was changed, try again")


async def append(hold: Holdfast, task_id: str, patch: StatePatch, *, by: str, lease: LeaseToken | None) -> SharedState:
    """Add to the state, whatever its version is: an addition is in conflict with no other change."""
    _check_open(await begun(hold.store, task_id, by=by))
    if lease is not None:
        await _holding(hold, task_id, lease, by).patch(patch)
    else:
        await _patch_until_stored(hold, task_id, patch, by)
    return SharedState(task=await found(hold.store, task_id), state=await hold.state(task_id))


async def add_artifact(
    hold: Holdfast,
    task_id: str,
    content: bytes,
    *,
    name: str,
    media_type: str | None,
    summary: str,
    by: str,
    lease: LeaseToken | None,
    max_bytes: int = MAX_BYTES,
) -> ArtifactRef:
    """Store bytes, link them to the task, and mention them in its state."""
    check_size("the summary", summary, TEXT_BYTES, "shorten it")
    task = await begun(hold.store, task_id, by=by)
    _check_open(task)
    if lease is not None:
        await _holding(hold, task_id, lease, by).renew()
    state = await hold.state(task_id) if task.version else None
    current = None if state is None else state.current_step
    stored = await hold.artifacts.write(content, media_type=media_type, name=name, max_bytes=max_bytes)
    link = ArtifactLink(
        artifact_id=stored.id, name=name, type=stored.media_type, summary=summary, bytes=stored.size, step=current
    )
    mention = ArtifactRef(
        artifact_id=stored.id, type=stored.media_type, summary=summary, bytes=stored.size, step=current
    )
    operations: tuple[Operation, ...] = (LinkArtifact(link),)
    if state is not None:  # otherwise the task has no agent state, and the link is enough
        mentioned = StatePatch(add_artifacts=(mention,))
        check_growth(state, apply(state, mentioned))
        body = canonical(mentioned.to_json())
        operations = (*operations, ApplyPatch(body=body, author=by))
    await _write(hold, task_id, operations, by, lease)
    return mention


async def _write(
    hold: Holdfast, task_id: str, operations: tuple[Operation, ...], by: str, lease: LeaseToken | None
) -> None:
    """Apply operations that may be applied twice: under the lease, or without one while the task is open."""
    if lease is not None:
        await _holding(hold, task_id, lease, by).change(*operations)
        return
    sent = Commit(task_id=task_id, guard=Expect(states=OPEN), operations=operations, actor=by)
    [verdict] = await hold.store.commit([sent])
    verdict.require()


def _check_open(task: Task) -> None:
    if task.state not in OPEN:
        raise Conflict(
            f"task {task.id} is {task.state}: its state is final, nothing was changed; for more work submit a new task"
        )


async def _check_answers(hold: Holdfast, task: Task, patch: StatePatch) -> None:
    """Refuse to close a question that a person is still asked: only their answer does."""
    if not patch.resolve_questions:
        return
    asked = {approval.question for approval in await hold.approvals(task.id, limit=_MOST_ASKED)}
    if closed := [question for question in patch.resolve_questions if question in asked]:
        raise Conflict(f"a person is still asked {closed[0]!r}, and only the answer closes it; nothing was changed")


def _holding(hold: Holdfast, task_id: str, lease: LeaseToken, by: str) -> LeaseHolder:
    if lease.task_id != task_id:
        raise InvalidValue(f"the lease is on task {lease.task_id}, not on {task_id}")
    return LeaseHolder(hold, lease, by=by)


async def _patch_until_stored(hold: Holdfast, task_id: str, patch: StatePatch, by: str) -> None:
    for _ in range(_MOST_TRIES):
        task = await found(hold.store, task_id)
        new = without_known_facts(patch, await hold.state(task_id, at=task.version)) if task.version else patch
        if new.is_empty:
            return
        try:
            await hold.patch_state(task_id, new, version=task.version, by=by, reason="")
        except StateConflict:
            continue
        return
    raise Conflict(f"the state of task {task_id} changes too fast to add to it; try again")
