"""A worker of its own process: ``python -m tests.proof.engine.worker_process URL FOLDER LABEL LEASE OPTIONS``.

OPTIONS are the store's, as JSON. Works until SIGTERM. Everything it does to the world, and all that was acknowledged,
goes to the evidence in FOLDER; its log goes to standard error.
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
from tests.proof.engine.conditions import eventually
from tests.proof.engine.evidence import Evidence, note_acknowledgements

STEPS = tuple(f"step-{number}" for number in range(1, 11))
GATED_STEP = "step-8"
ERRAND_STEPS = STEPS[:4]


def evidence_in(folder: Path) -> Evidence:
    return Evidence(folder / "evidence")


def gate_in(folder: Path) -> Path:
    """The file that must exist before the gated step gets any further."""
    return folder / "gate"


def ten_steps(hold: Holdfast, folder: Path) -> TaskDefinition[[], int]:
    """Define the case study: ten steps, the eighth of which stays inside until the gate is open."""
    evidence, gate = evidence_in(folder), gate_in(folder)

    @hold.task(name="ten-steps")
    async def ten_steps(ctx: Context) -> int:
        async def act(number: int) -> int:
            key = STEPS[number - 1]
            evidence.ran(ctx.task_id, ctx.task.round, key)
            if key == GATED_STEP:
                await eventually("the gate is open", gate.exists)
            return number

        return sum([await ctx.step(key, act, number) for number, key in enumerate(STEPS, start=1)])

    return ten_steps


def errand(hold: Holdfast, folder: Path) -> TaskDefinition[..., int]:
    """Define a short task, of which there are many. A restless one goes on doing steps until the gate is open."""
    evidence, gate = evidence_in(folder), gate_in(folder)

    @hold.task(name="errand")
    async def errand(ctx: Context, number: int, restless: bool = False) -> int:  # noqa: FBT002 - a task's input
        async def act(key: str, seconds: float) -> int:
            evidence.ran(ctx.task_id, ctx.task.round, key)
            await asyncio.sleep(seconds)
            return number

        total = sum([await ctx.step(key, act, key, 0.01) for key in ERRAND_STEPS])
        for beat in itertools.count(1):
            if not restless or gate.exists():
                return total
            await ctx.step(f"beat-{beat}", act, f"beat-{beat}", 0.1)
        raise AssertionError

    return errand


async def main(url: str, folder: Path, label: str, lease: float, options: dict[str, Any]) -> None:
    hold = Holdfast(url, **options)
    ten_steps(hold, folder)
    errand(hold, folder)

    def make_noting_store(url: str, **options: Any) -> StateStore:  # noqa: ANN401 - as make_store
        store = make_store(url, **options)
        note_acknowledgements(store, evidence_in(folder))
        return store

    with mock.patch("holdfast.engine.api.async_holdfast.make_store", make_noting_store):
        async with hold, hold.worker(lease=lease, label=label, concurrency=20) as worker:
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, worker.drain)
            await worker.join()


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
    _, url, folder, label, lease, options = sys.argv
    asyncio.run(main(url, Path(folder), label, float(lease), json.loads(options)))
