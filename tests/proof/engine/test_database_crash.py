"""PostgreSQL crashes under load, again and again: every errand is run, once, by workers that only had to wait."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from holdfast import Holdfast, TaskState
from holdfast.model.worker import WorkerState
from tests.postgres_server import PostgresServer, start_postgres
from tests.proof.engine.conditions import eventually
from tests.proof.engine.evidence import Evidence
from tests.proof.engine.processes import while_alive, workers
from tests.proof.engine.worker_process import ERRAND_STEPS, errand, evidence_in, gate_in

TASKS, RESTLESS = 300, 60
STEPS = TASKS * len(ERRAND_STEPS)
LEASE = 20.0
"""Longer than all crashes together: only the database dies here."""


@pytest.fixture
def server(postgres18: PostgresServer) -> Iterator[PostgresServer]:
    """A server of its own, as it is crashed; where the shared one is missing, this one would be."""
    with start_postgres(postgres18.version) as own:
        yield own


def has_done(evidence: Evidence, steps: int) -> bool:
    return len(evidence.lines("durable")) > steps


@pytest.mark.parametrize("store_retries", [True, False])
async def test_nothing_is_lost_or_done_twice_when_the_database_crashes(
    server: PostgresServer, tmp_path: Path, store_retries: bool
) -> None:
    """A short absence is bridged by the store itself; one that outlasts its patience, by the engine."""
    url, evidence = server.create_store(), evidence_in(tmp_path)
    hold = Holdfast(url)
    errands = errand(hold, tmp_path)
    async with hold:
        # The last ones go on until the gate opens: a crash never comes too late, however fast the machine is.
        handles = await hold.submit_many(errands, [(number, number >= TASKS - RESTLESS) for number in range(TASKS)])

    with workers(url, tmp_path, "one", "two", lease=LEASE, retry_for=10.0 if store_retries else 0.0) as pair:
        done = [0]
        await while_alive(pair, "both are at work", lambda: len({line.pid for line in evidence.lines("ran")}) == 2)
        for _ in range(2):
            await while_alive(pair, "work is under way", partial(has_done, evidence, done[-1] + STEPS // 5))
            done.append(len(evidence.lines("durable")))
            server.restart("immediate")
            # And again at once, while the workers find their way back.
            server.restart("immediate")
        gate_in(tmp_path).touch()
        began = time.monotonic()
        async with hold:

            async def all_ended() -> bool:
                return set(await hold.store.count()) == {TaskState.COMPLETED}

            await eventually("all errands are run", all_ended)
            took = time.monotonic() - began
            results = [await hold.handle(handle.id).result(timeout=10) for handle in handles]
            incarnations = await hold.store.workers()
        for worker in pair:
            assert worker.is_alive
            assert store_retries or worker.said("the store cannot be used now")
            assert not worker.said("Traceback")
            await worker.drain()

    assert store_retries or any(worker.said("the store can be used again") for worker in pair)
    assert results == [number * len(ERRAND_STEPS) for number in range(TASKS)]
    # No worker was taken for dead and none started over, so nothing had a reason to run twice.
    assert sorted((worker.label, worker.state) for worker in incarnations) == [
        ("one", WorkerState.LIVE),
        ("two", WorkerState.LIVE),
    ]
    runs = evidence.runs()
    assert set(runs.values()) == {1}
    assert runs.keys() >= {(handle.id, 1, key) for handle in handles for key in ERRAND_STEPS}
    assert runs.keys() == {line.step for line in evidence.lines("durable")}
    evidence.check_nothing_ran_again()
    print(f"crashes after {done[1:]} of {len(runs)} steps; all was done {took:.1f} s after the last")  # noqa: T201
