"""Children of a task: submitted once under their key, waited for, and begun again together with their parent.

A child belongs to its parent and to its key. In a new round of the parent it is not submitted again: its effects on the
world would happen twice. Instead it begins a new round, in which its completed ``once`` effects replay. If a try, an
attempt or a ``resume`` of the parent repeats the wait for a failed child, that child continues in its present round.
Both are operations of a Commit under the parent's fence, so that a parent that lost its lease begins nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from datetime import timedelta
from functools import partial
from typing import Any, Protocol

from holdfast.engine.api.definition import Definitions
from holdfast.engine.api.new_task import is_same_input
from holdfast.engine.attempt.journal import AGAIN, CHILD, OTHER_INPUT, RESERVED, RESULT, ROUND_SIZE, ended_by, reopened
from holdfast.engine.attempt.journal_line import journal_line
from holdfast.engine.attempt.scope import own_name
from holdfast.engine.attempt.step_owner import StepOwner
from holdfast.engine.attempt.stop_reasons import Unwind
from holdfast.engine.manage import cancel
from holdfast.engine.manage.family import Family
from holdfast.engine.runtime import log
from holdfast.engine.runtime.store_retry import call_store
from holdfast.engine.steps.quiescence import bare_wait
from holdfast.engine.steps.waits import pause_until
from holdfast.model.budget import Meter
from holdfast.model.canonical import canonical, parse
from holdfast.model.codec import decode, encode
from holdfast.model.errors import Conflict, NotFound, QueueFull, TaskCancelled, TaskFailed
from holdfast.model.failure import Failure
from holdfast.model.operations import SAME_INPUT, ReopenChild, SetLimits, SubmitChild, UntilChildren, WriteStep
from holdfast.model.payload import from_json
from holdfast.model.queries import TaskFilter
from holdfast.model.step import Step, StepState
from holdfast.model.task import JsonValue, NewTask, Task
from holdfast.model.transitions import OPEN, TaskState
from holdfast.model.walltime import wall_time_ms
from holdfast.store.base import StateStore

ROOM_AFTER, ROOM_AFTER_AT_MOST = 1.0, 60.0
"""Seconds until a child whose queue was full is submitted again. They double each time."""

BY_PARENT = "stopped by its parent"
"""The beginning of the reason of a cancel that a parent, not a person, asked for."""

CALLER_OUT_OF_TIME = "the wall time of its caller is spent"
"""The beginning of the reason with which a sub-agent fails when the time of a task above it is spent."""

_ENDED_BADLY = frozenset({TaskState.FAILED, TaskState.CANCELLED})


class Parent(StepOwner, Protocol):
    """An attempt that submits children."""

    earlier_children: asyncio.Future[EarlierChildren] | None
    """The children of earlier rounds; read when a later round submits its first child."""


async def submit_child(attempt: Parent, key: str, child: NewTask, *, has_own_key: bool = True) -> str:
    """Submit a child once; return its id. In a new round, begin the earlier child of this key again.

    If the call has no explicit key, its generated key means little: then an earlier child is found by its input.
    """
    recorded = attempt.find(key, CHILD)
    if recorded is not None and recorded.state is StepState.COMPLETED:
        await attempt.take_turn(recorded)
        return _id_in(recorded)
    await attempt.begin_work()
    earlier = None
    if attempt.task.round > 1:
        earlier = await _earlier_child(attempt, key, recorded, child, has_own_key=has_own_key)
    if earlier is not None:
        return await _begin_round(attempt, key, recorded, earlier, child)
    return await _submit(attempt, key, recorded, child)


async def _submit(attempt: Parent, key: str, recorded: Step | None, child: NewTask) -> str:
    """Submit a new child. While its queue is full, wait: as any wait of the task, without a slot, and in the store."""
    if child.limits:
        await attempt.services.permits.limits_of(child.limits)  # says what to do about a limit that was never set
    while True:
        if recorded is not None and recorded.retry_at is not None:
            await pause_until(attempt, recorded, recorded.retry_at)
            await attempt.begin_work()
        _check_not_leaving(attempt)
        done = journal_line(attempt, key, CHILD, recorded, state=StepState.COMPLETED, output=encode(child.id))
        try:
            await attempt.outbox.commit(SubmitChild(child), WriteStep(done))
        except QueueFull as full:
            recorded = _until_there_is_room(attempt, key, recorded)
            log.queue_is_full(attempt.task, full, again_at=recorded.retry_at)
            continue
        break
    attempt.services.note_due(child.available_at)
    return child.id


def _until_there_is_room(attempt: Parent, key: str, recorded: Step | None) -> Step:
    """Return the line of a submission that waits. Each wait is twice as long as the one before, up to a minute."""
    tried = 0 if recorded is None else recorded.attempts
    seconds = min(ROOM_AFTER * 2.0 ** min(tried, 16), ROOM_AFTER_AT_MOST)
    at = attempt.services.time.now() + timedelta(seconds=seconds)
    return journal_line(attempt, key, CHILD, recorded, state=StepState.PENDING, retry_at=at, attempts=tried + 1)


@bare_wait
async def child_result(attempt: StepOwner, key: str, child: NewTask, returns: object) -> Any:  # noqa: ANN401
    """Wait for the end of a child and return its result. Raises TaskFailed or TaskCancelled."""
    recorded = attempt.find(key, RESULT)
    if recorded is not None and recorded.state is StepState.COMPLETED:
        await attempt.take_turn(recorded)
        return decode(recorded.output or b"", returns, name=f"child {key!r}")
    if recorded is not None and recorded.state is StepState.FAILED:
        await attempt.discovery.let_branches_pass()
        raise _ended_badly(child.id, parse(recorded.error or b"null"), key)
    waiting = journal_line(attempt, key, RESULT, recorded, state=StepState.PENDING)
    is_again = recorded is not None and recorded.digest == AGAIN
    if is_again or await _failed_before(attempt, child):
        await attempt.check()
        await _go_on(attempt, waiting, child)
    task = await _end_of(attempt, waiting, child.id)
    while await _ended_with_parent(attempt, task, child):
        await _go_on(attempt, waiting, child)
        task = await _end_of(attempt, waiting, child.id)
    if task.state is not TaskState.COMPLETED:
        ended = {"cancelled": task.cancel_requested or "cancelled"} if task.state is TaskState.CANCELLED else task.error
        failed = journal_line(attempt, key, RESULT, waiting, state=StepState.FAILED, error=canonical(ended))
        await attempt.outbox.commit(WriteStep(failed))
        raise _ended_badly(child.id, ended, key)
    value = from_json(task.result, returns, name=f"result of {child.id}")
    output = encode(value, as_type=returns)
    done = journal_line(attempt, key, RESULT, waiting, state=StepState.COMPLETED, output=output)
    await attempt.outbox.commit(WriteStep(done))
    return value


async def _end_of(attempt: StepOwner, waiting: Step, child_id: str) -> Task:
    """Wait, without a worker if possible, until the child has ended."""

    async def look() -> Task | None:
        task = await _read(attempt, child_id)
        return task if task.state.is_terminal else None

    waits = (UntilChildren(key=waiting.key, children=(child_id,)),)
    task = await attempt.residence.waiting_branches().park(waits, waiting, (f"task:{child_id}",), look)
    _check_not_leaving(attempt)
    return task


def _check_not_leaving(attempt: StepOwner) -> None:
    """Stop a branch whose task is ending: the outcome is being recorded, and the children are being stopped."""
    if attempt.leaving:
        raise Unwind


# Sub-agents stop with their caller


def calls_sub_agents(task: Task) -> bool:
    """Return whether the children of a task are sub-agents: agents have an AgentState, and no other children."""
    return task.version > 0


async def has_sub_agents_at_work(store: StateStore, task: Task) -> bool:
    """Return whether a task belongs to an agent and has sub-agents that have not ended."""
    if not calls_sub_agents(task):
        return False
    return bool((await store.find(TaskFilter(parent_id=task.id, states=OPEN), limit=1)).items)


async def stop_sub_agents(store: StateStore, task: Task, why: str, *, by: str) -> None:
    """Cancel the open sub-agents of an agent's task that has failed, or is about to: no caller waits for them."""
    if calls_sub_agents(task):
        await cancel.cancel_children(store, task.id, f"{BY_PARENT}, which failed: {why}", by=by)


async def stop_orphans(store: StateStore, failed: Iterable[str], *, by: str) -> None:
    """Cancel the sub-agents of tasks that a sweep has failed: those tasks had no attempt that could do it."""
    for task_id in failed:
        task = await store.get(task_id)
        if task is not None and task.state is TaskState.FAILED:
            await stop_sub_agents(store, task, "no attempt could continue", by=by)


async def check_caller(attempt: StepOwner) -> None:
    """Stop this attempt if its task is a sub-agent whose caller has failed or was cancelled.

    The caller stops its sub-agents itself. This check covers the time until that request arrives, and a caller whose
    process died before it sent the request.
    """
    parent_id, store = attempt.task.parent_id, attempt.services.store
    parent = None if parent_id is None else await call_store(partial(store.get, parent_id))
    if parent is None or parent.state not in _ENDED_BADLY or not calls_sub_agents(parent):
        return
    reason = f"{BY_PARENT} {parent.id}, which is {parent.state}"
    await call_store(partial(cancel.cancel, store, attempt.task.id, reason, by=attempt.lease.worker_id))
    await attempt.outbox.commit()  # the store's answer contains the cancel request
    await attempt.check()


# Begun again in its round


async def _go_on(attempt: StepOwner, waiting: Step, child: NewTask) -> None:
    """Continue a failed child where it stopped, in the same Commit that clears the mark on the waiting line."""
    while True:
        task = await _read(attempt, child.id)
        again: tuple[ReopenChild | SetLimits, ...] = ()
        is_ours = task.parent_id == attempt.task.id  # children in the shared past of a fork belong to its origin
        if is_ours and (task.state is TaskState.FAILED or await _was_cancelled_by_parent(attempt, task)):
            again = (await _revived(attempt, child), *await _more_time(attempt, task, child))
        try:
            await attempt.outbox.commit(*again, WriteStep(waiting))
        except Conflict:
            continue  # a person, or its own worker, has changed its state meanwhile
        return


async def _failed_before(attempt: StepOwner, child: NewTask) -> bool:
    """Whether the child had already failed when this task was last restarted: then the child restarts as well."""
    begun = attempt.journal.begun_again_at
    if begun is None and not calls_sub_agents(attempt.task):
        return False
    task = await _read(attempt, child.id)
    if task.state is TaskState.FAILED and begun is not None and task.finished_at is not None:
        return task.finished_at <= begun or await _ended_with_parent(attempt, task, child)
    return await _ended_with_parent(attempt, task, child)


async def _ended_with_parent(attempt: StepOwner, task: Task, child: NewTask) -> bool:
    """Whether a child ended only because its parent did. The parent continues now, so the child continues as well.

    That is so if the parent stopped it, if it failed at a deadline that the parent had before its restart, or if it
    failed because the wall time of the parent was spent and the parent has got more since.
    """
    if task.parent_id != attempt.task.id:
        return False
    if task.state is not TaskState.FAILED:
        return await _was_cancelled_by_parent(attempt, task)
    history = await call_store(lambda: attempt.services.store.history(task.id))
    if history[-1].reason.startswith(CALLER_OUT_OF_TIME) and attempt.time_limit is not None:
        await attempt.check()  # if the parent's time is still spent, this attempt ends here
        return True
    begun = attempt.journal.begun_again_at
    if begun is None or task.deadline is None or child.deadline is None:
        return False
    return task.deadline <= begun and task.deadline < child.deadline


async def _revived(attempt: StepOwner, child: NewTask) -> ReopenChild:
    loaded = await call_store(lambda: attempt.services.store.load(child.id))
    journal = {step.key: step for step in loaded.steps if step.round == loaded.task.round}
    failed = ended_by(Failure.from_json(loaded.task.error).steps, journal.get)
    return ReopenChild(
        child_id=child.id,
        revision=loaded.task.revision,
        reason=f"continues with its parent {attempt.task.id}",
        deadline=child.deadline,
        lines=tuple(map(reopened, failed)),
    )


async def _more_time(attempt: StepOwner, task: Task, child: NewTask) -> tuple[SetLimits, ...]:
    """Return new limits for a child that ended only because its parent did: a share of the parent's present time.

    The limit never exceeds that of the child's own agent: more time for the parent does not raise it.
    """
    share, name = child.budget.get(Meter.WALL_TIME_MS), str(Meter.WALL_TIME_MS)
    if share is None or not await _ended_for_its_parent(attempt, task):
        return ()
    definition = attempt.services.definitions.get(task.name)
    own = None if definition is None else definition.budget_limits.get(name)
    accounts = await call_store(lambda: attempt.services.store.accounts(task.id))
    before = next((account.limit for account in accounts if account.meter == name), None)
    limit = await _clock_of(attempt, task) + share
    limit = limit if own is None else min(limit, own)
    return () if before is None or limit <= before else (SetLimits(account=task.id, limits={name: limit}),)


async def _ended_for_its_parent(attempt: StepOwner, task: Task) -> bool:
    if task.state is not TaskState.FAILED:
        return True  # cancelled by its parent: otherwise it would not begin again
    history = await call_store(lambda: attempt.services.store.history(task.id))
    return history[-1].reason.startswith(CALLER_OUT_OF_TIME)


async def _clock_of(attempt: StepOwner, task: Task) -> int:
    """Return the wall time of a child, from its history: the booked value may be old."""
    life = await call_store(Family(attempt.services.store, task.id).read)
    return wall_time_ms(life, attempt.services.time.now())


async def _was_cancelled_by_parent(attempt: StepOwner, task: Task) -> bool:
    """Return whether a child was cancelled by its parent: a person's cancel is final."""
    if task.state is not TaskState.CANCELLED:
        return False
    history = await call_store(lambda: attempt.services.store.history(task.id))
    return history[-1].reason.startswith(BY_PARENT)


# Begun again in a new round


async def _earlier_child(
    attempt: Parent, key: str, recorded: Step | None, child: NewTask, *, has_own_key: bool
) -> Task | None:
    """Return the child that an earlier round submitted for this call."""
    if attempt.earlier_children is None:
        attempt.earlier_children = asyncio.ensure_future(EarlierChildren.read(attempt))
    earlier = await asyncio.shield(attempt.earlier_children)  # read once for all branches
    if recorded is not None and recorded.output is not None:
        chosen = _id_in(recorded)  # an earlier attempt chose this child, and then waited until it was stopped
    else:
        lines = attempt.journal.of_kind(CHILD)
        taken = {_id_in(step) for step in lines if step.output is not None}
        choose = earlier.with_key if has_own_key else earlier.equal_or_next
        chosen = choose(attempt.services.definitions, key, child, taken)
    return earlier.tasks.get(chosen)


class EarlierChildren:
    """The children that earlier rounds of a task submitted."""

    __slots__ = ("_by_key", "_continued", "tasks")

    def __init__(self, by_key: dict[str, list[str]], tasks: dict[str, Task]) -> None:
        """``by_key`` has their ids by the key of the submit, the newest last; ``tasks`` is in the journal's order."""
        self._by_key = by_key
        self.tasks = tasks
        self._continued: dict[str, str] = {}

    @classmethod
    async def read(cls, attempt: StepOwner) -> EarlierChildren:
        """Read them from the journal; in a fork, that includes children of its origin."""
        store, own = attempt.services.store, attempt.task
        by_key: dict[str, list[str]] = {}
        for step in await call_store(lambda: store.steps(own.id)):
            if step.kind == CHILD and step.round < own.round and step.state is StepState.COMPLETED:
                by_key.setdefault(step.key, []).append(_id_in(step))
        tasks: dict[str, Task] = {}
        for child_id in dict.fromkeys(one for ids in by_key.values() for one in ids):
            task = await call_store(partial(store.get, child_id))
            if task is not None:
                tasks[child_id] = task
        return cls(by_key, tasks)

    def with_key(self, definitions: Definitions, key: str, child: NewTask, taken: set[str]) -> str:
        """Return the child that got the same input under this name of the user's, otherwise that of this very key.

        A step without a key is counted: where a round takes another way, the step around this call has another number,
        or the number of another step. The name that the user gave the child stays, and so does its input.
        """
        left, same = self._left(definitions, key, child, taken)
        at_key = [task for task in left if task.id in self._by_key.get(key, ())]
        named = {one for other, ids in self._by_key.items() if own_name(other) == own_name(key) for one in ids}
        return self._choose(
            key,
            [task for task in at_key if task in same][-1:],
            [task for task in same if task.id in named],
            at_key[-1:],
        )

    def equal_or_next(self, definitions: Definitions, key: str, child: NewTask, taken: set[str]) -> str:
        """Return the child with the same input, otherwise the child of this key, otherwise the next unused one.

        Each child is continued once.
        """
        left, same = self._left(definitions, key, child, taken)
        return self._choose(key, same, [task for task in left if task.id in self._by_key.get(key, ())], left)

    def _left(
        self, definitions: Definitions, key: str, child: NewTask, taken: set[str]
    ) -> tuple[list[Task], list[Task]]:
        """Return the children of this name that no other call of this round continues; all, and of the same input."""
        gone = taken | {one for one, by in self._continued.items() if by != key}
        left = [task for task in self.tasks.values() if task.name == child.name and task.id not in gone]
        return left, [task for task in left if is_same_input(definitions, task, child)]

    def _choose(self, key: str, *choices: list[Task]) -> str:
        chosen = next((task.id for choice in choices for task in choice), "")
        if chosen:
            self._continued[chosen] = key  # concurrent calls get different children
        return chosen


async def _begin_round(attempt: Parent, key: str, recorded: Step | None, task: Task, child: NewTask) -> str:
    """Adopt an earlier child that works on the same request; otherwise end it, and begin a new round of it."""
    store, feedback = attempt.services.store, attempt.task.feedback
    task = await _read(attempt, task.id)
    done = journal_line(attempt, key, CHILD, recorded, state=StepState.COMPLETED, output=encode(task.id))
    while True:
        is_same = is_same_input(attempt.services.definitions, task, child)
        if task.parent_id != attempt.task.id:
            # A child of a fork's origin is never changed. Its completed result counts for the same input; otherwise the
            # fork submits a child of its own.
            if not is_same or task.state is not TaskState.COMPLETED:
                return await _submit(attempt, key, recorded, child)
            await attempt.outbox.commit(WriteStep(done))
            return task.id
        if not task.state.is_terminal:
            if is_same and task.cancel_requested is None and feedback in {None, task.feedback}:
                await attempt.outbox.commit(WriteStep(done))
                return task.id
            reason = f"{BY_PARENT}: begun again by its parent {attempt.task.id}"
            await attempt.outbox.commit()  # a parent that lost its lease stops here, and cancels nothing
            by, revision = attempt.lease.worker_id, task.revision
            await call_store(partial(cancel.cancel, store, task.id, reason, by=by, revision=revision))
            if not await _is_being_cancelled(attempt, task.id):
                task = await _read(attempt, task.id)  # its state has changed meanwhile
                continue
            waiting = journal_line(attempt, key, CHILD, done, state=StepState.PENDING, output=done.output)
            task = await _end_of(attempt, waiting, task.id)
        again = ReopenChild(
            child_id=task.id,
            revision=task.revision,
            reason=f"new round of its parent {attempt.task.id}",
            new_round=True,
            feedback=feedback,
            user_input=SAME_INPUT if is_same else child.user_input,
            deadline=child.deadline,
            available_at=child.available_at,
            lines=() if is_same else (_other_input(task),),
        )
        try:
            await attempt.outbox.commit(again, *await _new_share(attempt, task, child), WriteStep(done))
        except Conflict:
            task = await _read(attempt, task.id)
            continue
        attempt.services.note_due(child.available_at)
        return task.id


async def _is_being_cancelled(attempt: StepOwner, child_id: str) -> bool:
    task = await _read(attempt, child_id)
    return task.state.is_terminal or task.cancel_requested is not None


async def _new_share(attempt: StepOwner, task: Task, child: NewTask) -> tuple[SetLimits, ...]:
    """Return new limits for the child: what a new child would get, plus what it has spent."""
    if not child.budget:
        return ()
    accounts = await call_store(lambda: attempt.services.store.accounts(task.id))
    spent = {account.meter: account.spent for account in accounts}
    if Meter.WALL_TIME_MS in child.budget:
        spent[Meter.WALL_TIME_MS] = await _clock_of(attempt, task)
    limits = {meter: limit + spent.get(meter, 0) for meter, limit in child.budget.items()}
    return (SetLimits(account=task.id, limits=limits),)


def _other_input(task: Task) -> Step:
    return Step(
        key=OTHER_INPUT,
        kind="input",
        position=task.round * ROUND_SIZE + 1,
        state=StepState.COMPLETED,
        round=task.round + 1,
        effect_id=OTHER_INPUT,
    )


async def _read(attempt: StepOwner, child_id: str) -> Task:
    task = await call_store(lambda: attempt.services.store.get(child_id))
    if task is None:
        raise NotFound("task", child_id)
    return task


def _id_in(step: Step) -> str:
    return str(decode(step.output or b"", name=f"child {step.key!r}"))


def is_result_of(child: Step, key: str) -> bool:
    """Return whether a key belongs to a wait for the child that a line submitted."""
    own = child.key.replace(f"{RESERVED}{CHILD}:", f"{RESERVED}{RESULT}:", 1)
    return key == own or key.startswith(f"{child.key}:{RESULT}") or key.endswith(f"{RESULT}:{_id_in(child)}")


def _ended_badly(child_id: str, ended: JsonValue, key: str) -> TaskFailed | TaskCancelled:
    if isinstance(ended, dict) and "cancelled" in ended:
        return TaskCancelled(child_id, ended["cancelled"], step=key)
    return TaskFailed(child_id, Failure.from_json(ended), step=key)
