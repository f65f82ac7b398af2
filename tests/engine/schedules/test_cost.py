"""Where there are no schedules, workers ask for none: the look at the clock is part of the sweep's own statement."""

from __future__ import annotations

from collections import Counter
from typing import Any

from holdfast import Holdfast
from holdfast.store.postgres import PostgresStore
from holdfast.store.sqlite import SqliteStore
from tests.engine.schedules.support import HOUR, define
from tests.engine.support import until

VERBS = ("put_schedule", "delete_schedule", "schedule", "schedules", "due_schedules", "workers")


async def test_a_store_without_due_schedules_is_asked_for_none(database_url: str) -> None:
    """Neither by a worker that starts nor by one that looks; one that is not due costs nothing either."""
    hold = Holdfast(database_url)
    job = define(hold)
    async with hold:
        for _ in range(2):
            asked: Counter[str] = Counter()
            count_calls(hold, asked)

            async def looked_often(asked: Counter[str] = asked) -> bool:
                return asked["sweep"] >= 3

            async with hold.worker():
                await until(looked_often)
            assert asked["sweep"] >= 3
            assert {verb: asked[verb] for verb in VERBS if verb != "workers"} == dict.fromkeys(VERBS[:-1], 0)
            await hold.schedule("far", job, every=1000 * HOUR)


def count_calls(hold: Holdfast, asked: Counter[str]) -> None:
    """Count the calls of the store's verbs."""
    store: Any = hold.store
    for verb in (*VERBS, "sweep"):
        original = getattr(type(store), verb)

        def counting(*args: Any, verb: str = verb, original: Any = original, **options: Any) -> Any:  # noqa: ANN401
            asked[verb] += 1
            return original(store, *args, **options)

        setattr(store, verb, counting)


async def test_a_sweep_is_as_many_statements_as_before(database_url: str) -> None:
    """On PostgreSQL one; on SQLite the only one about schedules is the one about whatever is due next."""
    async with Holdfast(database_url) as hold:
        store: Any = hold.store
        sent: list[str] = []
        if isinstance(store, SqliteStore):
            assert store._backend.writer is not None

            def trace(_: object, statement: str, __: object) -> bool:
                sent.append(statement)
                return True

            store._backend.writer._connection.exec_trace = trace
            await store.sweep()
            store._backend.writer._connection.exec_trace = None
            assert len([statement for statement in sent if "schedules" in statement]) == 1
        else:
            assert isinstance(store, PostgresStore)
            await store.sweep()  # the first one of a minute looks after the feed
            fetch = store._backend.fetch_with_new_values

            async def note(name: str, *values: Any, **options: Any) -> Any:  # noqa: ANN401
                sent.append(name)
                return await fetch(name, *values, **options)

            store._backend.fetch_with_new_values = note  # type: ignore[method-assign, assignment]
            await store.sweep()
            assert sent == ["sweep"]
