"""PgQueuer: ``python drive_pgqueuer.py URL '{"tasks": 10000, "batch": 100}'``; prints jobs a second."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import time
from datetime import timedelta
from typing import Any

import asyncpg  # type: ignore[import-untyped]
from pgqueuer import PgQueuer  # type: ignore[import-not-found]
from pgqueuer.db import AsyncpgDriver  # type: ignore[import-not-found]
from pgqueuer.queries import Queries  # type: ignore[import-not-found]
from pgqueuer.types import QueueExecutionMode  # type: ignore[import-not-found]

AT_ONCE = 1000


async def _noop(job: Any) -> None:  # noqa: ANN401 - PgQueuer's Job
    """Do nothing."""


async def drain(url: str, tasks: int, batch: int) -> float:
    """Install, enqueue in bulk, then time one worker that empties the queue."""
    connection = await asyncpg.connect(url)
    queries = Queries(AsyncpgDriver(connection))
    await queries.install()
    for start in range(0, tasks, AT_ONCE):
        count = min(AT_ONCE, tasks - start)
        await queries.enqueue(["noop"] * count, [b"0"] * count, [0] * count)
    worker = PgQueuer.from_asyncpg_connection(await asyncpg.connect(url))
    worker.entrypoint("noop")(_noop)
    began = time.perf_counter()
    await worker.run(batch_size=batch, mode=QueueExecutionMode.drain, dequeue_timeout=timedelta(seconds=1))
    elapsed = time.perf_counter() - began
    left = await connection.fetchval("SELECT count(*) FROM pgqueuer")
    if left:
        raise SystemExit(f"PgQueuer left {left} jobs behind")
    return tasks / elapsed


def main(url: str, sizes: str) -> None:
    """Print jobs a second."""
    logging.disable(logging.INFO)
    print(json.dumps(asyncio.run(drain(url, **json.loads(sizes)))), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
