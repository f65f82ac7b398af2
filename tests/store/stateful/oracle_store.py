"""The oracle behind the asynchronous contract, so that the contract suite can be tried on it and it on the suite."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import datetime
from typing import Any, Self

from holdfast.model.checks import check_moment, check_name
from holdfast.model.clock import Clock
from holdfast.model.errors import StoreClosed, StoreError
from holdfast.model.size import check_submission_size
from holdfast.store.base import Capabilities, Keeping, Listener, Reads, WorkVerbs
from holdfast.store.checks import (
    check_age,
    check_commits,
    check_limit,
    check_payload,
    check_queue,
    check_range,
    check_task,
)
from holdfast.store.facts import check_facts
from holdfast.store.hints import Hints
from holdfast.store.idparts import check_part
from holdfast.store.simple import SimpleInterface
from holdfast.store.upload import in_pieces
from tests.store.stateful.oracle import Oracle
from tests.store.stateful.oracle.tables import Tables

VERBS = sorted(verb for group in (WorkVerbs, Reads, Keeping) for verb in group.__abstractmethods__)


class _OpenOrClosed(SimpleInterface):
    """The part that is no verb. Everything is kept when it is closed, and gone when it is dropped."""

    capabilities = Capabilities(durable=False, multi_process=False, multi_machine=False, precise_hints=True)

    def __init__(self, clock: Clock) -> None:
        self.oracle = Oracle(clock)
        self._hints = Hints()
        self._is_open = False

    async def open(self) -> Self:
        if self._is_open:
            raise StoreError("the oracle is open already")
        self._is_open = True
        return self

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

    def ask(self, verb: str, *arguments: Any, **options: Any) -> Any:  # noqa: ANN401 - any verb
        if not self._is_open:
            raise StoreClosed("the oracle is closed")
        _check_at_the_door(verb, arguments, options)
        before = self.oracle.tables.copy()
        try:
            answer = getattr(self.oracle, verb)(*arguments, **options)
        except BaseException:
            self.oracle.tables = before
            raise
        self._hints.publish(_changed_topics(before, self.oracle.tables))
        return answer


def _check_at_the_door(verb: str, arguments: tuple[Any, ...], options: dict[str, Any]) -> None:  # noqa: C901 - one case a verb
    match verb:
        case "commit":
            check_commits(*arguments)
        case "submit":
            check_submission_size(arguments[0])
            for task in arguments[0]:
                check_task(task)
        case "emit":
            check_name("channel", arguments[0])
            check_payload("payload", arguments[1])
        case "prune":
            check_age(arguments[0])
        case "ids":
            check_part(*arguments)
        case "queued":
            check_queue(options.get("queue"))
        case "position":
            check_moment("before", options.get("before"))
        case "remember":
            check_facts(arguments, options.get("seen"))
        case "read_artifact":
            check_range(options.get("offset", 0), options.get("length"))
    if "limit" in options:
        check_limit(options["limit"])


async def _whole(argument: Any) -> Any:  # noqa: ANN401 - of any verb
    """Read a stream to its end: the oracle has no time in which half of it could be there."""
    if isinstance(argument, AsyncIterable):
        return b"".join([piece async for piece in in_pieces(argument)])
    return argument


def _changed_topics(before: Tables, after: Tables) -> set[str]:
    changed = [row for task_id, row in after.tasks.items() if before.tasks.get(task_id) != row]
    channels = [name for name, number in after.event_numbers.items() if before.event_numbers.get(name) != number]
    return (
        {f"task:{row.task.id}" for row in changed}
        | {f"queue:{row.task.queue}" for row in changed if row.ready}
        | {f"channel:{channel}" for channel in channels}
    )


def _verb(name: str) -> Callable[..., Awaitable[Any]]:
    async def ask(self: _OpenOrClosed, *arguments: Any, **options: Any) -> Any:  # noqa: ANN401 - any verb
        return self.ask(name, *[await _whole(argument) for argument in arguments], **options)

    return ask


OracleStore: type[_OpenOrClosed] = type("OracleStore", (_OpenOrClosed,), {name: _verb(name) for name in VERBS})
"""A store made of the oracle."""
