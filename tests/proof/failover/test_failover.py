"""PostgreSQL fails over under load, again and again: nothing is lost, paid twice or stranded, and every worker goes on.

A primary has a streaming standby, to which every commit goes before it is acknowledged. Each fail-over begins with a
time in which nothing can be written, often longer than a lease. Then the standby is promoted, and gets a standby of its
own. It started long ago, so that only the workers know that no lease could be renewed.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import psycopg
import pytest

from holdfast import Holdfast, TaskState
from holdfast.model.worker import WorkerState
from tests.conftest import SOAK
from tests.postgres_server import PostgresServer, start_postgres, start_standby
from tests.proof.engine.conditions import eventually
from tests.proof.engine.evidence import Evidence
from tests.proof.engine.processes import WorkerProcess, while_alive, workers
from tests.proof.engine.worker_process import evidence_in, gate_in
from tests.proof.failover import payments_process
from tests.proof.failover.forwarder import Forwarder
from tests.proof.failover.payments_process import PAYMENTS, SLOTS, payments

FAILOVERS = 10 if SOAK else 2
LABELS = ("one", "three", "two") if SOAK else ("one", "two")
TASKS, RESTLESS = 40, SLOTS * (len(LABELS) - 1) + 2
"""More restless ones than all workers but one have slots: whichever claims first, each of them has some to the end."""

LEASE = 3.0
LONG, SHORT = LEASE + 1.0, 2.0
"""Seconds without a primary. A long time ends all leases; a short one is just long enough to be logged."""


def is_long(failover: int) -> bool:
    """Both kinds of fail-over are long and short in turn."""
    return failover % 4 in {0, 3}


LONG_ONES = sum(map(is_long, range(FAILOVERS)))


class Pair:
    """A primary and its standby, behind one address."""

    def __init__(self, version: int, servers: ExitStack) -> None:
        self._servers = servers
        self.primary = servers.enter_context(start_postgres(version))
        self.standby = self._new_standby()

    def _new_standby(self) -> PostgresServer:
        """Start a standby, and return once every commit waits for it."""
        standby = self._servers.enter_context(start_standby(self.primary))
        self.primary.set("synchronous_standby_names", "*")
        with psycopg.connect(self.primary.url(), autocommit=True) as connection:
            give_up_at = time.monotonic() + 60
            while connection.execute("SELECT sync_state FROM pg_stat_replication").fetchall() != [("sync",)]:
                assert time.monotonic() < give_up_at
                time.sleep(0.01)
        return standby

    async def fail_over(self, address: Forwarder, *, planned: bool, window: float) -> None:
        """Promote the standby; nothing can be written for a while before.

        Planned, the old primary becomes read-only before it is stopped. Otherwise it crashes, and its clients find the
        standby, which can only be read so far.
        """
        old, new = self.primary, self.standby
        if planned:
            await asyncio.to_thread(old.set, "default_transaction_read_only", "on")
            await asyncio.sleep(window)
            await asyncio.to_thread(old.stop, "fast")
        else:
            await asyncio.to_thread(old.stop, "immediate")
            address.lead_to(new)
            await asyncio.sleep(window)
        await asyncio.to_thread(new.promote)
        address.lead_to(new)
        self.primary = new
        await asyncio.to_thread(old.close)
        self.standby = await asyncio.to_thread(self._new_standby)


@pytest.fixture
def pair(postgres18: PostgresServer) -> Iterator[Pair]:
    """Servers of its own; where the shared one is missing, these would be."""
    with ExitStack() as servers:
        yield Pair(postgres18.version, servers)


async def until_all_have_paid(crew: list[WorkerProcess], evidence: Evidence) -> None:
    """Wait until each worker has had another payment acknowledged."""
    seen = len(evidence.lines("durable"))
    pids = {worker.pid for worker in crew}
    await while_alive(
        crew, "every worker goes on", lambda: {line.pid for line in evidence.lines("durable")[seen:]} == pids
    )


@pytest.mark.usefixtures("seeds")  # a soak makes it long
async def test_nothing_is_lost_doubled_or_stranded_by_failovers(pair: Pair, tmp_path: Path) -> None:
    evidence = evidence_in(tmp_path)
    dbname = psycopg.conninfo.conninfo_to_dict(pair.primary.create_database())["dbname"]
    async with Forwarder(pair.primary) as address:
        url = f"postgresql://holdfast@127.0.0.1:{address.port}/{dbname}"
        hold = Holdfast(url)
        paying = payments(hold, tmp_path)
        async with hold:
            handles = await hold.submit_many(paying, [(number, number < RESTLESS) for number in range(TASKS)])
        numbers = itertools.count(TASKS)
        with workers(url, tmp_path, *LABELS, lease=LEASE, program=payments_process.__name__) as crew:
            for failover in range(FAILOVERS):
                await until_all_have_paid(crew, evidence)
                window = LONG if is_long(failover) else SHORT
                await pair.fail_over(address, planned=failover % 2 == 0, window=window)
                async with hold:  # acknowledged by the new primary
                    handles += await hold.submit_many(paying, [(next(numbers), False) for _ in range(TASKS // 4)])
            await until_all_have_paid(crew, evidence)
            gate_in(tmp_path).touch()
            async with hold:

                async def all_ended() -> bool:
                    return set(await hold.store.count()) == {TaskState.COMPLETED}

                await eventually("all is paid", all_ended)
                results = [await handle.result(timeout=60) for handle in map(hold.handle, [one.id for one in handles])]
                doubts, incarnations = await hold.doubts(), await hold.store.workers()
                recorded = {(one.id, 1, step.key) for one in handles for step in await hold.store.steps(one.id)}
            for worker in crew:
                assert not worker.said("Traceback"), worker.log.read_text()
                began, ended = worker.said("the store cannot be used now"), worker.said("the store can be used again")
                # Once each. A short one is not logged by a worker that did not need the store for most of it.
                assert LONG_ONES <= len(began) == len(ended) <= FAILOVERS, worker.log.read_text()
                await worker.drain()
        assert results == list(range(len(handles)))
        assert doubts == []
        # No worker was taken for dead, and none started over.
        assert sorted((one.label, one.state) for one in incarnations) == [(label, WorkerState.LIVE) for label in LABELS]
        runs = evidence.runs()
        assert set(runs.values()) == {1}, "paid twice"
        assert not [key for _, _, key in runs if key.startswith("refund")]
        assert runs.keys() >= {(handle.id, 1, key) for handle in handles for key in PAYMENTS}
        assert runs.keys() == {line.step for line in evidence.lines("durable")} == recorded, "lost"
        evidence.check_nothing_ran_again()
