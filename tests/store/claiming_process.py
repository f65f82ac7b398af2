"""One of many processes that claim from the same store: ``python claiming_process.py URL SEED LOG``.

Claims in batches and completes what it claims. Now and then it plays dead: it stops renewing its lease in the middle
of a batch, comes back after somebody else may have taken its tasks, and tries to complete them all the same.
Every claim and every accepted completion goes to the log, one line each.
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

NAME = "crowd"
LEASE = 0.6
BATCH = 50
DEATHS = 2


async def main(url: str, seed: int, log: Path) -> None:
    dice = random.Random(seed)
    async with open_store(url) as store:
        with log.open("w") as lines:
            deaths = 0
            while not await finished(store):
                try:
                    deaths += await live(store, seed, lines, dice, may_die=deaths < DEATHS)
                except WorkerDead:  # a busy machine: too slow for its own lease
                    lines.write("late\n")


async def live(store: StateStore, seed: int, lines: TextIO, dice: random.Random, *, may_die: bool) -> bool:
    """Work as one incarnation until everything is done, or until death; say whether it played dead."""
    worker = await store.register(NewWorker(label=f"crowd-{seed}", lease=LEASE))
    number = 0
    while True:
        await store.sweep()
        number += 1
        claims = await store.claim(Claim(worker_id=worker.id, number=number, limit=BATCH, names=(NAME,)))
        alone = not claims
        if alone:  # a task that two workers died with is handed only to one that runs nothing else
            number += 1
            claims = await store.claim(Claim(worker_id=worker.id, number=number, limit=1, names=(NAME,), alone=True))
        lines.writelines(f"claimed {claimed.task.id} {claimed.fence}\n" for claimed in claims)
        if not claims and await finished(store):
            await store.retire(worker.id)
            return False
        plays_dead = may_die and not alone and dice.random() < 0.1
        if plays_dead:
            await asyncio.sleep(LEASE * dice.uniform(1.2, 2))
            lines.write(f"slept {len(claims)}\n")
        lines.writelines(await complete(store, worker.id, claims))
        if plays_dead:
            return True
        await store.heartbeat(worker.id)


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
