"""Operations on existing tasks: resume, retry, cancel, fork, send, patch, decide.

They are the methods of Holdfast that take a task. Each only calls the module that does the work.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, TypeVar

from holdfast.engine.api.definition import Bound, Definitions
from holdfast.engine.api.feed import Feed
from holdfast.engine.api.handle import Handle
from holdfast.engine.manage import budget as budgets
from holdfast.engine.manage import decide, flow, revive
from holdfast.engine.manage import limits as limiting
from holdfast.engine.manage import message as conversing
from holdfast.engine.manage import state as stating
from holdfast.engine.manage.cancel import cancel
from holdfast.engine.manage.fork import fork as forking
from holdfast.engine.manage.fork.ancestry import Origin
from holdfast.engine.manage.state import AppliedPatch
from holdfast.engine.runtime.services import Services
from holdfast.engine.steps import charge as charging
from holdfast.model.agent_state import AgentState
from holdfast.model.approval import Approval, ApprovalState
from holdfast.model.budget import Budget, Ledger
from holdfast.model.doubt import Decision, Doubt
from holdfast.model.effect import Effect
from holdfast.model.errors import InvalidValue
from holdfast.model.feed import FeedRetention, feed_filter
from holdfast.model.flow_limit import Limit, LimitUse
from holdfast.model.patch import StatePatch
from holdfast.model.pause import Pause
from holdfast.model.queries import Summary
from holdfast.model.queue_settings import KEEP, Keep, QueueChange, QueueSettings
from holdfast.model.state_diff import Change
from holdfast.model.task import JsonValue
from holdfast.model.transitions import TaskState

R = TypeVar("R")


class Managing(ABC):
    """The part of Holdfast that manages existing tasks."""

    definitions: Definitions

    @property
    @abstractmethod
    def services(self) -> Services:
        """The open store and the services around it."""

    # Reviving, cancelling, forking

    async def resume(
        self,
        task: Handle[R] | str,
        *,
        by: str = "user",
        message: str | None = None,
        accept_stale: bool = False,
        deadline: float | timedelta | datetime | None = None,
    ) -> Handle[R]:
        """Continue a failed task where it stopped: completed steps replay, the one that ended it runs again.

        A task that has not failed is left as it is, also a completed one. An agent reads ``message`` first.
        ``accept_stale`` allows a task whose data is older than the maximum age of its checkpoints. ``deadline`` is its
        new deadline, a moment or a time from now. If its deadline has passed, it needs a new one: without it nothing
        changes, and resume raises Conflict.
        """
        handle, store = self._handle(task), self.services.store
        await revive.resume(store, handle.id, by=by, message=message, accept_stale=accept_stale, deadline=deadline)
        return handle

    async def retry(
        self,
        task: Handle[R] | str,
        *,
        by: str = "user",
        feedback: str | None = None,
        deadline: float | timedelta | datetime | None = None,
    ) -> Handle[R]:
        """Start a failed task again in a new round: its steps run again, and can read ``feedback``.

        ``deadline`` is its new deadline, a moment or a time from now. If its deadline has passed, it needs a new one:
        without it nothing changes, and retry raises Conflict.
        """
        handle = self._handle(task)
        await revive.retry(self.services.store, handle.id, by=by, feedback=feedback, deadline=deadline)
        return handle

    async def cancel(self, task: Handle[Any] | str, reason: str = "cancelled", *, by: str = "user") -> TaskState:
        """Cancel a task and its children; see Handle.cancel."""
        return await cancel(self.services.store, self._handle(task).id, reason, by=by)

    async def fork(
        self,
        task: Handle[R] | str,
        *,
        at: str | int | None = None,
        user_input: Sequence[Any] | Bound[R] | None = None,
        patch: StatePatch | None = None,
        key: str | None = None,
        deadline: float | timedelta | datetime | None = None,
        by: str = "user",
    ) -> Handle[R]:
        """Submit a new task that shares the past of this one and goes its own way; this one is not changed.

        They share the finished steps up to and including the step ``at`` (its key, or its position in the journal), by
        default all finished steps: these replay and are not done again. ``user_input`` replaces the arguments (a tuple,
        as for submit, or ``task.bind(...)``), ``patch`` changes the agent's state. With ``key``, the same fork again is
        the same task. ``deadline`` is a moment or a time from now; by default the fork has as much time as its origin
        had at first.
        """
        request = forking.ForkRequest(at=at, user_input=user_input, patch=patch, key=key, deadline=deadline, by=by)
        task_id, name = await forking.fork(self.services, self._handle(task).id, request)
        definition = self.definitions.get(name)
        return Handle(self.services, task_id, Any if definition is None else definition.returns)

    async def forked_from(self, task: Handle[Any] | str) -> Origin | None:
        """Return which task this one was forked from, and after which step; None if it is not a fork."""
        return await forking.forked_from(self.services.store, self._handle(task).id)

    # Pausing

    async def pause(self, what: Handle[Any] | str, *, by: str = "user", reason: str | None = None) -> Pause:
        """Let nothing new begin: of ``"queue:<name>"``, of all tasks of a name (``"task:<name>"``), or of one task.

        Every worker obeys at once: when this returns, no task of the queue or name is claimed any more. Tasks that run
        go on. A single task is given by its handle or id: if it runs, it stops at its next step and gives its slot
        back. Deadlines pass, and a cancel works. What is paused already stays as it is.

        ``"limit:<name>"`` or ``"limit:<key>"``: no task or step that needs it begins. ``"schedule:<name>"`` submits
        nothing until it is unpaused, and the ticks that pass are not caught up.
        """
        subject = what if isinstance(what, str) else what.id
        return await flow.pause(self.services.store, subject, by=by, reason=reason)

    async def unpause(self, what: Handle[Any] | str, *, by: str = "user") -> bool:
        """End a pause, and return whether there was one."""
        subject = what if isinstance(what, str) else what.id
        return await flow.unpause(self.services.store, subject, by=by)

    async def pauses(self) -> list[Pause]:
        """Return everything that is paused now."""
        return await flow.pauses(self.services.store)

    # Queues

    async def queue(
        self,
        name: str,
        *,
        max_pending: int | Keep | None = KEEP,
        concurrency: int | Keep | None = KEEP,
        retention: Mapping[str, timedelta] | Keep | None = KEEP,
        fair_by: str | Keep | None = KEEP,
    ) -> QueueSettings:
        """Change settings of a queue, for every process and worker; return them. What is left out stays as it is.

        ``max_pending`` is how many of its tasks may be pending, delayed ones included; None: any number. A ``submit``
        that would go beyond that raises QueueFull and stores nothing, of ``submit_many`` not one task of the
        transaction. ``ctx.submit`` waits until there is room, without a slot. Tasks that are in the store already are
        never refused: retries, resumes, rounds. The same setting again changes nothing: code may make it at its start.

        ``concurrency`` is how many of its tasks may be at work at the same time, over all workers together; None: any
        number. A task that only waits is not at work. The others stay in the queue; ``claim_task`` of a single one and
        ``store.acquire`` raise NoPlace. A lower limit stops no task.

        ``retention`` says how long tasks are kept after their end, such as ``{"completed": timedelta(days=30)}``; the
        other states are ``"failed"`` and ``"cancelled"``. What it does not name is kept until ``holdfast prune``; None:
        all. Workers delete what is older, in small batches. The setting of its root counts for a whole tree of tasks.

        ``fair_by`` is a label, such as ``"tenant"``: the tasks of the queue take turns by its values, so that a tenant
        with 100,000 tasks does not hold the others up. Tasks without the label are one tenant of their own. Priority
        orders the tasks of a tenant. None: the tasks are claimed in the order in which they became due.
        """
        change = QueueChange(max_pending=max_pending, concurrency=concurrency, retention=retention, fair_by=fair_by)
        return await flow.set_queue(self.services.store, name, change)

    async def queues(self) -> list[QueueSettings]:
        """Return the settings of the queues that have any, and how full each of them is."""
        return await self.services.store.queue_settings()

    # Limits

    async def limit(
        self,
        name: str,
        *,
        concurrency: int | None = None,
        rate: int | None = None,
        tokens: int | None = None,
        per: timedelta | None = None,
        burst: int = 0,
        each: bool = False,
    ) -> Limit:
        """Set a limit that all workers share: ``await hold.limit("openai", rate=500, per=timedelta(minutes=1))``.

        ``concurrency`` is how many tasks or steps with the limit may be at work at once. ``rate`` is how many may begin
        in any time of the length ``per``, and ``burst`` how many more than that. ``tokens`` is how many tokens the
        calls of models that begin in such a time may use. With ``each``, the limit holds for each key apart:
        ``hold.limit("tenant", concurrency=2, each=True)`` is for ``limits=["tenant:acme"]``.

        The call sets the whole limit: what is left out is not limited. Every worker obeys within a second. A lower
        limit ends nothing that is at work. The same again changes nothing, so code may say it at its start. Raises
        Conflict if ``each`` is not what it was.
        """
        wanted = Limit(name=name, concurrency=concurrency, rate=rate, tokens=tokens, per=per, burst=burst, each=each)
        return await limiting.set_limit(self.services.store, wanted)

    async def limits(self, name: str | None = None, *, most: int = 1000) -> list[LimitUse]:
        """Return how the limits stand: for each key what is taken, what waits, and what counts against its rates.

        ``name`` is that of one limit. Keys in use come first, at most ``most``; a limit without any stands there by its
        name.
        """
        return await limiting.limit_uses(self.services.store, name, most=most)

    # The feed

    def feed(
        self,
        *,
        after: str | None = None,
        kinds: Collection[str] = (),
        task: Handle[Any] | str | None = None,
        name: str | None = None,
        queue: str | None = None,
        labels: Mapping[str, str] | None = None,
        follow: bool = True,
    ) -> Feed:
        """Return everything that happens to all tasks, in any process: ``async for event in hold.feed(): ...``.

        ``kinds`` are kinds or patterns, such as ``["approval.*", "task.failed"]``; only events that fit every given
        part are returned. It begins now, or behind ``after``: the ``cursor`` of an event, kept anywhere for as long as
        the store keeps its events (``feed_retention``), or ``"oldest"`` for everything that is kept. Every event comes
        once, those of one task in the order in which they happened. It goes on until you stop; with ``follow=False``
        until the present. Raises CursorLost if events behind the cursor are kept no longer, or the store has lost it.
        """
        task_id = None if task is None else self._handle(task).id
        wanted = feed_filter(kinds=kinds, task_id=task_id, name=name, queue=queue, labels=labels)
        return Feed(self.services, after, wanted, follow=follow)

    async def feed_retention(self, *, age: timedelta | None = None, rows: int | None = None) -> FeedRetention:
        """Return how long events of the feed are kept, after changing what is given: their age, and their number.

        Workers delete what is older, about once a minute. The newest event is never deleted.
        """
        store = self.services.store
        kept = await store.feed_retention()
        if age is None and rows is None:
            return kept
        wanted = FeedRetention(age=kept.age if age is None else age, rows=kept.rows if rows is None else rows)
        await store.set_feed_retention(wanted)
        return wanted

    # Agents

    async def send(self, task: Handle[Any] | str, text: str, *, by: str = "user", key: str | None = None) -> None:
        """Send a message to an agent: it reads it before its next model call, also if it waits for something now.

        Raises Conflict if the task has ended: continue with ``hold.submit(agent, text, after=handle)``. The same
        ``key`` again sends nothing.
        """
        await conversing.send(self.services.store, self.definitions, self._handle(task).id, text, by=by, key=key)

    async def budget(self, task: Handle[Any] | str) -> Ledger:
        """Return what a task may use, has used, and has reserved."""
        return await budgets.read_budget(self.services.store, self._handle(task).id)

    async def extend_budget(
        self, task: Handle[Any] | str, budget: Budget, *, by: str, note: str | None = None
    ) -> Ledger:
        """Set the limits that ``budget`` names. A task that waits for more budget continues.

        A task that failed because its budget was spent continues when it is resumed.
        """
        services = self.services
        await budgets.extend(services.store, services.definitions, self._handle(task).id, budget, by=by, note=note)
        return await self.budget(task)

    async def charge(
        self,
        task: Handle[Any] | str,
        *,
        by: str,
        steps: int = 0,
        llm_tokens: int = 0,
        cost: Decimal | float = 0,
        key: str | None = None,
    ) -> Ledger:
        """Charge the budget of a task that you drive by hand; return what it has used then.

        Raises BudgetExceeded, and charges nothing, if that exceeds a limit (``extend_budget`` sets limits) or if the
        wall time is used up. The same ``key`` again charges nothing. The code of a task uses ``ctx.charge``.
        """
        store, task_id = self.services.store, self._handle(task).id
        amounts = charging.amounts_of(steps=steps, llm_tokens=llm_tokens, cost=cost)
        await charging.charge_by_hand(store, task_id, amounts, by=by, key=key)
        return await budgets.read_budget(store, task_id)

    async def state(self, task: Handle[Any] | str, *, at: int | str | None = None) -> AgentState:
        """Return an agent's state: now, at a version, or right after the step with this key.

        If the agent has not started: the state that it will start with. Raises Conflict if the task has no state.
        """
        return await stating.state_of(self.services.store, self.definitions, self._handle(task).id, at)

    async def patch_state(
        self, task: Handle[Any] | str, patch: StatePatch, *, version: int, by: str, reason: str = ""
    ) -> AgentState:
        """Change the state of an agent that has not ended, and return it; the agent sees it before its next model call.

        ``version`` is the version that the patch was made for (``(await handle.task()).version``). If the state has
        another version by now, nothing changes, and StateConflict holds the newer state, to merge with. Before the
        agent has started, the version is 0, and the patch applies to the state that it will start with.
        """
        return await stating.patch_state(
            self.services, self._handle(task).id, patch, version=version, by=by, reason=reason
        )

    async def state_history(self, task: Handle[Any] | str) -> list[AppliedPatch]:
        """Return every change of an agent's state, first to last: the patch, its author, the reason and the step."""
        return await stating.history_of(self.services.store, self.definitions, self._handle(task).id)

    async def state_diff(
        self, task: Handle[Any] | str, old: int | str, new: int | str | None = None
    ) -> tuple[Change, ...]:
        """Return the changes of an agent's state between two versions or step keys; by default until now."""
        return await stating.difference(self.services.store, self.definitions, self._handle(task).id, old, new)

    # Deciding

    async def approvals(
        self,
        task: Handle[Any] | str | None = None,
        *,
        states: Sequence[ApprovalState | str] = (ApprovalState.OPEN,),
        limit: int = 100,
    ) -> list[Approval]:
        """Return the approvals and questions that wait for a decision, or those in other ``states``."""
        task_id = None if task is None else self._handle(task).id
        wanted = tuple(map(ApprovalState, states))
        return await decide.open_approvals(self.services.store, task_id=task_id, states=wanted, limit=limit)

    async def approve(self, approval_id: str, *, by: str, note: str | None = None) -> Approval:
        """Approve what a task asks for. Raises Conflict if it was decided, voided or has expired meanwhile."""
        store = self.services.store
        return await decide.decide(store, approval_id, ApprovalState.APPROVED, by=by, note=note)

    async def reject(self, approval_id: str, *, by: str, note: str | None = None) -> Approval:
        """Reject what a task asks for, or refuse to answer its question: its code gets Rejected."""
        store = self.services.store
        return await decide.decide(store, approval_id, ApprovalState.REJECTED, by=by, note=note)

    async def answer(self, approval_id: str, answer: JsonValue, *, by: str, note: str | None = None) -> Approval:
        """Answer an open question of a task."""
        store = self.services.store
        return await decide.decide(store, approval_id, ApprovalState.ANSWERED, by=by, note=note, answer=answer)

    async def doubts(self, task: Handle[Any] | str | None = None, *, limit: int = 100) -> list[Doubt]:
        """Return the effects whose outcome is not known, with the possible decisions about each."""
        task_id = None if task is None else self._handle(task).id
        return await decide.doubts(self.services.store, task_id=task_id, limit=limit)

    async def resolve(
        self,
        effect: Doubt | Effect | str,
        decision: Decision | str,
        *,
        result: Any = None,  # noqa: ANN401
        by: str,
        note: str | None = None,
    ) -> Effect:
        """Decide about an effect in doubt: "happened" (with its ``result``), "absent", "compensate" or "abandon".

        See Decision. If two people decide at the same time, the second gets a Conflict.
        """
        if isinstance(effect, Doubt):
            effect = effect.effect
        effect_id = effect.effect_id if isinstance(effect, Effect) else effect
        return await decide.resolve(self.services.store, effect_id, decision, result=result, by=by, note=note)

    async def summary(self) -> Summary:
        """Return counts of the store: tasks by state, workers, open approvals, doubts."""
        return await self.services.store.summary()

    def _handle(self, task: Handle[R] | str) -> Handle[R]:
        if isinstance(task, str):
            return Handle(self.services, task)
        if not isinstance(task, Handle):
            raise InvalidValue(f"{task!r} is neither the handle nor the id of a task; submit it first")
        return task
