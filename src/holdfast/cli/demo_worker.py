"""The worker process of ``holdfast demo``: it claims a deployment and does ten steps, each durable before the next.

Runs as ``python -m holdfast.cli.demo_worker NAME LEDGER``, with the store's URL in HOLDFAST_DATABASE_URL. The ledger is
a plain file outside the store: it counts what really happened.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from holdfast.model.commit import Commit, Held
from holdfast.model.operations import Move, WriteStep
from holdfast.model.step import Step, StepState
from holdfast.model.transitions import TaskState
from holdfast.model.worker import Claim, Claimed, NewWorker
from holdfast.store import StateStore, open_store

STEPS = (
    *("check-status", "collect-config", "build-image", "run-tests", "push-image"),
    *("backup-database", "migrate-schema", "apply-manifests", "wait-for-health", "switch-traffic"),
)
LEASE = 1.5
"""Seconds: short, so that nobody waits long for the take-over. A real worker takes 30."""

FATAL_STEP = STEPS[7]

_STEP_SECONDS = 0.15
_FATAL_STEP_SECONDS = 1.0
"""Long enough that the kill surely comes in the middle, also on a busy machine."""
_POLL_SECONDS = 0.1


async def work(url: str, name: str, ledger: Path) -> None:
    """Wait for the deployment of this name, go on where it stands, and finish it."""
    async with open_store(url) as store:
        worker = await store.register(NewWorker(label="demo", lease=LEASE))
        heart = asyncio.create_task(_beat(store, worker.id))
        claimed = await _next_task(store, worker.id, name)
        await _deploy(store, claimed, ledger)
        heart.cancel()
        await store.retire(worker.id)


async def _next_task(store: StateStore, worker_id: str, name: str) -> Claimed:
    number = 0
    while True:
        await store.sweep()  # takes back what a dead worker left
        number += 1
        claims = await store.claim(Claim(worker_id=worker_id, number=number, limit=1, names=(name,)))
        if claims:
            return claims[0]
        await asyncio.sleep(_POLL_SECONDS)


async def _deploy(store: StateStore, claimed: Claimed, ledger: Path) -> None:
    loaded = await store.load(claimed.task.id)
    done = {step.key for step in loaded.steps if step.state is StepState.COMPLETED}
    sequence = 0

    async def commit(*operations: WriteStep | Move) -> None:
        nonlocal sequence
        sequence += 1
        guard = Held(claimed.task.owner or "", claimed.fence, sequence)
        (verdict,) = await store.commit([Commit(task_id=claimed.task.id, guard=guard, operations=operations)])
        if not verdict.applied:
            raise verdict.error()

    for position, name in enumerate(STEPS, 1):
        if name in done:
            continue
        _note(ledger, "began", name)
        await asyncio.sleep(_FATAL_STEP_SECONDS if name == FATAL_STEP else _STEP_SECONDS)
        _note(ledger, "did", name)
        step = Step(key=name, kind="step", position=position, state=StepState.COMPLETED, fence=claimed.fence)
        await commit(WriteStep(step))
    await commit(Move(to=TaskState.COMPLETED, reason="work done, no verifier", result="billing is live"))


def _note(ledger: Path, what: str, step: str) -> None:
    with ledger.open("a", encoding="utf-8") as file:
        file.write(f"{what} {step}\n")


async def _beat(store: StateStore, worker_id: str) -> None:
    while True:
        await asyncio.sleep(LEASE / 3)
        await store.heartbeat(worker_id)


if __name__ == "__main__":
    asyncio.run(work(os.environ["HOLDFAST_DATABASE_URL"], sys.argv[1], Path(sys.argv[2])))
