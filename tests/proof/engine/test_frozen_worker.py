"""A worker that sleeps through its lease: it wakes up, writes nothing, logs so once, and works again."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import Any

from holdfast import Holdfast, StateStore
from holdfast.model.worker import WorkerState
from holdfast.testing.snapshot import snapshot
from tests.proof.engine.conditions import eventually
from tests.proof.engine.processes import WorkerProcess, while_alive, workers
from tests.proof.engine.worker_process import GATED_STEP, STEPS, errand, evidence_in, gate_in, ten_steps


async def test_a_frozen_worker_changes_nothing_and_works_again(url: str, tmp_path: Path) -> None:
    hold, evidence = Holdfast(url), evidence_in(tmp_path)
    errands = errand(hold, tmp_path)
    async with hold:
        handle = await hold.submit(ten_steps(hold, tmp_path))
        with workers(url, tmp_path, "one", "two") as pair:
            await while_alive(pair, "a worker is inside step 8", lambda: (handle.id, 1, GATED_STEP) in evidence.runs())
            inside = evidence.lines("ran")[-1].pid
            [sleeper] = [worker for worker in pair if worker.pid == inside]
            [heir] = [worker for worker in pair if worker is not sleeper]
            await freeze_outside_transactions(sleeper, url)
            gate_in(tmp_path).touch()  # so that the sleeper, too, will want to record step 8 when it wakes up
            assert await handle.result(timeout=60) == sum(range(1, 11))
            await heir.drain()
            before = await everything_about(hold.store, handle.id)

            sleeper.thaw()
            await eventually("the sleeper lets go of the task", lambda: bool(sleeper.said("another worker has it")))
            later = await hold.submit(errands, 5)
            assert await later.result(timeout=60) == 20
            assert await everything_about(hold.store, handle.id) == before
            incarnations = [worker for worker in await hold.store.workers() if worker.label == sleeper.label]
            await sleeper.drain()

    # The sleeper was inside step 8, had its record refused, and ran nothing of that task afterwards.
    assert [line.step[2] for line in evidence.lines("ran") if line.pid == sleeper.pid][:8] == list(STEPS[:8])
    assert evidence.runs()[handle.id, 1, GATED_STEP] == 2
    evidence.check_nothing_ran_again()
    assert len(sleeper.said("another worker has it")) == 1
    assert len(sleeper.said("was silent for longer than its lease")) == 1
    assert not sleeper.said("Traceback")
    # It works on under a fresh incarnation.
    assert sorted(worker.state for worker in incarnations) == [WorkerState.DEAD, WorkerState.LIVE]
    assert {line.pid for line in evidence.lines("ran") if line.step[0] == later.id} == {sleeper.pid}


async def freeze_outside_transactions(worker: WorkerProcess, url: str) -> None:
    """Stop the process, and not while it holds SQLite's one write lock: no worker could take anything over then."""

    def is_outside() -> bool:
        worker.freeze()
        if not url.startswith("sqlite") or may_write(Path(url.removeprefix("sqlite:///"))):
            return True
        worker.thaw()
        return False

    await eventually("the worker is between two transactions", is_outside)


def may_write(database: Path) -> bool:
    gate = os.open(f"{database}-gate", os.O_RDWR)
    try:
        fcntl.flock(gate, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    else:
        return True
    finally:
        os.close(gate)


async def everything_about(store: StateStore, task_id: str) -> dict[str, Any]:
    return {name: rows for name, rows in (await snapshot(store)).items() if task_id in name}
