"""Events that overlap with a submission, and rows that came from another cluster."""

import asyncio

import pytest

from holdfast.model.commit import Commit, Held
from holdfast.model.operations import Emit, Move, SubmitChild, UntilEvent
from holdfast.model.task import NewTask
from holdfast.model.transitions import TaskState
from holdfast.store.postgres import PostgresStore
from holdfast.store.postgres.batch import encode_batch
from holdfast.store.sqlfiles import migrations
from tests.store.postgres.support import claimed, execute, held, outside, paused

RECORDED = "SELECT event_position FROM holdfast.inputs WHERE task_id = 'waiter'"
THIS = 13
"""The migration that brought positions."""


async def submit(store: PostgresStore, task_id: str) -> None:
    await store.submit([NewTask(id=task_id, name="job")])


async def seen(store: PostgresStore, channel: str, task_id: str = "waiter") -> list[object]:
    """Return what a task gets that waits on the channel."""
    after = await store.position(channel, before_task=task_id)
    return [event.payload for event in await store.events(channel, after=after)]


@pytest.mark.parametrize("how", ["emit", "commit"])
async def test_an_emit_that_is_under_way_is_later_than_the_submission(url: str, store: PostgresStore, how: str) -> None:
    """It has drawn a lower position than one that is committed already, and is committed after the submission."""
    await submit(store, "other")
    await store.emit("paid", "from before")
    async with paused(url) as emitter:
        if how == "emit":
            await emitter.emit("paid", "under way")
        else:
            await emitter.commit([outside("other", Emit(channel="paid", payload="under way"))])
        await store.emit("elsewhere", "from before, with a higher position")
        await submit(store, "waiter")
        [(position,)] = execute(url, RECORDED)
        await emitter.finish()
    [(drawn,)] = execute(url, "SELECT max(position) FROM holdfast.events WHERE channel = 'paid'")
    assert drawn < position  # so that the highest number there is, drawn or committed, would hide the event
    await store.emit("paid", "later")
    assert await seen(store, "paid") == ["under way", "later"]
    assert await seen(store, "elsewhere") == []


async def test_a_submission_that_is_under_way(url: str, store: PostgresStore) -> None:
    """What is emitted while it is being committed is later than it."""
    await store.emit("paid", "from before")
    async with paused(url) as submitter:
        await submitter.submit([NewTask(id="waiter", name="job"), NewTask(id="second", name="job")])
        await store.emit("paid", "meanwhile")
        await submitter.finish()
    assert await seen(store, "paid") == ["meanwhile"]
    assert await seen(store, "paid", "second") == ["meanwhile"]


async def test_within_one_transaction_the_order_decides(url: str, store: PostgresStore) -> None:
    """Whether a snapshot can see its own transaction depends on what else the server has completed meanwhile."""
    await submit(store, "parent")
    early, late = Emit(channel="paid", payload="early"), Emit(channel="paid", payload="late")
    await store.commit([outside("parent", early, SubmitChild(NewTask(id="waiter", name="job")), late)])
    for xmax in ("event_transaction::text", "(event_transaction::text::bigint + 3)"):
        snapshot = f"(event_transaction::text || ':' || {xmax} || ':')::pg_snapshot"
        execute(url, f"UPDATE holdfast.inputs SET event_snapshot = {snapshot}")
        assert await seen(store, "paid") == ["late"]


async def test_a_task_that_waits_gets_the_event_that_was_under_way(url: str, store: PostgresStore) -> None:
    """Its wait begins in front of an event that is not visible yet, and the commit of that event wakes it."""
    async with paused(url) as emitter:
        await emitter.emit("paid", "under way")
        await store.emit("elsewhere", 1)
        [claim] = await claimed(store, "waiter")
        after = await store.position("paid", before_task="waiter")
        wait = Move(to=TaskState.WAITING, reason="waits", waits=(UntilEvent(key="k", channel="paid", after=after),))
        waiting = asyncio.create_task(store.commit([held(claim, 1, wait)]))
        await emitter.finish()
    await waiting
    task = await store.get("waiter")
    assert task is not None
    assert task.state is TaskState.PENDING
    assert await seen(store, "paid") == ["under way"]


async def test_rows_that_came_from_another_cluster(url: str, store: PostgresStore) -> None:
    """Its transaction numbers mean nothing here, be they higher or lower: the positions decide."""
    for stranger in (1000, 2**40 + 1000):
        names = {part: f"{part} {stranger}" for part in ("old", "new", "channel")}
        await store.emit(names["channel"], "copied, from before")
        await submit(store, names["old"])
        await store.emit(names["channel"], "copied, later")
        snapshot = f"{stranger}:{stranger + 9}:"
        execute(
            url,
            f"UPDATE holdfast.events SET cluster = 7, transaction = '{stranger}' WHERE cluster <> 7",
            f"UPDATE holdfast.inputs SET event_cluster = 7, event_transaction = '{stranger}', "
            f"event_snapshot = '{snapshot}' WHERE event_cluster <> 7",
        )
        await submit(store, names["new"])
        await store.emit(names["channel"], "emitted here")
        assert await seen(store, names["channel"], names["new"]) == ["emitted here"]
        execute(url, f"UPDATE holdfast.events SET transaction = '{stranger + 10}' WHERE number = 2 AND cluster = 7")
        assert await seen(store, names["channel"], names["old"]) == ["copied, later", "emitted here"]


async def test_the_cluster_is_that_of_the_server(url: str, store: PostgresStore) -> None:
    """Also after a transaction that looked it up first and was rolled back."""
    [(server,)] = execute(url, "SELECT system_identifier FROM pg_control_system()")
    found = execute(url, "BEGIN", "SELECT holdfast.event_cluster()", "ROLLBACK", "SELECT holdfast.event_cluster()")
    assert found == [(server,)]
    await store.emit("paid", 1)
    await submit(store, "waiter")
    written = "SELECT e.cluster, i.event_cluster FROM holdfast.events e, holdfast.inputs i"
    assert execute(url, written) == [(server, server)]


SUBMITTED_THEN = """
SELECT FROM holdfast.submit(json_build_array(json_build_object(
    'n', 0, 'id', '{}', 'name', 'job', 'agent_id', 'job', 'state', 'pending', 'queue', 'default', 'priority', 0,
    'actor', 'submit', 'input', 1, 'input_digest', '', 'search', '', 'round', 1)), ARRAY['null'::bytea], false)"""


async def test_a_store_from_before_positions(bare_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its tasks keep the rule by time for its events, and see every event since; a waiting one gets its event."""
    known = migrations("holdfast.store.postgres.migrations")
    with monkeypatch.context() as older:
        older.setattr("holdfast.store.postgres.migration.migrations", lambda _: known[: THIS - 1])
        async with PostgresStore(bare_url) as store:
            await store.emit("paid", "long ago")
            # As a process of that time did it: this version speaks to a later schema.
            execute(bare_url, SUBMITTED_THEN.format("waiter"))
            execute(bare_url, "SELECT FROM holdfast.register('worker', 'worker', 60, '{}')")
            execute(bare_url, "SELECT FROM holdfast.claim('worker', 1, 1, '{default}', '{job}', false)")
            [(fence,)] = execute(bare_url, "SELECT fence FROM holdfast.tasks WHERE id = 'waiter' AND owner = 'worker'")
            wait = Move(to=TaskState.WAITING, reason="waits", waits=(UntilEvent(key="k", channel="paid", after=1),))
            commit = Commit(task_id="waiter", guard=Held("worker", fence, 1), operations=(wait,), actor="worker")
            await store._backend.fetch("commit_batch", *encode_batch([commit]), None)
            execute(bare_url, SUBMITTED_THEN.format("ended"))
            await store.emit("elsewhere", "since")
            # As if the clock had stepped back before the upgrade: the last event looks older than both tasks.
            execute(
                bare_url,
                "UPDATE holdfast.inputs SET created_at = created_at + interval '1 day' WHERE task_id = 'ended'",
            )
    async with PostgresStore(bare_url, migrate=True) as store:
        assert await seen(store, "paid") == []
        assert await seen(store, "elsewhere") == ["since"]
        assert await seen(store, "elsewhere", "ended") == []
        await submit(store, "young")
        await store.emit("paid", "after the upgrade")
        task = await store.get("waiter")
        assert task is not None
        assert task.state is TaskState.PENDING
        for task_id in ("waiter", "ended", "young"):
            assert await seen(store, "paid", task_id) == ["after the upgrade"]
        assert await seen(store, "elsewhere", "young") == []
