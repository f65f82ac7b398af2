"""An engine that remembers nothing: ``python -m tests.benchmarks.careless_engine FILE ERRANDS``.

It runs everything from the beginning. In ``mode`` "lingering" its first process stays where it is after a charge, until
another one has run everything. In "troubled" it fails the first order, hangs in the second, and crashes in the third.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from benchmarks.peers.errand import STEPS, perform, read_arguments, run_all


async def main() -> None:
    database, errands = read_arguments()
    began, ended = Path(database), Path(f"{database}-ended")
    is_first = not began.exists()
    began.touch()

    async def run(order: str) -> None:
        if errands.mode == "troubled":
            await be_in_trouble(order)
        for step in STEPS:
            if errands.mode == "lingering" and is_first and step == "ship":
                await until_exists(ended)
            await perform(errands, order, step)

    await run_all(errands, run)
    if not is_first:
        ended.touch()
        await asyncio.sleep(0.5)  # time for a first one that was not really stopped to show itself


async def until_exists(file: Path) -> None:
    while not file.exists():  # noqa: ASYNC110 - another process makes it
        await asyncio.sleep(0.01)


async def be_in_trouble(order: str) -> None:
    if order == "order-1":
        raise ValueError("cannot do this\none")
    if order == "order-2":
        await asyncio.Event().wait()
    print("this is how it ends", file=sys.stderr)  # noqa: T201
    sys.exit(3)


if __name__ == "__main__":
    asyncio.run(main())
