"""One of many processes whose workers claim tasks of one limit: ``python limited_process.py URL SEED FOLDER``.

It prints that it is ready, and begins at a line of its input. Each task that it works on has a file in the folder
meanwhile, one of as many as the limit allows: where none is free, a task is too many, and the process fails. The
process with seed 0 only plays dead: its leases run out, again and again, and it never ends what it claims.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
from pathlib import Path

from holdfast import StateStore, TaskState, open_store
from holdfast.model.commit import Commit, Held
from holdfast.model.operations import Move
from holdfast.model.worker import Claim, Claimed, NewWorker

NAME, KEY = "crowd", "provider"
PLACES = 5
CLAIMERS = 21
"""In each process but the first."""
LEASE, SHORT_LEASE = 60.0, 0.3


async def main(url: str, seed: int, folder: Path) -> None:
    dice = random.Random(seed)
    async with open_store(url) as store:
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        sys.stdin.readline()
        if seed == 0:
            await play_dead(store)
        else:
            await asyncio.gather(*(work(store, dice, folder) for _ in range(CLAIMERS)))


async def play_dead(store: StateStore) -> None:
    for _ in range(5):
        worker = await store.register(NewWorker(lease=SHORT_LEASE))
        await store.claim(Claim(worker_id=worker.id, number=1, limit=2, names=(NAME,)))
        await asyncio.sleep(0.5)


async def work(store: StateStore, dice: random.Random, folder: Path) -> None:
    worker = await store.register(NewWorker(lease=LEASE))
    number = 0
    while True:
        number += 1
        await store.sweep()
        alone = number % 4 == 0
        claims = await store.claim(Claim(worker_id=worker.id, number=number, limit=2, names=(NAME,), alone=alone))
        for claimed in claims:
            await run(store, claimed, dice, folder)
        if not claims:
            if not set(await store.count()) - {TaskState.COMPLETED}:
                break
            await store.heartbeat(worker.id)
            await asyncio.sleep(dice.random() / 20)
    await store.retire(worker.id)


async def run(store: StateStore, claimed: Claimed, dice: random.Random, folder: Path) -> None:
    place = take_place(folder)
    await asyncio.sleep(dice.random() / 100)
    place.unlink()
    to = TaskState.PENDING if dice.random() < 0.2 else TaskState.COMPLETED
    guard = Held(claimed.task.owner or "", claimed.fence, 1)
    [verdict] = await store.commit(
        [Commit(task_id=claimed.task.id, guard=guard, operations=(Move(to=to, reason="done"),))]
    )
    assert verdict.applied, verdict


def take_place(folder: Path) -> Path:
    for number in range(PLACES):
        path = folder / str(number)
        try:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            continue
        return path
    raise AssertionError(f"more than {PLACES} tasks are at work")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])))
