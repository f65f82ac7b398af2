"""Making a fork: a new task that shares another task's past up to a step, and goes its own way from there.

    load -> find the shared past -> submit as waiting -> one Commit: the past, the changes, and into the queue

The effects of the origin are not copied, so the fork neither undoes nor doubts them. The lines of its journal are
copied, so that nothing of the shared past is done again.

The task is submitted as waiting, but waits for nothing. So no worker claims it before the Commit that adds its past. A
crash in between leaves it waiting, where users can see it. The same fork again, under the same key, completes it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from holdfast.engine.api.definition import Bound
from holdfast.engine.api.first_state import Opening, opening_of
from holdfast.engine.api.new_task import new_task
from holdfast.engine.api.start import with_start_of
from holdfast.engine.attempt.journal import ROUND_SIZE
from holdfast.engine.attempt.scope import enclosing
from holdfast.engine.attempt.state_view import FORKED, LOOK
from holdfast.engine.manage.budget import check_cost
from holdfast.engine.manage.fork.ancestry import Ancestry, Origin, Seed
from holdfast.engine.manage.fork.shared_past import SharedPast, shared_by
from holdfast.engine.manage.message import MESSAGE, inbox
from holdfast.engine.manage.past_state import fold
from holdfast.engine.manage.state import first_operations, no_state, with_times
from holdfast.engine.runtime import log
from holdfast.engine.runtime.services import Services
from holdfast.model.canonical import canonical, digest
from holdfast.model.checks import check_name
from holdfast.model.codec import decode, encode
from holdfast.model.commit import Commit, Expect
from holdfast.model.deadline import new_deadline
from holdfast.model.errors import Conflict, InvalidValue, KeyConflict, NotFound
from holdfast.model.operations import ApplyPatch, Emit, InheritKeys, LinkArtifact, Move, Operation, WriteStep
from holdfast.model.patch import StatePatch, apply
from holdfast.model.queries import Loaded
from holdfast.model.state_size import check_growth, check_patch_size
from holdfast.model.step import Step, StepState
from holdfast.model.task import DEFAULT_QUEUE, JsonValue, NewTask, Task
from holdfast.model.transitions import TaskState
from holdfast.store.base import StateStore


@dataclass(frozen=True, slots=True, kw_only=True)
class ForkRequest:
    """What the caller asks for."""

    at: str | int | None
    user_input: Sequence[Any] | Bound[Any] | None
    patch: StatePatch | None
    key: str | None
    deadline: float | timedelta | datetime | None
    by: str

    def __post_init__(self) -> None:
        """Reject values that are not valid."""
        check_name("by", self.by)
        if isinstance(self.at, bool) or not isinstance(self.at, str | int | None):
            raise InvalidValue(f"at is {self.at!r}; give the key of a step, a position of the journal, or None")
        if self.patch is not None and not isinstance(self.patch, StatePatch):
            raise InvalidValue(f'{self.patch!r} is not a StatePatch; write StatePatch(goal="..."), for example')
        given = self.user_input
        if (
            given is not None
            and not isinstance(given, Bound)
            and (isinstance(given, str | bytes) or not isinstance(given, Sequence))
        ):
            raise InvalidValue(f"user_input takes the task's arguments as a tuple, not {given!r}; write ({given!r},)")

    def digest(self, origin_id: str) -> str:
        """Return a digest of the request, without the input: the store compares the input itself."""
        patch = None if self.patch is None else self.patch.to_json()
        return digest(canonical([origin_id, self.at, patch]))


async def fork(services: Services, origin_id: str, request: ForkRequest) -> tuple[str, str]:
    """Make the fork; return its id and its name."""
    store = services.store
    loaded = await store.load(origin_id)
    origin, shared = loaded.task, await shared_by(store, loaded, request.at)
    ancestry = _ancestry_of(services, loaded, shared, request)
    if request.patch is not None and request.patch.budget is not None:
        await check_cost(store, services.definitions, origin_id, request.patch.budget)
    new, opening = _new_task(services, loaded, request), None
    if request.patch is not None and not shared.patches:
        opening = await opening_of(store, services.definitions, replace(origin, user_input=new.user_input))
    operations = [
        *_lines(origin, shared, ancestry),
        *_patches(services, origin, shared, request, opening),
        *((InheritKeys(key_form=origin.key_form),) if origin.key_form else ()),
        *(LinkArtifact(link) for link in await store.artifact_links(origin_id)),
        _into_queue(origin, ancestry.origin, new.deadline),
    ]
    [answer] = await store.submit([new])
    task_id = answer.task_id
    if answer.conflict:
        raise KeyConflict(new.name, new.key or new.id, task_id)
    revision = 1 if answer.created else await _missing_its_past(store, task_id, new, ancestry)
    if revision is not None:
        # Guarded by its revision: a fork that another caller has completed may have started, and be waiting again.
        guard = Expect(states=frozenset({TaskState.WAITING}), revision=revision)
        commit = Commit(
            task_id=task_id, guard=guard, operations=(*operations, *_messages(task_id, shared)), actor=request.by
        )
        [verdict] = await store.commit([commit])
        if not verdict.applied and not _is_asked_for(ancestry, await store.steps(task_id)):
            raise verdict.error()
        log.moved_by_hand(task_id, TaskState.PENDING, f"forked from {origin_id}")
    return task_id, new.name


async def forked_from(store: StateStore, task_id: str) -> Origin | None:
    """Return where a task was forked; None if it is not a fork."""
    if await store.get(task_id) is None:
        raise NotFound("task", task_id)
    ancestry = Ancestry.of(await store.steps(task_id))
    return None if ancestry is None else ancestry.origin


# The new task


def _new_task(services: Services, loaded: Loaded, request: ForkRequest) -> NewTask:
    origin, now = loaded.task, services.time.now()
    user_input: JsonValue = origin.user_input
    if request.user_input is not None:
        # Only to read the input. A queue is given, so that it also works where the task is not defined.
        task, args = (
            (request.user_input, ()) if isinstance(request.user_input, Bound) else (origin.name, request.user_input)
        )
        edited, _ = new_task(services.definitions, task, args, now=now, queue=DEFAULT_QUEUE)
        if edited.name != origin.name:
            raise InvalidValue(f"task {origin.id} is a {origin.name!r}; the arguments were bound to {edited.name!r}")
        # The origin may have been submitted with a first state. Other arguments keep that state.
        user_input = with_start_of(edited.user_input, origin.user_input)
    return NewTask(
        name=origin.name,
        user_input=user_input,
        agent_id=origin.agent_id,
        queue=origin.queue,
        priority=origin.priority,
        key=request.key,
        deadline=_deadline(origin, request, now),
        budget={account.meter: account.limit for account in loaded.accounts if account.limit is not None},
        actor=f"fork of {origin.id}",
        state=TaskState.WAITING,
        round=origin.round,
        labels=origin.labels,
        limits=origin.limits,
    )


def _deadline(origin: Task, request: ForkRequest, now: datetime) -> datetime | None:
    """Return the requested deadline, or one as far away as the origin's was when it was submitted."""
    if request.deadline is not None:
        return new_deadline(f"to be forked from {origin.id}", request.deadline, now)
    if origin.deadline is None or origin.created_at is None:
        return None
    if origin.deadline <= origin.created_at:
        raise Conflict(
            f"the deadline of task {origin.id} had passed when it was submitted, and a fork would fail at once; give "
            f"the fork a deadline in the future: hold.fork({origin.id!r}, deadline=...)"
        )
    return now + (origin.deadline - origin.created_at)


def _into_queue(origin: Task, point: Origin, deadline: datetime | None) -> Move:
    after = "" if point.step is None else f" after {point.step!r}"
    # With the deadline: a later call may complete a fork that a crash left without its past, and its deadline counts.
    return Move(
        to=TaskState.PENDING,
        reason=f"forked from {origin.id}{after}",
        feedback=origin.feedback,
        deadline=deadline,
    )


async def _missing_its_past(store: StateStore, task_id: str, new: NewTask, ancestry: Ancestry) -> int | None:
    """Return the revision of the task that has the key, if its past is still missing; None if it is the same fork.

    Raises KeyConflict if it is another task.
    """
    task = await store.get(task_id)
    steps = await store.steps(task_id)  # read after the task: without steps now, it had none then
    if _is_asked_for(ancestry, steps):
        return None
    if task is None or task.state is not TaskState.WAITING or task.fence > 0 or steps:
        raise KeyConflict(new.name, new.key or new.id, task_id)
    return task.revision


def _is_asked_for(ancestry: Ancestry, steps: Iterable[Step]) -> bool:
    """Return whether this is the journal of the requested fork."""
    found = Ancestry.of(steps)
    return found is not None and found.asked == ancestry.asked


# Its past


def _ancestry_of(services: Services, loaded: Loaded, shared: SharedPast, request: ForkRequest) -> Ancestry:
    task = loaded.task
    last = max(shared.lines, key=lambda step: step.position, default=None)
    outer = [] if last is None else enclosing(last.key, shared.lines)
    point = outer[-1] if outer else last
    own = Ancestry.of(step for step in loaded.steps if step.round == task.round)
    return Ancestry(
        origin=Origin(
            task_id=task.id,
            step=None if point is None else point.key,
            position=_beginning(task) if point is None else point.position,
            version=len(shared.patches),
            at=services.time.now(),
        ),
        asked=request.digest(task.id),
        seeds=_seeds(task, () if own is None else own.seeds, _beginning(task) if last is None else last.position),
        again=tuple(sorted(shared.again)),
    )


def _seeds(task: Task, inherited: Sequence[Seed], end: int) -> tuple[Seed, ...]:
    """Return the seeds of the shared past. If several seeds reach a position, the first one counts."""
    seeds = (*inherited, Seed(task_id=task.id, round=task.round, position=end))
    return tuple(replace(seed, position=min(seed.position, end)) for seed in seeds)


def _beginning(task: Task) -> int:
    """Return the position in front of the first line of the current round."""
    return (task.round - 1) * ROUND_SIZE


def _lines(origin: Task, shared: SharedPast, ancestry: Ancestry) -> list[Operation]:
    versions = [record.version for record in shared.patches]

    def copy(step: Step) -> WriteStep:
        if step.kind == LOOK:  # holds a version of the origin's state, and the patches have other numbers here
            seen = decode(step.output or b"", name=f"state {step.key!r}")
            step = replace(step, output=encode(sum(version <= seen for version in versions)))
        # The effect belongs to the origin. The fork only keeps its id: later rounds see by it that the step was done. A
        # failed step may be tried again as the fork's own step.
        return WriteStep(
            replace(step, fence=0, effect_id=step.effect_id if step.state is StepState.COMPLETED else None)
        )

    return [*map(copy, shared.before), *map(copy, shared.lines), WriteStep(ancestry.line(origin.round))]


def _patches(
    services: Services, origin: Task, shared: SharedPast, request: ForkRequest, opening: Opening | None
) -> list[Operation]:
    operations: list[Operation] = [
        ApplyPatch(
            body=record.body,
            author=record.author,
            reason=record.reason,
            step_key=record.step_key,
            round=record.round,
        )
        for record in shared.patches
    ]
    if request.patch is not None:
        if not shared.patches and opening is None:
            raise no_state(origin.id)
        operations += first_operations(opening, services.time.now())
        patch = with_times(request.patch, services.time.now())
        check_patch_size(patch)
        before = fold(shared.patches) if opening is None else opening.state
        check_growth(before, apply(before, patch))  # a patch that is too large is rejected before anything is stored
        operations.append(ApplyPatch(body=canonical(patch.to_json()), author=request.by, reason=FORKED))
    return operations


def _messages(task_id: str, shared: SharedPast) -> list[Operation]:
    """Return the operations that put as many messages into the fork's inbox as the origin had read of its own.

    The journal records the number of the last message that was read. The next message to the fork has to be the first
    after that number.
    """
    read: dict[int, JsonValue] = {}
    for step in (*shared.before, *shared.lines):
        if step.kind == MESSAGE:
            message = decode(step.output or b"", name=f"message {step.key!r}")
            read[message["number"]] = {"text": message["text"], "by": message["by"]}
    pruned: JsonValue = {"text": "", "by": "nobody"}
    return [
        Emit(channel=inbox(task_id), payload=read.get(number, pruned)) for number in range(1, max(read, default=0) + 1)
    ]
