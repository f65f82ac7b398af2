"""One of many processes that claim from the same store: ``python claiming_process.py URL SEED LOG``.

Prints that it is ready, and begins on request. Claims in batches and completes what it claims. Now and then it
plays dead: it lets its lease run out in the middle of a batch, comes back after another worker has taken its tasks, and
tries to complete them all the same. Every claim and every accepted completion goes to the log, one line each.
"""

from __future__ import annotations

import asyncio
import random
import sys
from pathlib import Path
from typing import TextIO

from holdfast import StateStore, TaskState, WorkerDead, open_store
from holdfast.model.commit import Commit, Held, Refusal
from holdfast.model.operations import Move
from holdfast.model.worker import Claim, Claimed, NewWorker

NAME = "claimers"
LEASE = 60.0
"""Seconds, of one that lives: no busy machine takes its tasks away from it."""
SHORT_LEASE = 0.6
"""Seconds, of one that will play dead with its first batch."""
BATCH = 50
DEATHS = 2
PATIENCE = 60.0


async def main(url: str, seed: int, log: Path) -> None:
    dice = random.Random(seed)
    async with open_store(url) as store:
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        sys.stdin.readline()
        with log.open("w") as lines:
            for _ in range(DEATHS if seed else 0):  # another worker has to be there to notice
                await live(store, seed, lines, batches=dice.randrange(8))
                await play_dead(store, seed, lines)
            await live(store, seed, lines)


async def live(store: StateStore, seed: int, lines: TextIO, *, batches: int | None = None) -> None:
    """Work as one incarnation for so many batches, or until everything is done."""
    worker = await store.register(NewWorker(label=f"claimers-{seed}", lease=LEASE))
    number = 0
    while batches is None or number < batches:
        await store.sweep()
        number += 1
        claims = await store.claim(Claim(worker_id=worker.id, number=number, limit=BATCH, names=(NAME,)))
        if not claims:  # a task that two workers died with is handed only to one that runs nothing else
            number += 1
            claims = await store.claim(Claim(worker_id=worker.id, number=number, limit=1, names=(NAME,), alone=True))
        note(lines, claims)
        if not claims and await finished(store):
            break
        lines.writelines(await complete(store, worker.id, claims))
        await store.heartbeat(worker.id)
    await store.retire(worker.id)


async def play_dead(store: StateStore, seed: int, lines: TextIO) -> None:
    """Claim one batch, be silent until nothing of it is left to this incarnation, and come back."""
    worker = await store.register(NewWorker(label=f"claimers-{seed}", lease=SHORT_LEASE))
    try:
        claims = await store.claim(Claim(worker_id=worker.id, number=1, limit=BATCH, names=(NAME,)))
    except WorkerDead:  # a busy machine: too slow for its own lease
        return
    note(lines, claims)
    async with asyncio.timeout(PATIENCE):
        while await store.owned(worker.id):  # noqa: ASYNC110 - others take them
            await asyncio.sleep(0.05)
    lines.write(f"slept {len(claims)}\n")
    lines.writelines(await complete(store, worker.id, claims))


def note(lines: TextIO, claims: list[Claimed]) -> None:
    lines.writelines(f"claimed {claimed.task.id} {claimed.fence}\n" for claimed in claims)


async def finished(store: StateStore) -> bool:
    return not set(await store.count()) - {TaskState.COMPLETED}


async def complete(store: StateStore, worker_id: str, claims: list[Claimed]) -> list[str]:
    move = Move(to=TaskState.COMPLETED, reason="done", result=worker_id)
    verdicts = await store.commit(
        [Commit(task_id=c.task.id, guard=Held(worker_id, c.fence, 1), operations=(move,)) for c in claims]
    )
    assert {verdict.refusal for verdict in verdicts} <= {None, Refusal.SUPERSEDED}
    return [
        f"{'completed' if verdict.applied else 'refused'} {claimed.task.id} {claimed.fence}\n"
        for claimed, verdict in zip(claims, verdicts, strict=True)
    ]


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])))
