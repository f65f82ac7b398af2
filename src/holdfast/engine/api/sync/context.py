"""SyncContext: ctx for blocking functions. Each call runs on the event loop while the function's thread waits."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Coroutine, Mapping, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from functools import wraps
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, Protocol, TypeVar, Unpack, overload

from holdfast.engine.api.definition import Bound, TaskDefinition
from holdfast.engine.api.signatures import (
    A,
    B,
    C,
    ChildOptions,
    D,
    Later,
    StepOptions,
    TakesId0,
    TakesId1,
    TakesId2,
    TakesId3,
    TakesId4,
    Task0,
    Task1,
    Task2,
    Task3,
    Task4,
)
from holdfast.engine.api.sync.bridge import Crossing
from holdfast.engine.attempt.scope import discard
from holdfast.engine.attempt.stop_reasons import Unwind
from holdfast.engine.steps.call import Compensation
from holdfast.engine.steps.transaction import TIMEOUT
from holdfast.model.agent_state import AgentState
from holdfast.model.approval import Decided
from holdfast.model.patch import StatePatch
from holdfast.model.task import JsonValue, Task

if TYPE_CHECKING:
    from holdfast.engine.attempt.context import Child, Context

P = ParamSpec("P")
R = TypeVar("R")


class Blocked(Protocol):
    """The blocking functions of an attempt. One of them uses this context."""

    @property
    def threads(self) -> list[int]:
        """One entry for each thread that a blocking function has started: the id of the function's set of calls."""

    @property
    def is_stopped(self) -> bool:
        """Whether calls of ``ctx`` have no effect any more."""

    def is_refused_too_often(self) -> bool:
        """Count a refused call of ``ctx``."""


class SyncContext:
    """The task as its own blocking code sees it: the calls of Context, which block until they are done."""

    __slots__ = ("_blocked", "_calls", "_context", "_crossing", "_is_abandoned")

    def __init__(self, context: Context, blocked: Blocked, loop: asyncio.AbstractEventLoop) -> None:
        """Only the engine creates this, on the loop's thread."""
        self._context = context
        self._blocked = blocked
        self._crossing = Crossing(loop, "ctx")
        self._is_abandoned = False
        self._calls: set[asyncio.Task[Any]] = set()
        """The calls that its function waits for. The attempt can see and interrupt them."""

    def _abandon(self) -> None:
        """Refuse further calls: the function has ended, or its thread was abandoned."""
        self._is_abandoned = True

    @property
    def task_id(self) -> str:
        """See Context."""
        return self._context.task_id

    @property
    def task(self) -> Task:
        """See Context."""
        return self._context.task

    @property
    def tick(self) -> datetime | None:
        """See Context."""
        return self._context.tick

    @property
    def attempt(self) -> int:
        """See Context."""
        return self._context.attempt

    @property
    def feedback(self) -> str | None:
        """See Context."""
        return self._context.feedback

    @property
    def deadline(self) -> datetime | None:
        """See Context."""
        return self._context.deadline

    @overload
    def step(self, name: str, function: Callable[[], Later[R]], /, **o: Unpack[StepOptions]) -> R: ...
    @overload
    def step(self, name: str, function: Callable[[], R], /, **o: Unpack[StepOptions]) -> R: ...
    @overload
    def step(self, name: str, function: Callable[[A], Later[R]], a: A, /, **o: Unpack[StepOptions]) -> R: ...
    @overload
    def step(self, name: str, function: Callable[[A], R], a: A, /, **o: Unpack[StepOptions]) -> R: ...
    @overload
    def step(self, name: str, function: Callable[[A, B], Later[R]], a: A, b: B, /, **o: Unpack[StepOptions]) -> R: ...
    @overload
    def step(self, name: str, function: Callable[[A, B], R], a: A, b: B, /, **o: Unpack[StepOptions]) -> R: ...
    @overload
    def step(
        self, name: str, function: Callable[[A, B, C], Later[R]], a: A, b: B, c: C, /, **o: Unpack[StepOptions]
    ) -> R: ...
    @overload
    def step(self, name: str, function: Callable[[A, B, C], R], a: A, b: B, c: C, /, **o: Unpack[StepOptions]) -> R: ...
    @overload
    def step(
        self, name: str, function: Callable[[A, B, C, D], Later[R]], a: A, b: B, c: C, d: D, /, **o: Unpack[StepOptions]
    ) -> R: ...
    @overload
    def step(
        self, name: str, function: Callable[[A, B, C, D], R], a: A, b: B, c: C, d: D, /, **o: Unpack[StepOptions]
    ) -> R: ...
    @overload
    def step(self, name: str, function: TakesId0[Later[R]], /, **o: Unpack[StepOptions]) -> R: ...
    @overload
    def step(self, name: str, function: TakesId0[R], /, **o: Unpack[StepOptions]) -> R: ...
    @overload
    def step(self, name: str, function: TakesId1[A, Later[R]], a: A, /, **o: Unpack[StepOptions]) -> R: ...
    @overload
    def step(self, name: str, function: TakesId1[A, R], a: A, /, **o: Unpack[StepOptions]) -> R: ...
    @overload
    def step(self, name: str, function: TakesId2[A, B, Later[R]], a: A, b: B, /, **o: Unpack[StepOptions]) -> R: ...
    @overload
    def step(self, name: str, function: TakesId2[A, B, R], a: A, b: B, /, **o: Unpack[StepOptions]) -> R: ...
    @overload
    def step(
        self, name: str, function: TakesId3[A, B, C, Later[R]], a: A, b: B, c: C, /, **o: Unpack[StepOptions]
    ) -> R: ...
    @overload
    def step(self, name: str, function: TakesId3[A, B, C, R], a: A, b: B, c: C, /, **o: Unpack[StepOptions]) -> R: ...
    @overload
    def step(
        self, name: str, function: TakesId4[A, B, C, D, Later[R]], a: A, b: B, c: C, d: D, /, **o: Unpack[StepOptions]
    ) -> R: ...
    @overload
    def step(
        self, name: str, function: TakesId4[A, B, C, D, R], a: A, b: B, c: C, d: D, /, **o: Unpack[StepOptions]
    ) -> R: ...
    @overload
    def step(
        self,
        name: str,
        function: Callable[..., Later[R]],
        a: object,
        b: object,
        c: object,
        d: object,
        e: object,
        /,
        *more: object,
        **o: Unpack[StepOptions],
    ) -> R: ...
    @overload
    def step(
        self,
        name: str,
        function: Callable[..., R],
        a: object,
        b: object,
        c: object,
        d: object,
        e: object,
        /,
        *more: object,
        **o: Unpack[StepOptions],
    ) -> R: ...

    def step(self, name: str, function: Callable[..., Any], *args: Any, **options: Any) -> Any:
        """See Context."""
        return self._wait(self._context.step(name, function, *args, **options))

    @overload
    def transaction(
        self,
        name: str,
        function: Callable[..., Coroutine[Any, Any, R]],
        *args: Any,  # noqa: ANN401
        key: str | None = None,
        timeout: float | timedelta = TIMEOUT,
        compensate: Callable[..., Any] | Compensation | None = None,
        returns: Any = None,  # noqa: ANN401
        repeat: bool = False,
    ) -> R: ...

    @overload
    def transaction(
        self,
        name: str,
        function: Callable[..., R],
        *args: Any,  # noqa: ANN401
        key: str | None = None,
        timeout: float | timedelta = TIMEOUT,
        compensate: Callable[..., Any] | Compensation | None = None,
        returns: Any = None,  # noqa: ANN401
        repeat: bool = False,
    ) -> R: ...

    def transaction(self, name: str, function: Callable[..., Any], *args: Any, **options: Any) -> Any:
        """See Context."""
        return self._wait(self._context.transaction(name, function, *args, **options))

    def approval(
        self,
        question: str,
        *,
        risk: str | None = None,
        details: JsonValue = None,
        deciders: Sequence[str] = (),
        expires: float | timedelta | None = None,
        default: str = "rejected",
        policy: str | None = None,
        requested_by: str | None = None,
        key: str | None = None,
    ) -> Decided:
        """See Context."""
        return self._wait(
            self._context.approval(
                question,
                risk=risk,
                details=details,
                deciders=deciders,
                expires=expires,
                default=default,
                policy=policy,
                requested_by=requested_by,
                key=key,
            )
        )

    def ask(
        self,
        question: str,
        *,
        details: JsonValue = None,
        deciders: Sequence[str] = (),
        expires: float | timedelta | None = None,
        requested_by: str | None = None,
        key: str | None = None,
    ) -> JsonValue:
        """See Context."""
        return self._wait(
            self._context.ask(
                question, details=details, deciders=deciders, expires=expires, requested_by=requested_by, key=key
            )
        )

    def sleep(self, duration: float | timedelta, *, key: str | None = None) -> None:
        """See Context."""
        self._wait(self._context.sleep(duration, key=key))

    def wait_event(
        self,
        channel: str,
        *,
        timeout: float | timedelta | None = None,
        earlier: bool = False,
        key: str | None = None,
    ) -> JsonValue:
        """See Context."""
        return self._wait(self._context.wait_event(channel, timeout=timeout, earlier=earlier, key=key))

    @overload
    def submit(self, task: Bound[R], **options: Unpack[ChildOptions]) -> SyncChild[R]: ...
    @overload
    def submit(self, task: str, *args: object, **options: Unpack[ChildOptions]) -> SyncChild[Any]: ...
    @overload
    def submit(self, task: Task0[R], /, **options: Unpack[ChildOptions]) -> SyncChild[R]: ...
    @overload
    def submit(self, task: Task1[A, R], a: A, /, **options: Unpack[ChildOptions]) -> SyncChild[R]: ...
    @overload
    def submit(self, task: Task2[A, B, R], a: A, b: B, /, **options: Unpack[ChildOptions]) -> SyncChild[R]: ...
    @overload
    def submit(self, task: Task3[A, B, C, R], a: A, b: B, c: C, /, **options: Unpack[ChildOptions]) -> SyncChild[R]: ...
    @overload
    def submit(
        self, task: Task4[A, B, C, D, R], a: A, b: B, c: C, d: D, /, **options: Unpack[ChildOptions]
    ) -> SyncChild[R]: ...
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
        **options: Unpack[ChildOptions],
    ) -> SyncChild[R]: ...

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
        **unknown: Any,
    ) -> SyncChild[Any]:
        """See Context."""
        child = self._wait(
            self._context.submit(
                task,
                *args,
                key=key,
                queue=queue,
                priority=priority,
                deadline=deadline,
                delay=delay,
                at=at,
                labels=labels,
                limits=limits,
                **unknown,
            )
        )
        return SyncChild(self, child)

    @property
    def state(self) -> AgentState:
        """See Context."""
        return self._context.state

    def patch(self, patch: StatePatch, *, reason: str = "", key: str | None = None) -> AgentState:
        """See Context."""
        return self._wait(self._context.patch(patch, reason=reason, key=key))

    def refresh_state(self, *, key: str | None = None) -> AgentState:
        """See Context."""
        return self._wait(self._context.refresh_state(key=key))

    def charge(self, *, steps: int = 0, llm_tokens: int = 0, cost: Decimal | float = 0, key: str | None = None) -> None:
        """See Context."""
        self._wait(self._context.charge(steps=steps, llm_tokens=llm_tokens, cost=cost, key=key))

    def progress(self, step: int, total: int | None = None, message: str = "", *, key: str | None = None) -> None:
        """See Context."""
        self._wait(self._context.progress(step, total, message, key=key))

    def now(self, *, key: str | None = None) -> datetime:
        """See Context."""
        return self._context.now(key=key)

    def random(self, *, key: str | None = None) -> float:
        """See Context."""
        return self._context.random(key=key)

    def uuid(self, *, key: str | None = None) -> uuid.UUID:
        """See Context."""
        return self._context.uuid(key=key)

    def branch(self, function: Callable[P, R]) -> Callable[P, R]:
        """See Context."""
        bound, threads, mine = self._context.branch(function), self._blocked.threads, id(self._calls)

        @wraps(function)
        def counted(*args: P.args, **kwargs: P.kwargs) -> R:
            threads.append(mine)
            try:
                return bound(*args, **kwargs)
            finally:
                threads.remove(mine)

        return counted

    def _wait(self, call: Coroutine[Any, Any, R]) -> R:
        try:
            if self._is_abandoned:
                if not self._blocked.is_stopped:  # otherwise it was counted when the call was made
                    self._blocked.is_refused_too_often()
                raise Unwind  # the work of this thread is not used any more
            return self._crossing.wait(self._counted(call))
        finally:
            discard(call)  # if it never started

    async def _counted(self, call: Coroutine[Any, Any, R]) -> R:
        """Run the call where the attempt can see and interrupt it."""
        task = asyncio.current_task()
        if task is None or self._is_abandoned:
            discard(call)
            raise Unwind  # the work of this thread is not used any more
        self._calls.add(task)
        try:
            return await call
        finally:
            self._calls.discard(task)


class SyncChild(Generic[R]):
    """A child task, as its blocking parent sees it."""

    __slots__ = ("_child", "_context", "id")

    def __init__(self, context: SyncContext, child: Child[R]) -> None:
        """Only ``ctx.submit`` creates these."""
        self.id = child.id
        self._context = context
        self._child = child

    def result(self) -> R:
        """See Child."""
        return self._context._wait(self._child.result())  # noqa: SLF001 - both belong to the same object
