"""AsyncHoldfast: all operations of an application on its tasks, for code on an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager
from datetime import datetime, timedelta
from os import getpid
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Protocol, Self, TypeVar, Unpack, overload

from holdfast.engine.api.definition import Bound, Definitions, TaskDefinition
from holdfast.engine.api.handle import Handle
from holdfast.engine.api.management import Managing
from holdfast.engine.api.new_task import handle_of, new_task, submit_task
from holdfast.engine.api.schedules import Scheduling
from holdfast.engine.api.signatures import (
    A,
    B,
    C,
    D,
    StartOptions,
    SubmitOptions,
    Task0,
    Task1,
    Task2,
    Task3,
    Task4,
    refuse_for_function,
    refuse_for_task,
)
from holdfast.engine.api.start import SUBMITTER, ArtifactNames, Facts, Start, link_artifacts, starting
from holdfast.engine.api.sync.context import SyncContext
from holdfast.engine.attempt.context import Context
from holdfast.engine.manage.artifacts import Artifacts
from holdfast.engine.manage.memory import Memory
from holdfast.engine.manage.message import INBOX
from holdfast.engine.runtime.services import MOST_SUBMITTED, Services
from holdfast.engine.runtime.where import running_loop
from holdfast.engine.schedules.times import Times, declared_spec
from holdfast.engine.steps.transaction import TIMEOUT, transact
from holdfast.engine.worker.run_one import run_task
from holdfast.engine.worker.worker import Worker
from holdfast.model.agent_state import AgentState
from holdfast.model.budget import Budget
from holdfast.model.clock import Clock
from holdfast.model.deadline import as_seconds
from holdfast.model.errors import HoldfastError, InvalidValue, StoreClosed
from holdfast.model.patch import StatePatch
from holdfast.model.records import Event
from holdfast.model.retry import Retry
from holdfast.model.schedule import UTC_ZONE, CatchUp, Overlap
from holdfast.model.size import batches, task_size
from holdfast.model.task import DEFAULT_QUEUE, IfExists, JsonValue
from holdfast.process_fork import Owner
from holdfast.redaction import without_password
from holdfast.settings import current_settings, store_options
from holdfast.store.clock import SystemClock
from holdfast.store.simple import SimpleInterface
from holdfast.store.transaction import OPEN_HERE, refuse_inside
from holdfast.store.url import make_store

P = ParamSpec("P")
R = TypeVar("R")


class AsyncHoldfast(Managing, Scheduling):
    """Define tasks, submit them, run them, query them. ``Holdfast`` adds the same for blocking code."""

    def __init__(self, url: str | None = None, *, clock: Clock | None = None, **options: Any) -> None:  # noqa: ANN401
        """See Holdfast."""
        self.url: str = url or current_settings()["database_url"]
        self.definitions = Definitions()
        self._clock = clock or SystemClock()
        self.options = options
        """Options for opening the store, in addition to its URL."""
        self._services: Services | None = None
        self._opened = AsyncExitStack()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._turn: tuple[asyncio.AbstractEventLoop, asyncio.Lock] | None = None
        self._depth = 0
        self._owner: Owner | None = None
        self._memory = Memory(lambda: self.services)
        self._artifacts = Artifacts(lambda: self.services)
        make_store(self.url, clock=clock, **options)  # rejects an invalid URL here, not at the first use

    # Definitions

    @overload
    def task(self, function: Callable[Concatenate[Context, P], Awaitable[R]], /) -> TaskDefinition[P, R]: ...
    @overload
    def task(self, function: Callable[Concatenate[SyncContext, P], R], /) -> TaskDefinition[P, R]: ...
    @overload
    def task(
        self,
        function: None = None,
        /,
        *,
        name: str | None = None,
        queue: str = DEFAULT_QUEUE,
        priority: int = 0,
        retry: Retry | None = None,
        deadline: float | timedelta | None = None,
        agent_id: str | None = None,
        budget: Budget | None = None,
        limits: Sequence[str] = (),
        cron: str | None = None,
        every: float | timedelta | None = None,
        timezone: str = UTC_ZONE,
        jitter: float | timedelta = 0,
        overlap: Overlap | str = Overlap.SKIP,
        catch_up: CatchUp | str = CatchUp.LAST,
    ) -> _TaskDecorator: ...

    def task(
        self,
        function: Callable[..., Any] | None = None,
        /,
        *,
        name: str | None = None,
        queue: str = DEFAULT_QUEUE,
        priority: int = 0,
        retry: Retry | None = None,
        deadline: float | timedelta | None = None,
        agent_id: str | None = None,
        budget: Budget | None = None,
        limits: Sequence[str] = (),
        cron: str | None = None,
        every: float | timedelta | None = None,
        timezone: str = UTC_ZONE,
        jitter: float | timedelta = 0,
        overlap: Overlap | str = Overlap.SKIP,
        catch_up: CatchUp | str = CatchUp.LAST,
    ) -> Any:
        """Make a function a task: ``@hold.task`` or ``@hold.task(queue="deploys", retry=Retry(max_attempts=5))``.

        Its first parameter is the context: a Context for async functions, a SyncContext for blocking ones, which run
        in threads. ``deadline`` counts from the submission. Without ``retry`` a task gets three attempts. ``budget``
        limits what its code charges with ``ctx.charge``, and its wall time. ``limits`` are keys of limits, as for
        ``submit``; each of its tasks has them.

        With ``cron`` or ``every``, workers that have this task submit it by themselves, without arguments, under a
        schedule of the task's name: ``@hold.task(cron="0 7 * * mon-fri", timezone="Europe/Berlin")``. The options are
        those of ``schedule``.
        """
        times = Times(cron=cron, every=every, timezone=timezone, jitter=jitter, overlap=overlap, catch_up=catch_up)

        def define(function: Callable[..., Any]) -> TaskDefinition[..., Any]:
            definition: TaskDefinition[..., Any] = TaskDefinition(
                function,
                name=name,
                queue=queue,
                priority=priority,
                retry=retry,
                deadline=deadline,
                agent_id=agent_id,
                budget=budget,
                limits=limits,
            )
            definition.schedule = declared_spec(definition, times, self._clock.now())
            return self.register(definition)

        if function is None:
            return define
        return define(function)

    def register(self, definition: TaskDefinition[P, R] | DefinesTask[P, R]) -> TaskDefinition[P, R]:
        """Register a definition made elsewhere, or an object that defines a task, such as a Machine.

        Returns the definition, for ``submit``. Workers claim only registered tasks.
        """
        made = definition if isinstance(definition, TaskDefinition) else _make_definition(definition)
        self.definitions.add(made)
        return made

    # Opening

    async def __aenter__(self) -> Self:
        """Open the store. A store that sets itself up or migrates itself does so now."""
        self._check_process()
        loop = asyncio.get_running_loop()
        if self._loop is not None and self._loop is not loop:
            raise HoldfastError(
                "this Holdfast is open in another event loop; close it there, or make one Holdfast for each loop"
            )
        async with self._turns(loop):
            self._loop = loop
            if self._depth == 0:
                self._owner = Owner(without_password(self.url))
                try:
                    await self._open()
                except BaseException:
                    self._loop = self._owner = None
                    raise
            self._depth += 1
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the store at the end of the outermost block. A forked child that leaves its parent's block does not."""
        if self._owner is not None and self._owner.is_other:
            return
        async with self._turns(asyncio.get_running_loop()):
            self._depth -= 1
            if self._depth == 0:
                self._services = self._loop = self._owner = None
                await self._opened.aclose()

    def _check_process(self) -> None:
        if self._owner is not None and self._owner.pid != getpid():
            self._owner.check()

    def _turns(self, loop: asyncio.AbstractEventLoop) -> asyncio.Lock:
        """Return the lock of this loop: callers that open and close at the same time take turns."""
        if self._turn is None or self._turn[0] is not loop:
            self._turn = loop, asyncio.Lock()
        return self._turn[1]

    async def _open(self) -> None:
        store = make_store(self.url, clock=self._clock, **(store_options(self.url) | self.options))
        async with AsyncExitStack() as opened:
            await opened.enter_async_context(store)
            services = Services(store, self._clock, self.definitions)
            opened.push_async_callback(services.close)
            await services.time.ask()
            self._services = services
            self._opened = opened.pop_all()

    @contextmanager
    def redirected(self, url: str, *, clock: Clock) -> Iterator[None]:
        """Use another store and another clock until the block ends: for tests of the tasks defined here."""
        if self._depth:
            raise HoldfastError(f"this Holdfast is open on {without_password(self.url)}; close it first")
        before = self.url, self._clock, self.options
        self.url, self._clock, self.options = url, clock, {}
        try:
            yield
        finally:
            self.url, self._clock, self.options = before

    @property
    def services(self) -> Services:
        """The open store and the services around it."""
        self._check_process()
        if OPEN_HERE.get(None) is not None:
            refuse_inside("hold")
        if self._loop is not None and running_loop() not in {self._loop, None}:
            raise HoldfastError(
                "this Holdfast is open in another event loop; from a thread, use asyncio.run_coroutine_threadsafe(..., "
                "loop) with that loop, or make another Holdfast for this one"
            )
        if self._services is None:
            raise StoreClosed(
                f"{without_password(self.url)} is not open; use it inside `async with hold:` or `with hold.sync as h:`"
            )
        return self._services

    @property
    def store(self) -> SimpleInterface:
        """The open store."""
        store = self.services.store
        assert isinstance(store, SimpleInterface)  # noqa: S101 - make_store made it
        return store

    @property
    def memory(self) -> Memory:
        """Facts that outlive tasks: ``await hold.memory.store("alice", "likes", "tea")``."""
        return self._memory

    @property
    def artifacts(self) -> Artifacts:
        """Large outputs, stored once under their hash: ``await hold.artifacts.write(Path("build.log"))``."""
        return self._artifacts

    # Submitting

    @overload
    async def submit(self, task: Bound[R], **options: Unpack[SubmitOptions]) -> Handle[R]: ...
    @overload
    async def submit(self, task: str, *args: object, **options: Unpack[SubmitOptions]) -> Handle[Any]: ...
    @overload
    async def submit(self, task: Task0[R], /, **options: Unpack[SubmitOptions]) -> Handle[R]: ...
    @overload
    async def submit(self, task: Task1[A, R], a: A, /, **options: Unpack[SubmitOptions]) -> Handle[R]: ...
    @overload
    async def submit(self, task: Task2[A, B, R], a: A, b: B, /, **options: Unpack[SubmitOptions]) -> Handle[R]: ...
    @overload
    async def submit(
        self, task: Task3[A, B, C, R], a: A, b: B, c: C, /, **options: Unpack[SubmitOptions]
    ) -> Handle[R]: ...
    @overload
    async def submit(
        self, task: Task4[A, B, C, D, R], a: A, b: B, c: C, d: D, /, **options: Unpack[SubmitOptions]
    ) -> Handle[R]: ...
    @overload
    async def submit(
        self,
        task: TaskDefinition[..., R],
        a: object,
        b: object,
        c: object,
        d: object,
        e: object,
        /,
        *more: object,
        **options: Unpack[SubmitOptions],
    ) -> Handle[R]: ...

    async def submit(
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
        after: Handle[Any] | str | None = None,
        state: AgentState | None = None,
        plan: Sequence[str] | None = None,
        facts: Facts | None = None,
        artifacts: ArtifactNames | None = None,
        connection: object = None,
        **unknown: Any,
    ) -> Handle[Any]:
        """Store a task and return its handle at once; a worker in any process runs it.

        The same ``key`` again with the same arguments returns the same task; with other arguments it is a KeyConflict.
        ``deadline`` is a moment, or a time from now. No worker claims the task before ``delay`` has passed, or before
        the moment ``at``.
        ``limits`` are keys of limits that were set with ``hold.limit``, such as ``["tenant:acme"]``: the task waits in
        its queue until each of them has a place, and has these places while it works. They add to those of its
        definition. Raises NotFound for a limit that was never set.
        ``labels`` are names with values, by which listings find it: ``{"tenant": "acme"}``. Children have them, too.
        ``after`` is for agents: a task that has ended, whose state and conversation this one continues.

        ``if_exists`` says what to do if a task has the ``key``: ``"return"`` is as above. ``"replace"`` gives a task
        that was never claimed the new arguments, options, labels and time, and leaves one alone that was claimed.
        ``"reject"`` raises TaskExists.

        ``debounce`` collects submissions with one ``key``: the task begins this long after the last of them, with the
        arguments of the last one, and ``debounce_max`` after the first one at the latest (by default ten times
        ``debounce``). Once a worker has claimed it, the next submission is a new task, which takes over the key.

        ``state``, ``plan``, ``facts`` and ``artifacts`` are for agents, too: what the AgentState holds from the
        beginning. They count as arguments, so the same ``key`` with other ones is a KeyConflict. Constraints and budget
        of the state can only tighten the agent's own. Without a text, the goal of the state is the text.

        ``connection`` is a connection of your own to the database of this store in PostgreSQL, with an open
        transaction: a psycopg.AsyncConnection, or SQLAlchemy's AsyncConnection or AsyncSession. The task is part of
        that transaction: it exists if and only if you commit it, and workers find it within a second. For SQLite see
        ``transaction``.

        Arguments are checked against the annotations of the task's function and converted as pydantic does it, here and
        only once. If an argument does not fit, InvalidValue is raised and nothing is stored. Arguments are stored
        unchecked only if the task is not defined here and is submitted by its name and ``queue``.
        """
        refuse_for_task("hold.submit", task, unknown, SubmitOptions.__annotations__)
        return await submit_task(
            self.services,
            task,
            args,
            start=Start(state=state, plan=plan, facts=facts, artifacts=artifacts),
            after=None if after is None else self._handle(after).id,
            key=key,
            queue=queue,
            priority=priority,
            deadline=deadline,
            delay=delay,
            at=at,
            labels=labels,
            limits=limits,
            if_exists=if_exists,
            debounce=debounce,
            debounce_max=debounce_max,
            agent_id=agent_id,
            connection=connection,
        )

    async def submit_many(
        self,
        task: TaskDefinition[..., R] | str,
        many: Iterable[Sequence[Any]],
        **options: Any,  # noqa: ANN401
    ) -> list[Handle[R]]:
        """Submit one task for each tuple of arguments, in as few transactions as possible."""
        services = self.services
        now = services.time.now()
        listed = list(many)
        for args in listed:
            if isinstance(args, str | bytes) or not isinstance(args, Sequence):
                raise InvalidValue(
                    f"submit_many takes a tuple of arguments for each task, not {args!r}; write ({args!r},)"
                )
        known = [one for one in SubmitOptions.__annotations__ if one not in {"after", "connection"}]
        unknown = {name: value for name, value in options.items() if name not in known}
        refuse_for_task("hold.submit_many", task, unknown, known)
        start = Start(**{name: options.pop(name) for name in StartOptions.__annotations__ if name in options})
        bound: list[tuple[Any, tuple[Any, ...]]] = [(task, tuple(args)) for args in listed]
        given = StatePatch()
        if not start.is_empty:
            with_start, given = await starting(services.store, self.definitions, task, listed, start)
            bound = [(one, ()) for one in with_start]
        made = [new_task(self.definitions, one, args, now=now, **options) for one, args in bound]
        handles: list[Handle[R]] = []
        for some in batches(made, lambda one: task_size(one[0]), most=MOST_SUBMITTED):
            answers = await services.store.submit([new for new, _ in some])
            handles += [
                await handle_of(services, new, answer, definition)
                for (new, definition), answer in zip(some, answers, strict=True)
            ]
        await link_artifacts(services.store, [handle.id for handle in handles], given, by=SUBMITTER)
        return handles

    def handle(self, task_id: str, returns: Any = Any) -> Handle[Any]:  # noqa: ANN401
        """Return the handle of a task that was submitted before, by any process."""
        return Handle(self.services, task_id, returns)

    async def emit(
        self, channel: str, payload: JsonValue = None, *, key: str | None = None, actor: str = "user"
    ) -> Event:
        """Send an event to the tasks that wait on a channel. It is stored: a task that waits later finds it.

        The same ``key`` again on the channel adds no event.
        """
        if channel.startswith(INBOX):
            raise InvalidValue(f"{channel!r} is the inbox of an agent; use hold.send(task, text)")
        return await self.services.store.emit(channel, payload, key=key, actor=actor)

    @overload
    async def transaction(
        self,
        function: Callable[..., Coroutine[Any, Any, R]],
        *args: Any,  # noqa: ANN401
        timeout: float | timedelta = TIMEOUT,
    ) -> R: ...
    @overload
    async def transaction(
        self,
        function: Callable[..., R],
        *args: Any,  # noqa: ANN401
        timeout: float | timedelta = TIMEOUT,
    ) -> R: ...

    async def transaction(
        self, function: Callable[..., Any], *args: Any, timeout: float | timedelta = TIMEOUT, **unknown: Any
    ) -> Any:
        """Run ``function(tx, *args)`` in a transaction of the store's database: for your own tables.

        ``tx.execute`` runs a statement, and ``tx.submit`` submits a task that exists if and only if the transaction is
        committed. It belongs to no task and writes no journal line. For a transaction of a task, see
        Context.transaction.
        """
        refuse_for_function("hold.transaction", function, unknown, ["timeout"])
        if not callable(function):
            raise InvalidValue(f"{function!r} cannot be called; pass a function, and its arguments after it")
        seconds = as_seconds(timeout, what="the timeout of a transaction")
        return await transact(self.services, function, args, timeout=seconds)

    # Working

    def worker(
        self,
        *,
        queues: Sequence[str] | str | None = None,
        concurrency: int | None = None,
        residents: int | None = None,
        lease: float | None = None,
        grace: float | None = None,
        label: str | None = None,
    ) -> Worker:
        """Return a worker for the defined tasks: ``async with hold.worker(concurrency=100):``.

        ``queues`` are by default those of the defined tasks. ``concurrency`` (100) limits the tasks that work; up to
        ``residents`` (1,000) more may wait on the worker for something outside. A worker that is silent for ``lease``
        (30) seconds counts as dead, and its tasks go to other workers. When it stops, tasks get ``grace`` (20) seconds
        to finish. An omitted option comes from HOLDFAST_WORKER_* or from ``[worker]`` in holdfast.toml, then from these
        defaults.
        """
        settings = current_settings()
        listed = settings["worker.queues"] if queues is None else queues
        return Worker(
            self.services,
            queues=[listed] if isinstance(listed, str) else listed,
            concurrency=settings["worker.concurrency"] if concurrency is None else concurrency,
            residents=settings["worker.residents"] if residents is None else residents,
            lease=settings["worker.lease"] if lease is None else lease,
            label=settings["worker.label"] if label is None else label,
            grace=settings["worker.grace"] if grace is None else grace,
        )

    @overload
    async def run(self, task: Handle[R], *, resume: bool = False, lease: float | None = None) -> R: ...
    @overload
    async def run(self, task: str, *, resume: bool = False, lease: float | None = None) -> Any: ...  # noqa: ANN401

    async def run(self, task: Handle[Any] | str, *, resume: bool = False, lease: float | None = None) -> Any:
        """Run one task in this process until it has ended, and return its result.

        The task stays in this process until then, even if workers are alive. If a worker holds it already, or it waits,
        this call waits. A completed task is not run again: its result is returned. A failed task raises its failure;
        with ``resume`` it continues where it stopped, as with ``hold.resume``. ``lease``: as for a worker.
        """
        if resume:
            await self.resume(task)
        seconds = current_settings()["worker.lease"] if lease is None else lease
        return await run_task(self.services, self._handle(task).id, lease=seconds)


class DefinesTask(Protocol[P, R]):
    """An object that defines a task, such as a Machine."""

    def task_definition(self) -> TaskDefinition[P, R]:
        """Return its task definition."""
        ...


def _make_definition(source: DefinesTask[P, R]) -> TaskDefinition[P, R]:
    if not hasattr(source, "task_definition"):
        raise InvalidValue(f"{source!r} is not a task definition; decorate a function with @hold.task instead")
    return source.task_definition()


class _TaskDecorator(Protocol):
    """What ``hold.task(...)`` returns."""

    @overload
    def __call__(self, function: Callable[Concatenate[Context, P], Awaitable[R]], /) -> TaskDefinition[P, R]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[SyncContext, P], R], /) -> TaskDefinition[P, R]: ...
