"""A process to be killed: ``python killed_process.py URL`` commits step after step and prints each one made."""

from __future__ import annotations

import asyncio
import sys

from holdfast import NewTask, Step, StepState, open_store
from holdfast.model.commit import Commit, Held
from holdfast.model.operations import WriteStep
from holdfast.model.worker import Claim, NewWorker


async def main(url: str) -> None:
    async with open_store(url) as store:
        await store.submit([NewTask(id="victim", name="work")])
        worker = await store.register(NewWorker())
        (claimed,) = await store.claim(Claim(worker_id=worker.id, number=1, limit=1, names=("work",)))
        for n in range(1, 1_000_000):
            step = Step(key=f"s{n}", kind="step", position=n, state=StepState.COMPLETED, output=b'"%d"' % n)
            guard = Held(worker.id, claimed.fence, n)
            (verdict,) = await store.commit([Commit(task_id="victim", guard=guard, operations=(WriteStep(step),))])
            assert verdict.applied
            sys.stdout.write(f"{n}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
