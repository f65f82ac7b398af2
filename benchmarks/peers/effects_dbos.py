"""DBOS: ``python -m benchmarks.peers.effects_dbos FILE ERRANDS`` (see errand.py).

A workflow of five steps, recovered as DBOS documents it for a single machine: launching with the executor id of the
process that died recovers its pending workflows.
"""

from __future__ import annotations

import asyncio
import os
from typing import Any

from dbos import DBOS, SetWorkflowID  # type: ignore[import-not-found]

from benchmarks.peers.errand import STEPS, perform, read_arguments, run_all

DATABASE, ERRANDS = read_arguments()


async def _step(order: str, step: str) -> str:
    return await perform(ERRANDS, order, step)


step: Any = DBOS.step()(_step)


async def _run_order(order: str) -> None:
    for name in STEPS:
        await step(order, name)


run_order: Any = DBOS.workflow()(_run_order)


async def run(order: str) -> None:
    """Start the order's workflow, unless it has been started, and wait for its end."""
    with SetWorkflowID(order):
        handle = await DBOS.start_workflow_async(run_order, order)
    await handle.get_result(polling_interval_sec=0.05)


def main() -> None:
    """Recover unfinished orders, then run the rest."""
    config: dict[str, Any] = {"name": "errands", "system_database_url": f"sqlite:///{DATABASE}", "executor_id": "local"}
    DBOS(config=config)
    DBOS.launch()
    asyncio.run(run_all(ERRANDS, run))
    os._exit(0)  # its threads would take seconds to stop


if __name__ == "__main__":
    main()
