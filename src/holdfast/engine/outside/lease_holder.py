"""What the holder of a lease may do: complete a step, report, ask, release, finish.

A call whose answer was lost can be made again; it is done once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from holdfast.engine.api.holdfast import Holdfast
from holdfast.engine.attempt.endings import cancelled, handed_back, work_done
from holdfast.engine.attempt.scope import check_part
from holdfast.engine.manage.cancel import cancel_children
from holdfast.engine.outside.lease_token import LeaseToken
from holdfast.engine.outside.lines import own_key, recorded, their_key, write_line, write_note
from holdfast.engine.outside.questions import asking, reason_of
from holdfast.engine.outside.writer import LeaseWriter, Write
from holdfast.engine.steps.waits import event_channel
from holdfast.model.approval import Approval, ApprovalState
from holdfast.model.canonical import canonical
from holdfast.model.checks import check_name, check_text
from holdfast.model.codec import decode, encode
from holdfast.model.errors import Conflict, InvalidValue, LeaseLost
from holdfast.model.failure import Failure
from holdfast.model.ids import new_id
from holdfast.model.operations import Emit, Move, Operation, Release
from holdfast.model.patch import StatePatch
from holdfast.model.payload import to_json
from holdfast.model.restore import restore
from holdfast.model.task import HANDOVER, JsonValue, Task
from holdfast.model.transitions import TaskState

NOTHING = StatePatch()
_LONGEST_REASON = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """How a task stands after something was written."""

    task: Task
    replayed: bool = False
    """It had been done before; nothing was written."""


class LeaseHolder:
    """A task in the hands of an agent outside."""

    def __init__(self, hold: Holdfast, lease: LeaseToken, *, by: str) -> None:
        """``by`` is who calls; the lease says what it holds."""
        self._writer = LeaseWriter(hold, lease, by)
        self._store = hold.store
        self._definitions = hold.definitions
        self._by = by

    async def renew(self) -> Task:
        """Renew the lease; return the task. Raises LeaseLost."""
        return await self._writer.renew()

    async def complete_step(self, key: str, output: JsonValue, patch: StatePatch = NOTHING) -> Written:
        """Record that a step is done. The same key with the same output again changes nothing.

        Raises Conflict where the key was recorded with another output.
        """
        key = their_key(check_name("the step's key", key))
        check_part("the step's key", key)
        body, mark, replayed = encode(output), new_id(), False

        async def write(task: Task, at: datetime) -> Sequence[Operation]:
            nonlocal replayed
            before = await recorded(self._store, task, key)
            if before is None:
                done = await write_line(self._store, task, own_key(key), at=at, output=output, mark=mark)
                return (done, *await self._writer.patching(patch, at, step_key=own_key(key)))
            if before.output != body:
                known = decode(before.output or b"null")
                raise Conflict(
                    f"step {key!r} of task {task.id} is recorded already, with the output {known!r:.200}; "
                    "choose another key for another step. Nothing was changed"
                )
            replayed = before.digest != mark
            return ()

        await self._writer.commit(write)
        return await self._standing(replayed=replayed)

    async def report(self, message: str, percent: float | None) -> Written:
        """Report to watchers how far it is."""
        check_text("the message", message)
        progress: dict[str, JsonValue] = {"message": message, "by": self._by}
        if percent is not None:
            progress["percent"] = percent
        await self.change(Emit(channel=event_channel(self._writer.lease.task_id), payload=progress, key=new_id()))
        return await self._standing()

    async def patch(self, patch: StatePatch) -> None:
        """Change the state, whatever its version is."""
        await self._writer.commit(lambda _, at: self._writer.patching(patch, at))

    async def change(self, *operations: Operation) -> None:
        """Apply other operations under the lease; they have to be ones that may be applied twice."""

        async def write(_: Task, __: datetime) -> Sequence[Operation]:
            return operations

        await self._writer.commit(write)

    # The end of a lease

    async def ask(self, question: str) -> Approval:
        """Ask a person. The task is handed back, and claimable again once a person has answered."""
        asked: list[Approval] = []

        async def write(task: Task, at: datetime) -> Sequence[Operation]:
            if task.cancel_requested is not None:
                raise Conflict(f"task {task.id} is to be cancelled ({task.cancel_requested}); release it instead")
            approval, operations = await asking(self._store, task, question, by=self._by, at=at)
            asked[:] = [approval]
            return operations

        if await self._end(write, TaskState.WAITING, reason_of(question, self._by)):
            return asked[0]
        return await self._asked_before(question)

    async def finish(self, result: JsonValue) -> Written:
        """Complete the task. A task that has a definition goes to its own verifier first."""
        task = await self._writer.task()
        result = self._result(task, result)
        is_new = await self._move(work_done(result, is_verified=task.name != HANDOVER, by=self._by))
        standing = await self._standing(replayed=not is_new)
        if not is_new and canonical(standing.task.result) != canonical(result):
            raise Conflict(
                f"task {task.id} was finished under this lease before, with another result; that one stands, nothing "
                "was changed"
            )
        return standing

    def _result(self, task: Task, given: JsonValue) -> JsonValue:
        """Return a result as it is stored: in the form of the task's definition, where this process knows it."""
        canonical(given, name="result")
        definition = self._definitions.get(task.name)
        if definition is None:
            return given
        return to_json(restore(given, definition.returns, name="result"), definition.returns, name="result")

    async def give_up(self, why: str) -> Written:
        """Fail the task: the work cannot be done. For a task with a definition only its own worker decides that."""
        if not why.strip():
            raise InvalidValue("say why it cannot be done")
        task = await self._writer.task()
        if task.name != HANDOVER:
            raise Conflict(
                f"task {task.id} ({task.name}) has a definition, whose worker decides whether it has failed; hand it "
                "back with release_task, and say why in the note"
            )
        failure = Failure(
            type_name="GivenUp", message=why[:4000], type_names=("GivenUp",), reason=f"{self._by} gave up"
        )
        reason = f"{self._by} gave up: {why}"[:_LONGEST_REASON]
        is_new = await self._move(Move(to=TaskState.FAILED, reason=reason, error=failure.to_json()))
        return await self._standing(replayed=not is_new)

    async def release(self, note: str, patch: StatePatch = NOTHING) -> Written:
        """Hand the task back for another agent; a task that is to be cancelled ends here."""
        check_text("the note", note)
        task = await self._writer.task()
        if task.cancel_requested is not None and task.state is TaskState.RUNNING:
            await self._writer.renew()
            await cancel_children(self._store, task.id, task.cancel_requested, by=self._by)
        if task.cancel_requested is not None:
            move = cancelled(task.cancel_requested)
        else:
            reason = f"handed back by {self._by}" + (f": {note}" if note else "")
            move = handed_back(reason[:_LONGEST_REASON])
        is_new = await self._move(move, patch, note)
        return await self._standing(replayed=not is_new)

    async def _move(self, move: Move, patch: StatePatch = NOTHING, note: str = "") -> bool:
        async def write(task: Task, at: datetime) -> Sequence[Operation]:
            noted = [await write_note(self._store, task, note, by=self._by, at=at)] if note else []
            return (*noted, *await self._writer.patching(patch, at), move, Release())

        return await self._end(write, move.to, move.reason)

    async def _end(self, write: Write, to: TaskState, reason: str) -> bool:
        """End the lease; return False if an earlier call, whose answer was lost, ended it."""
        try:
            await self._writer.commit(write)
        except LeaseLost:
            if not await self._writer.has_ended(to, reason):
                raise
            is_new = False
        else:
            is_new = True
        await self._store.retire(self._writer.lease.worker_id)
        return is_new

    async def _asked_before(self, question: str) -> Approval:
        every = await self._store.approvals(
            task_id=self._writer.lease.task_id, states=frozenset(ApprovalState), limit=1000
        )
        return [one for one in every if one.question == question and one.requested_by == self._by][-1]

    async def _standing(self, *, replayed: bool = False) -> Written:
        return Written(task=await self._writer.task(), replayed=replayed)
