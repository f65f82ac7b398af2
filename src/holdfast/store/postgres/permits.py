"""Permits of steps: taken before a call, given back after it, and freed when their worker died."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec

from holdfast.model.flow_limit import PermitAnswer, PermitRequest, PermitReturn, check_keys
from holdfast.store.postgres.database import Database
from holdfast.store.postgres.parameters import TextArray

_TASKS_FIRST = 0.02
"""Seconds by which the steps that wait for a limit hear later of a free place than the tasks that wait for it."""

_to_json = msgspec.json.Encoder().encode


async def take_permits(db: Database, requests: Sequence[PermitRequest]) -> list[PermitAnswer]:
    """See FlowVerbs."""
    document = [
        {
            "n": n,
            "id": request.id,
            "task_id": request.task_id,
            "worker_id": request.worker_id,
            "keys": check_keys(request.keys),
            "tokens": request.tokens,
            "lasts": request.lasts,
            "valid_for": request.valid_for,
        }
        for n, request in enumerate(requests)
    ]
    answers = await db.fetch("take_permits", _to_json(document).decode(), db.at())
    return [
        PermitAnswer(granted=granted, waits_for=waits_for, paused=paused, again_at=again_at)
        for _, granted, waits_for, paused, again_at in answers
    ]


async def return_permits(db: Database, returned: Sequence[PermitReturn]) -> None:
    """See FlowVerbs."""
    by_id = {one.id: one.tokens for one in reversed(returned)}  # of the same id twice, the first counts
    [(hints,)] = await db.fetch("return_permits", TextArray(by_id), list(by_id.values()))
    queues = [topic for topic in hints if topic.startswith("queue:")]
    db.publish(queues or hints)
    if queues:  # steps would always come before tasks, which a claim has to let out of their line first
        asyncio.get_running_loop().call_later(_TASKS_FIRST, db.publish, hints)


async def sweep_permits(db: Database, limit: int) -> None:
    """Delete the requests of dead workers, and free those of their permits whose calls are over."""
    [(hints,)] = await db.fetch("sweep_permits", limit, db.at())
    db.publish(hints)
