"""A worker of its own process that makes payments.

    python -m tests.proof.failover.payments_process URL FOLDER LABEL LEASE OPTIONS

OPTIONS are the store's, as JSON. Works until SIGTERM. Every payment, and what was acknowledged, goes to the evidence in
FOLDER.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import signal
import sys
from pathlib import Path
from typing import Any
from unittest import mock

from holdfast import Context, Holdfast, StateStore, TaskDefinition, make_store
from tests.proof.engine.evidence import note_acknowledgements
from tests.proof.engine.worker_process import evidence_in, gate_in

PAYMENTS = ("pay-1", "pay-2")
SLOTS = 4


def payments(hold: Holdfast, folder: Path) -> TaskDefinition[[int, bool], int]:
    """Define a task that pays and can be undone. A restless one goes on paying until the gate is open."""
    evidence, gate = evidence_in(folder), gate_in(folder)

    @hold.task(name="payments")
    async def payments(ctx: Context, number: int, restless: bool = False) -> int:  # noqa: FBT002 - a task's input
        async def pay(key: str, seconds: float) -> int:
            evidence.ran(ctx.task_id, ctx.task.round, key)
            await asyncio.sleep(seconds)
            return number

        async def refund(result: int, key: str, seconds: float) -> None:
            del result, seconds
            evidence.ran(ctx.task_id, ctx.task.round, f"refund-of-{key}")

        for key in PAYMENTS:
            await ctx.step(key, pay, key, 0.02, effect="once", compensate=refund)
        for beat in itertools.count(1):
            if not restless or gate.exists():
                return number
            await ctx.step(f"beat-{beat}", pay, f"beat-{beat}", 0.1, effect="once")
        raise AssertionError

    return payments


async def main(url: str, folder: Path, label: str, lease: float, options: dict[str, Any]) -> None:
    hold = Holdfast(url, **options)
    payments(hold, folder)

    def make_noting_store(url: str, **options: Any) -> StateStore:  # noqa: ANN401 - as make_store
        store = make_store(url, **options)
        note_acknowledgements(store, evidence_in(folder))
        return store

    with mock.patch("holdfast.engine.api.async_holdfast.make_store", make_noting_store):
        async with hold, hold.worker(lease=lease, label=label, concurrency=SLOTS) as worker:
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, worker.drain)
            await worker.join()


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
    _, url, folder, label, lease, options = sys.argv
    asyncio.run(main(url, Path(folder), label, float(lease), json.loads(options)))
