"""The application of the demo: a deployment in ten steps. Its workers are ``holdfast worker`` processes."""

from __future__ import annotations

import asyncio
from pathlib import Path

from holdfast.cli.demo.ledger import What, note
from holdfast.engine.context import Context
from holdfast.engine.holdfast import Holdfast

STEPS = (
    *("check-status", "collect-config", "build-image", "run-tests", "push-image"),
    *("backup-database", "migrate-schema", "apply-manifests", "wait-for-health", "switch-traffic"),
)
FATAL_STEP = STEPS[7]

_SECONDS = 0.15
_FATAL_SECONDS = 1.5
"""Long enough that the kill surely comes in the middle, also on a busy machine."""

hold = Holdfast()


@hold.task(name="holdfast-demo")
async def deploy(ctx: Context, service: str, ledger: str) -> str:
    """Deploy a service: each step is durable before the next one begins, and a completed one is not done again."""
    for name in STEPS:
        await ctx.step(name, perform, name, ledger)
        note(Path(ledger), What.PASSED, name)  # the code between steps runs again on every replay
    return f"{service} is live"


async def perform(name: str, ledger: str) -> None:
    """Do the step's work: take some time, and leave a trace outside the store."""
    note(Path(ledger), What.BEGAN, name)
    await asyncio.sleep(_FATAL_SECONDS if name == FATAL_STEP else _SECONDS)
    note(Path(ledger), What.DID, name)
