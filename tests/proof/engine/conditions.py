"""Waiting for something to become true, and never for a time that is hoped to be long enough."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

import psycopg

PATIENCE = 60.0
"""Seconds a condition gets before its waiter gives up; an idle machine needs one or two."""


async def eventually(
    what: str, condition: Callable[[], Awaitable[bool] | bool], *, within: float = PATIENCE, every: float = 0.02
) -> None:
    """Return as soon as the condition holds; fail, naming it, when it does not in time."""
    give_up_at = time.monotonic() + within
    while True:
        holds = condition()
        if await holds if isinstance(holds, Awaitable) else holds:
            return
        assert time.monotonic() < give_up_at, f"not within {within:g} s: {what}"
        await asyncio.sleep(every)


async def until_alone(url: str) -> None:
    """Return when what a killed process had sent is over: PostgreSQL finishes it, and only then looks for its client.

    In a file, nothing of a dead process goes on.
    """
    if not url.startswith("postgresql"):
        return
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:

        async def is_alone() -> bool:
            found = await connection.execute(
                "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
                " AND backend_type = 'client backend' AND pid <> pg_backend_pid()"
            )
            return await found.fetchone() == (0,)

        await eventually("no other client is connected", is_alone)
