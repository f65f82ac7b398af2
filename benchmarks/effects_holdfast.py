"""Holdfast: ``python -m benchmarks.effects_holdfast FILE ERRANDS`` (see peers/errand.py).

``mode`` chooses how the three calls are declared:

    reconcile    ``once``, and the ledger can be asked whether a call was made
    human        ``once``, and only a person can decide; this program plays the person and reads the ledger
    idempotent   not at all: a plain step, which is run again, as in the peers
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from benchmarks.peers.errand import CALLS, STEPS, business_key, perform, read_arguments, run_all, say, was_called
from holdfast import Absent, Conflict, Context, Doubt, Happened, Holdfast

LEASE = 2.0
"""Seconds: short, so that a take-over comes soon."""

TIMEOUT, SETTLE = 2.0, 3.0
"""Seconds: a call whose caller hung up is over by then, even if a busy machine delays the ledger. A call that happened
after the ledger was asked about it would be made twice."""

DATABASE, ERRANDS = read_arguments()

hold = Holdfast(f"sqlite:///{DATABASE}")


async def do(order: str, step: str) -> str:
    """Do one step."""
    return await perform(ERRANDS, order, step)


async def ask_the_ledger(_effect_id: str, order: str, step: str) -> Happened | Absent:
    """Find out whether a call was made: the engine calls this if it does not know."""
    key = business_key(order, step)
    say("doubt", key)
    return Happened(f"{order} {step}") if await was_called(ERRANDS, key) else Absent()


def terms_of(step: str) -> dict[str, Any]:
    """Return how the step is declared."""
    if step not in CALLS or ERRANDS.mode == "idempotent":
        return {}
    once = {"effect": "once", "timeout": TIMEOUT, "settle": SETTLE}
    return once | {"reconcile": ask_the_ledger} if ERRANDS.mode == "reconcile" else once


@hold.task
async def run_order(ctx: Context, order: str) -> None:
    """Run one order."""
    for step in STEPS:
        await ctx.step(step, do, order, step, **terms_of(step))


async def run(order: str) -> None:
    """Submit the order, unless it has been submitted, and wait for its end."""
    await (await hold.submit(run_order, order, key=order)).result()


async def decide_doubts() -> None:
    """Play the person: decide every doubt by what the ledger has recorded."""
    while True:
        for doubt in await hold.doubts():
            if doubt.decisions:
                await decide(doubt)
        await asyncio.sleep(0.05)


async def decide(doubt: Doubt) -> None:
    """Decide a doubt by what the ledger has recorded."""
    order, step = doubt.arguments
    key = business_key(order, step)
    say("doubt", key)
    decision = "happened" if await was_called(ERRANDS, key) else "absent"
    with contextlib.suppress(Conflict):  # another worker plays the same person
        await hold.resolve(doubt, decision, result=f"{order} {step}" if decision == "happened" else None, by="judge")


async def main() -> None:
    """Take over unfinished orders, then run the rest."""
    async with hold, hold.worker(concurrency=1, lease=LEASE), asyncio.TaskGroup() as group:
        person = group.create_task(decide_doubts())
        await run_all(ERRANDS, run)
        person.cancel()


if __name__ == "__main__":
    asyncio.run(main())
