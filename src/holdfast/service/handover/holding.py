"""What the holder of a lease may do. Whatever it does renews the lease; once the lease is over, nothing is written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from holdfast.engine.cancelling import cancel_children
from holdfast.engine.holdfast import Holdfast
from holdfast.engine.stating import with_times
from holdfast.engine.waiting import event_channel
from holdfast.model.agent_state import AgentState
from holdfast.model.approval import Approval
from holdfast.model.canonical import canonical
from holdfast.model.checks import check_name, check_text
from holdfast.model.codec import decode, encode
from holdfast.model.commit import Commit, Held
from holdfast.model.errors import Conflict, DeadlineExceeded, InvalidValue, LeaseLost, WorkerDead
from holdfast.model.failure import Failure
from holdfast.model.operations import ApplyPatch, Emit, Move, Operation, Release, WriteStep
from holdfast.model.patch import StatePatch, apply
from holdfast.model.queries import Loaded
from holdfast.model.task import HANDOVER, JsonValue, Task
from holdfast.model.transitions import TaskState
from holdfast.service.handover.asking import asking
from holdfast.service.handover.facts import without_known_facts
from holdfast.service.handover.lease import Lease
from holdfast.service.handover.lines import line, own_key, recorded
from holdfast.service.handover.offering import found

_MOST_TRIES = 20
"""Calls under one lease at the same time that can get in each other's way; agents make them one after the other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """How a task stands after something was written."""

    task: Task
    state: AgentState | None
    replayed: bool = False
    """The step had been recorded before; nothing was written."""


class Holding:
    """A task in the hands of an agent outside."""

    def __init__(self, hold: Holdfast, lease: Lease, *, by: str) -> None:
        """``by`` is who calls; the lease says what it holds."""
        self._hold = hold
        self._store = hold.store
        self._lease = lease
        self._by = by

    async def renew(self) -> Task:
        """Say that the agent is alive; return the task it holds. Raises LeaseLost."""
        lease = self._lease
        try:
            await self._store.heartbeat(lease.worker_id)
        except WorkerDead:
            raise await self._lost() from None
        task = await found(self._store, lease.task_id)
        if task.owner != lease.worker_id or task.fence != lease.fence:
            raise await self._lost()
        if task.deadline is not None and task.deadline <= await self._store.now():
            raise await self._too_late(task)
        return task

    async def complete_step(self, key: str, output: JsonValue, patch: StatePatch) -> Standing:
        """Record that a step is done, once: the same key again is answered with how things stand.

        Raises Conflict where the key was recorded with another output: one of the two is not what happened.
        """
        check_name("the step's key", key)
        body = encode(output)
        replayed = False

        def write(loaded: Loaded, at: datetime) -> tuple[Operation, ...]:
            nonlocal replayed
            before = recorded(loaded.task, loaded.steps, key)
            if before is not None:
                if before.output != body:
                    known = decode(before.output or b"null")
                    raise Conflict(
                        f"step {key!r} of task {loaded.task.id} is recorded already, with the output {known!r:.200}; "
                        "choose another key for another step. Nothing was changed"
                    )
                replayed = True
                return ()
            done = WriteStep(line(loaded.task, loaded.steps, key, at=at, output=output))
            return (done, *self._patching(patch, at, step_key=own_key(key)))

        patch = await self._fitting(patch)
        await self._commit(write)
        return await self._standing(replayed=replayed)

    async def report(self, message: str, percent: float | None) -> Standing:
        """Tell whoever watches how far it is."""
        check_text("the message", message)
        told: dict[str, JsonValue] = {"message": message, "by": self._by}
        if percent is not None:
            told["percent"] = percent
        await self._commit(lambda loaded, _: (Emit(channel=event_channel(loaded.task.id), payload=told),))
        return await self._standing()

    async def patch(self, patch: StatePatch) -> None:
        """Change the state, whatever version it has come to."""
        fitting = await self._fitting(patch)
        await self._commit(lambda _, at: self._patching(fitting, at))

    async def change(self, *operations: Operation) -> None:
        """Apply other operations under the lease."""
        await self._commit(lambda _loaded, _at: operations)

    async def ask(self, question: str) -> Approval:
        """Ask a person. The task is handed back, and claimable again once somebody has answered."""
        asked: list[Approval] = []

        def write(loaded: Loaded, at: datetime) -> tuple[Operation, ...]:
            approval, operations = asking(loaded, question, by=self._by, at=at)
            asked[:] = [approval]
            return operations

        await self._commit(write)
        await self._store.retire(self._lease.worker_id)
        return asked[0]

    async def finish(self, result: JsonValue) -> Standing:
        """The work is done. A task that has a definition goes to its own verifier, whatever the agent thinks of it."""
        canonical(result, name="result")
        await self._end(
            lambda loaded: Move(
                to=TaskState.COMPLETED if loaded.task.name == HANDOVER else TaskState.REVIEW,
                reason=f"work done, by {self._by}",
                result=result,
            )
        )
        return await self._standing()

    async def give_up(self, why: str) -> Standing:
        """The work cannot be done. Whether that is so for a task with a definition is for its own worker to say."""
        if not why.strip():
            raise InvalidValue("say why it cannot be done")
        failure = Failure(
            type_name="GivenUp", message=why[:4000], type_names=("GivenUp",), reason=f"{self._by} gave up"
        )

        def move(loaded: Loaded) -> Move:
            if loaded.task.name != HANDOVER:
                raise Conflict(
                    f"task {loaded.task.id} ({loaded.task.name}) has a definition, whose worker decides whether it has "
                    "failed; hand it back with release_task, and say why in the note"
                )
            return Move(to=TaskState.FAILED, reason=f"{self._by} gave up: {why}"[:500], error=failure.to_json())

        await self._end(move)
        return await self._standing()

    async def release(self, note: str, patch: StatePatch) -> Standing:
        """Hand the task back for somebody else to go on with; a task that is to be cancelled ends here."""
        check_text("the note", note)
        patch = await self._fitting(patch)
        task = await self.renew()
        if task.cancel_requested is not None:
            move = Move(to=TaskState.CANCELLED, reason=task.cancel_requested)
            await cancel_children(self._store, task.id, move.reason, actor=self._by)
        else:
            reason = f"handed back by {self._by}" + (f": {note}" if note else "")
            move = Move(to=TaskState.PENDING, reason=reason[:500])
        await self._end(lambda _: move, patch)
        return await self._standing()

    # How it is written

    async def _end(self, move: Callable[[Loaded], Move], patch: StatePatch = StatePatch()) -> None:  # noqa: B008 - frozen
        await self._commit(lambda loaded, at: (*self._patching(patch, at), move(loaded), Release()))
        await self._store.retire(self._lease.worker_id)

    def _patching(self, patch: StatePatch, at: datetime, *, step_key: str | None = None) -> tuple[ApplyPatch, ...]:
        if patch.is_empty:
            return ()
        body = canonical(with_times(patch, at).to_json())
        return (ApplyPatch(body=body, author=self._by, step_key=step_key),)

    async def _fitting(self, patch: StatePatch) -> StatePatch:
        """Return what a patch adds to the state. Raises where it contradicts it, or where no agent keeps one."""
        if patch.is_empty:
            return patch
        state = await self._hold.state(self._lease.task_id)
        apply(state, patch)
        return without_known_facts(patch, state)

    async def _commit(self, write: Callable[[Loaded, datetime], Sequence[Operation]]) -> None:
        """Write under the lease what ``write`` makes of the task as it stands.

        A Commit is numbered, and a number that is taken is answered as a repetition. Nothing is repeated here, so then
        another call under the same lease was faster: look again, and write behind it.
        """
        for _ in range(_MOST_TRIES):
            await self.renew()
            loaded = await self._store.load(self._lease.task_id)
            operations = tuple(write(loaded, await self._store.now()))
            if not operations:
                return
            guard = Held(self._lease.worker_id, self._lease.fence, loaded.task.sequence + 1)
            sent = Commit(task_id=loaded.task.id, guard=guard, operations=operations, actor=self._by)
            [verdict] = await self._store.commit([sent])
            if not verdict.applied:
                raise verdict.error()
            if not verdict.duplicate:
                return
        raise Conflict(f"too many calls at once under one lease on task {self._lease.task_id}; make them one by one")

    async def _standing(self, *, replayed: bool = False) -> Standing:
        task = await found(self._store, self._lease.task_id)
        state = await self._hold.state(task.id) if task.version else None
        return Standing(task=task, state=state, replayed=replayed)

    async def _lost(self) -> LeaseLost:
        task = await found(self._store, self._lease.task_id)
        now = f"task is {task.state}" + (", and somebody else has it" if task.owner is not None else "")
        return LeaseLost(task.id, self._lease.fence, now)

    async def _too_late(self, task: Task) -> DeadlineExceeded:
        """End a task whose deadline has passed in somebody's hands: no sweep touches one that is held."""
        error = DeadlineExceeded(f"the deadline of task {task.id} has passed; it has failed, stop working on it")
        failure = replace(Failure.of(error), traceback="")
        guard = Held(self._lease.worker_id, self._lease.fence, task.sequence + 1)
        move = Move(to=TaskState.FAILED, reason="deadline passed", error=failure.to_json())
        await self._store.commit([Commit(task_id=task.id, guard=guard, operations=(move,), actor=self._by)])
        return error
