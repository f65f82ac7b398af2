"""The oracle behind the asynchronous contract, so that the contract suite can be tried on it and it on the suite."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import datetime
from inspect import signature
from typing import Any

from holdfast.model.clock import Clock
from holdfast.model.errors import StoreClosed, StoreError
from holdfast.store.backend import Backend, Listener
from holdfast.store.base import Capabilities
from holdfast.store.hints import LocalHints
from holdfast.store.outage import Outage
from holdfast.store.simple import SimpleInterface
from tests.store.stateful.oracle import Oracle
from tests.store.stateful.oracle.tables import Tables

NO_VERBS = {"open", "close", "now", "listen", "transact", "begin_upload", "stage", "finish_upload", "discard_upload"}
"""What is done here, and what the oracle does not have: it has no time in which half of a stream could be there."""
OTHERWISE_NAMED = {"put_whole": "put_artifact"}
VERBS = sorted(Backend.__abstractmethods__ - NO_VERBS)


class _OpenOrClosed(Backend):
    """The part that is not a verb. Everything is kept when it is closed, and gone when it is dropped."""

    def __init__(self, clock: Clock) -> None:
        self.oracle = Oracle(clock)
        self.outage = Outage()
        self._hints = LocalHints()
        self._is_open = False

    async def open(self) -> None:
        if self._is_open:
            raise StoreError("the oracle is open already")
        self._is_open = True

    async def close(self) -> None:
        self._is_open = False

    async def now(self) -> datetime:
        return self.oracle.now()

    def listen(self) -> AbstractAsyncContextManager[Listener]:
        return self._listening()

    @asynccontextmanager
    async def _listening(self) -> AsyncIterator[Listener]:
        async with self._hints.listening() as listener:
            yield listener

    async def put_stream(self, pieces: AsyncIterator[bytes], media_type: str) -> Any:  # noqa: ANN401 - an Artifact
        return await self.put_whole(b"".join([piece async for piece in pieces]), media_type)

    def ask(self, verb: str, arguments: dict[str, Any]) -> Any:  # noqa: ANN401 - any verb
        if not self._is_open:
            raise StoreClosed("the oracle is closed")
        before = self.oracle.tables.copy()
        try:
            answer = getattr(self.oracle, OTHERWISE_NAMED.get(verb, verb))(*arguments.pop("facts", ()), **arguments)
        except BaseException:
            self.oracle.tables = before
            raise
        self._hints.publish(_changed_topics(before, self.oracle.tables))
        return answer


def _changed_topics(before: Tables, after: Tables) -> set[str]:
    changed = [row for task_id, row in after.tasks.items() if before.tasks.get(task_id) != row]
    channels = [name for name, number in after.event_numbers.items() if before.event_numbers.get(name) != number]
    freed = [row.task for row in changed if row.task.owner is None or row.task.resting]
    raised = [name for name, settings in after.queues.items() if before.queues.get(name) != settings]
    return (
        {f"task:{row.task.id}" for row in changed}
        | {f"queue:{name}" for name in [*raised, *(task.queue for task in freed if task.queue in after.queues)]}
        | {f"queue:{row.task.queue}" for row in changed if row.ready}
        | {f"channel:{channel}" for channel in channels}
        | (before.pauses.keys() - after.pauses.keys())
        | _room(after)
    )


def _room(after: Tables) -> set[str]:
    """Whatever may have made room for what waits for a limit."""
    keys = {f"limit:{key}" for key in after.keys}
    queues = {f"queue:{row.task.queue}" for row in after.tasks.values() if row.task.limits and row.ready}
    return keys | queues


def _verb(name: str) -> Callable[..., Awaitable[Any]]:
    names = signature(getattr(Backend, name))

    async def ask(*arguments: Any, **options: Any) -> Any:  # noqa: ANN401 - any verb
        given = dict(names.bind(*arguments, **options).arguments)
        return given.pop("self").ask(name, given)

    return ask


async def _absent(*_: Any) -> None:  # noqa: ANN401 - never called
    raise NotImplementedError


_Oracle: type[_OpenOrClosed] = type(
    "_Oracle",
    (_OpenOrClosed,),
    {
        **dict.fromkeys(NO_VERBS & set(_OpenOrClosed.__abstractmethods__), _absent),
        **{name: _verb(name) for name in VERBS},
    },
)


class OracleStore(SimpleInterface):
    """A store made of the oracle."""

    capabilities = Capabilities(durable=False, multi_process=False, multi_machine=False, precise_hints=True)
    _backend: _OpenOrClosed

    def __init__(self, clock: Clock) -> None:
        super().__init__(_Oracle(clock))
