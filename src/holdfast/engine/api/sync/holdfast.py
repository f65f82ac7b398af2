"""hold.sync: Holdfast for blocking code.

    with hold.sync as h:
        h.submit(deploy, "billing").result(timeout=60)

It has no engine of its own: the same Holdfast is opened on an event loop in a thread, and every call runs there while
the caller waits. Threads share it. Blocks may be nested, and the last block to end closes it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack, overload

from holdfast.engine.api.async_holdfast import AsyncHoldfast
from holdfast.engine.api.definition import Bound, TaskDefinition
from holdfast.engine.api.handle import Handle
from holdfast.engine.api.new_task import begin_submission, finish
from holdfast.engine.api.signatures import (
    A,
    B,
    C,
    D,
    SyncSubmitOptions,
    Task0,
    Task1,
    Task2,
    Task3,
    Task4,
    refuse_for_task,
)
from holdfast.engine.api.start import ArtifactNames, Facts, Start
from holdfast.engine.api.sync.artifacts import SyncArtifacts
from holdfast.engine.api.sync.feed import SyncFeed
from holdfast.engine.api.sync.handle import SyncHandle
from holdfast.engine.api.sync.loop_thread import LoopThread, refuse_event_loop
from holdfast.engine.api.sync.memory import SyncMemory
from holdfast.engine.api.sync.schedules import SyncScheduling
from holdfast.engine.api.sync.store import SyncTaskStore
from holdfast.engine.manage.fork.ancestry import Origin
from holdfast.engine.manage.state import AppliedPatch
from holdfast.engine.steps.transaction import TIMEOUT
from holdfast.engine.worker.worker import Worker
from holdfast.model.agent_state import AgentState
from holdfast.model.approval import Approval, ApprovalState
from holdfast.model.budget import Budget, Ledger
from holdfast.model.doubt import Decision, Doubt
from holdfast.model.effect import Effect
from holdfast.model.errors import StoreClosed, StoreForked
from holdfast.model.feed import FeedRetention
from holdfast.model.flow_limit import Limit, LimitUse
from holdfast.model.patch import StatePatch
from holdfast.model.pause import Pause
from holdfast.model.queries import Summary
from holdfast.model.queue_settings import KEEP, Keep, QueueSettings
from holdfast.model.records import Event
from holdfast.model.state_diff import Change
from holdfast.model.task import IfExists, JsonValue
from holdfast.model.transitions import TaskState
from holdfast.process_fork import ForkSafeLock, Owner
from holdfast.redaction import without_password

R = TypeVar("R")
T = TypeVar("T")


class SyncHoldfast(SyncScheduling):
    """The calls of Holdfast, which block until they are done. Not for threads that run an event loop."""

    _hold: AsyncHoldfast

    def __init__(self, hold: AsyncHoldfast) -> None:
        """Each Holdfast creates one: all of its blocks share one loop."""
        self._hold = hold
        self._gate = ForkSafeLock()
        self._depth = 0
        self._thread: LoopThread | None = None
        self._owner: Owner | None = None

    def __enter__(self) -> Self:
        """Open the store on a loop in a thread, unless another block has opened it."""
        refuse_event_loop()
        self._check_process()
        with self._gate:
            if self._depth == 0:
                self._owner = Owner(without_password(self._hold.url))
                thread = LoopThread(self._hold)
                try:
                    thread.start()
                except BaseException:
                    self._owner = None
                    raise
                self._thread = thread
            self._depth += 1
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the store, if this is the last block."""
        if self._owner is None or self._owner.is_other:  # a forked child leaves the block of its parent
            return
        with self._gate:
            self._depth -= 1
            if self._depth == 0 and self._thread is not None:
                thread, self._thread = self._thread, None
                try:
                    thread.stop()
                finally:
                    self._owner = None

    def wait(self, call: Coroutine[Any, Any, T]) -> T:
        """Run any asynchronous call and return its result: ``h.wait(hold.store.history(handle.id))``."""
        try:
            thread = self._running
        except (StoreClosed, StoreForked):
            call.close()
            raise
        return thread.wait(call)

    @overload
    def submit(self, task: Bound[R], **options: Unpack[SyncSubmitOptions]) -> SyncHandle[R]: ...
    @overload
    def submit(self, task: str, *args: object, **options: Unpack[SyncSubmitOptions]) -> SyncHandle[Any]: ...
    @overload
    def submit(self, task: Task0[R], /, **options: Unpack[SyncSubmitOptions]) -> SyncHandle[R]: ...
    @overload
    def submit(self, task: Task1[A, R], a: A, /, **options: Unpack[SyncSubmitOptions]) -> SyncHandle[R]: ...
    @overload
    def submit(self, task: Task2[A, B, R], a: A, b: B, /, **options: Unpack[SyncSubmitOptions]) -> SyncHandle[R]: ...
    @overload
    def submit(
        self, task: Task3[A, B, C, R], a: A, b: B, c: C, /, **options: Unpack[SyncSubmitOptions]
    ) -> SyncHandle[R]: ...
    @overload
    def submit(
        self, task: Task4[A, B, C, D, R], a: A, b: B, c: C, d: D, /, **options: Unpack[SyncSubmitOptions]
    ) -> SyncHandle[R]: ...
    @overload
    def submit(
        self,
        task: TaskDefinition[..., R],
        a: object,
        b: object,
        c: object,
        d: object,
        e: object,
        /,
        *more: object,
        **options: Unpack[SyncSubmitOptions],
    ) -> SyncHandle[R]: ...

    def submit(
        self,
        task: Any,
        *args: Any,
        key: str | None = None,
        queue: str | None = None,
        priority: int | None = None,
        deadline: float | timedelta | datetime | None = None,
        delay: float | timedelta | None = None,
        at: datetime | None = None,
        labels: Mapping[str, str] | None = None,
        limits: Sequence[str] = (),
        if_exists: IfExists | str = IfExists.RETURN,
        debounce: float | timedelta | None = None,
        debounce_max: float | timedelta | None = None,
        agent_id: str | None = None,
        after: SyncHandle[Any] | str | None = None,
        state: AgentState | None = None,
        plan: Sequence[str] | None = None,
        facts: Facts | None = None,
        artifacts: ArtifactNames | None = None,
        connection: object = None,
        **unknown: Any,
    ) -> SyncHandle[Any]:
        """See Holdfast. ``connection`` is a psycopg.Connection, or SQLAlchemy's Connection or Session."""
        options: dict[str, Any] = {
            "key": key,
            "queue": queue,
            "priority": priority,
            "deadline": deadline,
            "delay": delay,
            "at": at,
            "labels": labels,
            "limits": limits,
            "if_exists": if_exists,
            "debounce": debounce,
            "debounce_max": debounce_max,
            "agent_id": agent_id,
        }
        start: dict[str, Any] = {"state": state, "plan": plan, "facts": facts, "artifacts": artifacts}
        before = None if after is None else _plain(after)
        if connection is None:
            call: Coroutine[Any, Any, Handle[Any]]
            call = self._hold.submit(task, *args, after=before, **start, **options, **unknown)
            return self._hand_out(call)
        refuse_for_task("hold.submit", task, unknown, SyncSubmitOptions.__annotations__)
        options.update(start=Start(**start), after=before.id if isinstance(before, Handle) else before)
        return self._submit_on(connection, task, args, options)

    def _submit_on(
        self, connection: object, task: object, args: tuple[object, ...], options: dict[str, Any]
    ) -> SyncHandle[Any]:
        """Submit in the caller's transaction, and speak to the database in this thread: no loop may wait for it."""
        thread = self._running
        services = self._hold.services
        prepared, submission = thread.wait(begin_submission(services, connection, task, args, **options))
        [answer] = submission.write_blocking()
        return SyncHandle(thread, thread.wait(finish(services, prepared, answer)))

    def submit_many(
        self,
        task: TaskDefinition[..., R] | str,
        many: Iterable[Sequence[Any]],
        **options: Any,  # noqa: ANN401
    ) -> list[SyncHandle[R]]:
        """See Holdfast."""
        handles = self.wait(self._hold.submit_many(task, many, **options))
        return [SyncHandle(self._running, handle) for handle in handles]

    def handle(self, task_id: str, returns: Any = Any) -> SyncHandle[Any]:  # noqa: ANN401
        """See Holdfast."""
        return SyncHandle(self._running, self._hold.handle(task_id, returns))

    def emit(self, channel: str, payload: JsonValue = None, *, key: str | None = None, actor: str = "user") -> Event:
        """See Holdfast."""
        return self.wait(self._hold.emit(channel, payload, key=key, actor=actor))

    @overload
    def transaction(
        self,
        function: Callable[..., Coroutine[Any, Any, R]],
        *args: Any,  # noqa: ANN401
        timeout: float | timedelta = TIMEOUT,
    ) -> R: ...
    @overload
    def transaction(
        self,
        function: Callable[..., R],
        *args: Any,  # noqa: ANN401
        timeout: float | timedelta = TIMEOUT,
    ) -> R: ...

    def transaction(
        self, function: Callable[..., Any], *args: Any, timeout: float | timedelta = TIMEOUT, **unknown: Any
    ) -> Any:
        """See Holdfast. A blocking function gets a SyncTransaction, and runs in its own thread."""
        return self.wait(self._hold.transaction(function, *args, timeout=timeout, **unknown))

    def worker(
        self,
        *,
        queues: Sequence[str] | str | None = None,
        concurrency: int | None = None,
        residents: int | None = None,
        lease: float | None = None,
        grace: float | None = None,
        label: str | None = None,
    ) -> SyncWorker:
        """See Holdfast: ``with h.worker(concurrency=4):`` runs tasks in the background of the block."""
        thread = self._running
        worker = self._hold.worker(
            queues=queues, concurrency=concurrency, residents=residents, lease=lease, grace=grace, label=label
        )
        return SyncWorker(thread, worker)

    @overload
    def run(self, task: SyncHandle[R], *, resume: bool = False, lease: float | None = None) -> R: ...
    @overload
    def run(self, task: str, *, resume: bool = False, lease: float | None = None) -> Any: ...  # noqa: ANN401

    def run(self, task: SyncHandle[Any] | str, *, resume: bool = False, lease: float | None = None) -> Any:
        """See Holdfast."""
        return self.wait(self._hold.run(_plain(task), resume=resume, lease=lease))

    def resume(
        self,
        task: SyncHandle[R] | str,
        *,
        by: str = "user",
        message: str | None = None,
        accept_stale: bool = False,
        deadline: float | timedelta | datetime | None = None,
    ) -> SyncHandle[R]:
        """See Holdfast."""
        return self._hand_out(
            self._hold.resume(_plain(task), by=by, message=message, accept_stale=accept_stale, deadline=deadline)
        )

    def retry(
        self,
        task: SyncHandle[R] | str,
        *,
        by: str = "user",
        feedback: str | None = None,
        deadline: float | timedelta | datetime | None = None,
    ) -> SyncHandle[R]:
        """See Holdfast."""
        return self._hand_out(self._hold.retry(_plain(task), by=by, feedback=feedback, deadline=deadline))

    def cancel(self, task: SyncHandle[Any] | str, reason: str = "cancelled", *, by: str = "user") -> TaskState:
        """See Holdfast."""
        return self.wait(self._hold.cancel(_plain(task), reason, by=by))

    def pause(self, what: SyncHandle[Any] | str, *, by: str = "user", reason: str | None = None) -> Pause:
        """See Holdfast."""
        return self.wait(self._hold.pause(_plain(what), by=by, reason=reason))

    def unpause(self, what: SyncHandle[Any] | str, *, by: str = "user") -> bool:
        """See Holdfast."""
        return self.wait(self._hold.unpause(_plain(what), by=by))

    def pauses(self) -> list[Pause]:
        """See Holdfast."""
        return self.wait(self._hold.pauses())

    def queue(
        self,
        name: str,
        *,
        max_pending: int | Keep | None = KEEP,
        concurrency: int | Keep | None = KEEP,
        retention: Mapping[str, timedelta] | Keep | None = KEEP,
        fair_by: str | Keep | None = KEEP,
    ) -> QueueSettings:
        """See Holdfast."""
        settings = {"max_pending": max_pending, "concurrency": concurrency, "retention": retention, "fair_by": fair_by}
        return self.wait(self._hold.queue(name, **settings))  # type: ignore[arg-type]

    def queues(self) -> list[QueueSettings]:
        """See Holdfast."""
        return self.wait(self._hold.queues())

    def limit(
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
        """See Holdfast."""
        return self.wait(
            self._hold.limit(name, concurrency=concurrency, rate=rate, tokens=tokens, per=per, burst=burst, each=each)
        )

    def limits(self, name: str | None = None, *, most: int = 1000) -> list[LimitUse]:
        """See Holdfast."""
        return self.wait(self._hold.limits(name, most=most))

    def feed(
        self,
        *,
        after: str | None = None,
        kinds: Collection[str] = (),
        task: SyncHandle[Any] | str | None = None,
        name: str | None = None,
        queue: str | None = None,
        labels: Mapping[str, str] | None = None,
        follow: bool = True,
    ) -> SyncFeed:
        """See Holdfast. It blocks between two events; ``close()`` it to stop early."""
        about = task if task is None or isinstance(task, str) else task.id
        thread = self._running
        feed = self._hold.feed(
            after=after, kinds=kinds, task=about, name=name, queue=queue, labels=labels, follow=follow
        )
        return SyncFeed(thread, feed)

    def feed_retention(self, *, age: timedelta | None = None, rows: int | None = None) -> FeedRetention:
        """See Holdfast."""
        return self.wait(self._hold.feed_retention(age=age, rows=rows))

    def fork(
        self,
        task: SyncHandle[R] | str,
        *,
        at: str | int | None = None,
        user_input: Sequence[Any] | Bound[R] | None = None,
        patch: StatePatch | None = None,
        key: str | None = None,
        deadline: float | timedelta | datetime | None = None,
        by: str = "user",
    ) -> SyncHandle[R]:
        """See Holdfast."""
        return self._hand_out(
            self._hold.fork(_plain(task), at=at, user_input=user_input, patch=patch, key=key, deadline=deadline, by=by)
        )

    def forked_from(self, task: SyncHandle[Any] | str) -> Origin | None:
        """See Holdfast."""
        return self.wait(self._hold.forked_from(_plain(task)))

    def send(self, task: SyncHandle[Any] | str, text: str, *, by: str = "user", key: str | None = None) -> None:
        """See Holdfast."""
        self.wait(self._hold.send(_plain(task), text, by=by, key=key))

    def budget(self, task: SyncHandle[Any] | str) -> Ledger:
        """See Holdfast."""
        return self.wait(self._hold.budget(_plain(task)))

    def extend_budget(self, task: SyncHandle[Any] | str, budget: Budget, *, by: str, note: str | None = None) -> Ledger:
        """See Holdfast."""
        return self.wait(self._hold.extend_budget(_plain(task), budget, by=by, note=note))

    def charge(
        self,
        task: SyncHandle[Any] | str,
        *,
        by: str,
        steps: int = 0,
        llm_tokens: int = 0,
        cost: Decimal | float = 0,
        key: str | None = None,
    ) -> Ledger:
        """See Holdfast."""
        call = self._hold.charge(_plain(task), by=by, steps=steps, llm_tokens=llm_tokens, cost=cost, key=key)
        return self.wait(call)

    def state(self, task: SyncHandle[Any] | str, *, at: int | str | None = None) -> AgentState:
        """See Holdfast."""
        return self.wait(self._hold.state(_plain(task), at=at))

    def patch_state(
        self, task: SyncHandle[Any] | str, patch: StatePatch, *, version: int, by: str, reason: str = ""
    ) -> AgentState:
        """See Holdfast."""
        return self.wait(self._hold.patch_state(_plain(task), patch, version=version, by=by, reason=reason))

    def state_history(self, task: SyncHandle[Any] | str) -> list[AppliedPatch]:
        """See Holdfast."""
        return self.wait(self._hold.state_history(_plain(task)))

    def state_diff(
        self, task: SyncHandle[Any] | str, old: int | str, new: int | str | None = None
    ) -> tuple[Change, ...]:
        """See Holdfast."""
        return self.wait(self._hold.state_diff(_plain(task), old, new))

    def approvals(
        self,
        task: SyncHandle[Any] | str | None = None,
        *,
        states: Sequence[ApprovalState | str] = (ApprovalState.OPEN,),
        limit: int = 100,
    ) -> list[Approval]:
        """See Holdfast."""
        which = None if task is None else _plain(task)
        return self.wait(self._hold.approvals(which, states=states, limit=limit))

    def approve(self, approval_id: str, *, by: str, note: str | None = None) -> Approval:
        """See Holdfast."""
        return self.wait(self._hold.approve(approval_id, by=by, note=note))

    def reject(self, approval_id: str, *, by: str, note: str | None = None) -> Approval:
        """See Holdfast."""
        return self.wait(self._hold.reject(approval_id, by=by, note=note))

    def answer(self, approval_id: str, answer: JsonValue, *, by: str, note: str | None = None) -> Approval:
        """See Holdfast."""
        return self.wait(self._hold.answer(approval_id, answer, by=by, note=note))

    def doubts(self, task: SyncHandle[Any] | str | None = None, *, limit: int = 100) -> list[Doubt]:
        """See Holdfast."""
        return self.wait(self._hold.doubts(None if task is None else _plain(task), limit=limit))

    def resolve(
        self,
        effect: Doubt | Effect | str,
        decision: Decision | str,
        *,
        result: Any = None,  # noqa: ANN401
        by: str,
        note: str | None = None,
    ) -> Effect:
        """See Holdfast."""
        return self.wait(self._hold.resolve(effect, decision, result=result, by=by, note=note))

    def summary(self) -> Summary:
        """See Holdfast."""
        return self.wait(self._hold.summary())

    @property
    def memory(self) -> SyncMemory:
        """See Holdfast."""
        return SyncMemory(self._hold.memory, self.wait)

    @property
    def store(self) -> SyncTaskStore:
        """Tasks that you drive by hand: ``save``, ``get``, ``list_by_state``, ``execute_step``."""
        return SyncTaskStore(self._hold.store, self.wait)

    @property
    def artifacts(self) -> SyncArtifacts:
        """See Holdfast."""
        return SyncArtifacts(self._hold.artifacts, self.wait)

    def _hand_out(self, call: Coroutine[Any, Any, Handle[R]]) -> SyncHandle[R]:
        handle = self.wait(call)
        return SyncHandle(self._running, handle)

    @property
    def _running(self) -> LoopThread:
        self._check_process()
        if self._thread is None:
            url = without_password(self._hold.url)
            raise StoreClosed(f"{url} is not open for blocking code; use it inside `with hold.sync as h:`")
        return self._thread

    def _check_process(self) -> None:
        if self._owner is not None:
            self._owner.check()


class SyncWorker:
    """A worker that runs on the loop of ``hold.sync`` while the block of the caller does something else."""

    __slots__ = ("_thread", "_worker")

    def __init__(self, thread: LoopThread, worker: Worker) -> None:
        """``h.worker`` creates these. Nothing happens before ``with``."""
        self._thread = thread
        self._worker = worker

    @property
    def id(self) -> str:
        """The id of its current incarnation."""
        return self._worker.id

    def __enter__(self) -> Self:
        """See Worker."""
        self._thread.wait(self._worker.__aenter__())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """See Worker. An interrupt while tasks finish hands them back at once."""
        if self._thread.is_inherited:
            return
        self._thread.wait(self._worker.__aexit__(kind, error, trace), on_interrupt=self._worker.force)

    def drain(self) -> None:
        """See Worker."""
        self._thread.post(self._worker.drain)

    def force(self) -> None:
        """See Worker."""
        self._thread.post(self._worker.force)

    def join(self) -> None:
        """See Worker."""
        self._thread.wait(self._worker.join(), on_interrupt=self._worker.force)


def _plain(task: SyncHandle[R] | str) -> Handle[R] | str:
    return task if isinstance(task, str) else task.handle
