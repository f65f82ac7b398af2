"""Leases on SQLite are counted on the machine's boot clock."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import apsw
import pytest

from holdfast import ManualClock, NewTask, StoreUnavailable, WorkerDead
from holdfast.model.flow_limit import Limit, PermitRequest, PermitReturn
from holdfast.model.worker import Claim, NewWorker
from holdfast.store.sqlite import SqliteStore
from holdfast.store.sqlite.store import SqliteBackend
from tests.ready_schema import new_file
from tests.store.limit_counters import check_counters


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def store(tmp_path: Path, clock: ManualClock) -> SqliteStore:  # type: ignore[misc]
    async with SqliteStore(new_file(tmp_path / "agents.db"), clock=clock) as opened:
        await opened.submit([NewTask(id="held", name="work")])
        await opened.register(NewWorker(id="w", lease=30))
        assert await opened.claim(Claim(worker_id="w", number=1, limit=1, names=("work",)))
        yield opened


async def test_no_worker_is_declared_dead_right_after_a_full_disk(store: SqliteStore, clock: ManualClock) -> None:
    """While nothing could be written, no worker could renew a lease."""
    assert store._backend.writer is not None
    commit = store._backend.writer._commit

    def full(connection: apsw.Connection) -> None:
        del connection
        raise apsw.FullError("database or disk is full")

    store._backend.writer._commit = full
    for _ in range(2):
        clock.advance(20)
        with pytest.raises(StoreUnavailable, match="could not grow"):
            await store.heartbeat("w")
    store._backend.writer._commit = commit
    assert (await store.sweep()).recovered == ()
    clock.advance(30)
    assert (await store.sweep()).recovered == ("held",)


@pytest.mark.parametrize("jump", [86_400, -86_400])
async def test_a_jump_of_the_wall_clock_expires_nothing(store: SqliteStore, clock: ManualClock, jump: float) -> None:
    clock.jump_wall(jump)
    assert (await store.sweep()).recovered == ()
    await store.heartbeat("w")


async def test_a_lease_ends_by_the_boot_clock_whatever_the_wall_clock_says(
    store: SqliteStore, clock: ManualClock
) -> None:
    clock.jump_wall(-86_400)
    clock.advance(30)
    assert (await store.sweep()).recovered == ("held",)


async def test_a_reboot_ends_every_lease_at_once(store: SqliteStore, clock: ManualClock) -> None:
    clock.advance(5)
    clock.reboot()
    assert (await store.sweep()).recovered == ("held",)
    with pytest.raises(WorkerDead):
        await store.heartbeat("w")


async def test_a_reboot_without_a_boot_id_is_seen_by_the_clock_going_back(
    store: SqliteStore, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Systems without a boot id have one constant name for all boots."""
    clock.advance(1000)
    await store.heartbeat("w")
    boot_id = clock.boot_id
    clock.reboot()
    monkeypatch.setattr(ManualClock, "boot_id", boot_id)
    assert (await store.sweep()).recovered == ("held",)


async def test_a_clock_that_is_set_back_closes_no_limit(store: SqliteStore, clock: ManualClock) -> None:
    """Calls count on for their time, and not until the clock shows again what it showed when they began."""
    await store.set_limit(Limit(name="calls", rate=1, tokens=10, per=timedelta(seconds=10)))
    await store.set_limit(Limit(name="place", concurrency=1))
    await store.set_limit(Limit(name="tasks", rate=1, per=timedelta(seconds=10)))

    async def take(permit_id: str, key: str, worker_id: str = "w") -> bool:
        request = PermitRequest(
            id=permit_id, task_id="held", worker_id=worker_id, keys=[key], lasts=5.0, tokens=2 if key == "calls" else 0
        )
        [answer] = await store.take_permits([request])
        return answer.granted

    async def claimed(number: int) -> list[str]:
        claim = Claim(worker_id="w", number=number, limit=10, names=("limited",))
        return [one.task.id for one in await store.claim(claim)]

    await store.register(NewWorker(id="dead", lease=30))
    await store.submit([NewTask(id=name, name="limited", limits=("tasks",)) for name in ("first", "second")])
    assert await take("a", "calls")
    assert await take("b", "place", "dead")
    assert await claimed(2) == ["first"]
    await store.retire("dead")
    clock.jump_wall(-3600)
    await store.sweep()
    assert not await take("next", "calls")
    assert await take("a", "calls")  # its answer was lost
    await store.return_permits([PermitReturn(id="a", tokens=5)])
    assert [(use.calls, use.tokens) for use in await store.limit_uses("calls")] == [(1, 5)]
    clock.advance(12)
    await store.sweep()
    await store.heartbeat("w")
    assert await take("next", "calls")
    assert await take("after", "place")
    assert await claimed(3) == ["second"]
    backend = store._backend
    assert isinstance(backend, SqliteBackend)
    assert backend.reader is not None
    check_counters(backend.reader.connection)
