"""Stores that the first schema made: they open, their tasks go on, and older processes stop.

`frozen/schema_1.tar.gz` holds an SQLite file and a JSON directory of schema 1. The program that made each of them
emitted an event on `paid` and one on `shipped` before it submitted the tasks that wait for them, and another one on
`shipped` after that.
"""

from __future__ import annotations

import asyncio
import json
import re
import tarfile
from collections.abc import AsyncIterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import apsw
import pytest

from holdfast import Context, Holdfast, ManualClock, SchemaMismatch, TaskState
from holdfast.model.task import NewTask
from holdfast.store.jsonfile import JsonStore
from holdfast.store.sqlite import SqliteStore
from holdfast.store.sqlite.connection import MIGRATIONS, connect, prove_version
from holdfast.store.sqlite.migration import migrate

FROZEN = Path(__file__).parent / "frozen" / "schema_1.tar.gz"

OLD_WRITES = """
INSERT INTO tasks (id, name, agent_id, queue, priority, input_digest, search, state, rank, available_at,
                   created_at, updated_at) VALUES ('x', 'n', 'a', 'q', 0, '', '', 'pending', 0, 0, 0, 0);
UPDATE tasks SET owner = 'w', fence = fence + 1, ready = 0 WHERE id = 'x';
UPDATE tasks SET sequence = 1, revision = revision + 1, updated_at = 1 WHERE id = 'x';
INSERT INTO workers (id, label, lease, state, details, started_at, seen_at, boot_id, expires)
VALUES ('w', '', 1, 'live', x'7b7d', 0, 0, '', 0);
UPDATE workers SET seen_at = 1 WHERE id = 'w';
INSERT INTO events (channel, number, key, payload, actor, at) VALUES ('paid', 9, NULL, x'31', 'a', 0);
INSERT INTO artifacts (id, size, media_type, created_at, content) VALUES ('x', 0, '', 0, 'x');
UPDATE artifacts SET created_at = 1 WHERE id = 'x';
INSERT INTO uploads (id, renewed_at) VALUES ('x', 0);
UPDATE uploads SET renewed_at = 1 WHERE id = 'x';
INSERT INTO facts (entity, id, attribute, other, value, confidence, source, created_at, words)
VALUES ('e', 'x', 'a', '', x'31', 1.0, '', 0, 'w');
UPDATE facts SET superseded_by = 'y' WHERE id = 'x';
DELETE FROM facts WHERE id = 'x';
INSERT INTO evidence (task_id, effect_id, number, fence, body, at) VALUES ('x', 'e', 1, 1, x'31', 0);
DELETE FROM tasks WHERE id = 'x';
DELETE FROM events WHERE channel = 'x'
"""
"""What the verbs that write begin with, as schema 1 has it: submit, claim, commit, register, heartbeat, emit ..."""


@pytest.fixture(params=["sqlite:///{}/store.db", "json:///{}/store"])
async def hold(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Holdfast]:
    unpack(tmp_path)
    async with Holdfast(request.param.format(tmp_path)) as hold:
        yield hold


def unpack(folder: Path) -> None:
    with tarfile.open(FROZEN) as archive:
        archive.extractall(folder, filter="data")


async def test_the_tasks_of_the_first_schema_go_on(hold: Holdfast) -> None:
    """The waiting one gets its event, and the queued one the event that came after its submission."""

    @hold.task
    async def waits(ctx: Context, channel: str) -> str:
        return str(await ctx.wait_event(channel))

    found = {task.key: task for task in (await hold.store.find()).items}
    states = {key: task.state.value for key, task in found.items()}
    assert states == {"waiting": "waiting", "pending": "pending", "completed": "completed"}
    assert found["completed"].result == 42
    await hold.emit("paid", "after the upgrade")
    fresh = await hold.submit(waits, "shipped")
    await hold.emit("shipped", "after the upgrade")
    async with hold.worker():
        async with asyncio.timeout(60):
            assert await hold.handle(found["waiting"].id).result() == "after the upgrade"
            assert await hold.handle(found["pending"].id).result() == "before the upgrade"
            assert await fresh.result() == "after the upgrade"


async def test_events_after_the_upgrade_are_later_whatever_the_clock_says(tmp_path: Path) -> None:
    """Compared by time, an event of a clock that stepped back would be older than the task."""
    unpack(tmp_path)
    clock = ManualClock(datetime(2020, 1, 1, tzinfo=UTC))
    for store in (SqliteStore(tmp_path / "store.db", clock=clock), JsonStore(tmp_path / "store", clock=clock)):
        async with store:
            found = {task.key: task for task in (await store.find()).items}
            await store.emit("paid", "after the upgrade")
            assert await store.position("paid", before_task=found["waiting"].id) == 1
            task = await store.get(found["waiting"].id)
            assert task is not None
            assert task.state is TaskState.PENDING


def test_a_json_store_that_was_upgraded_says_so(tmp_path: Path) -> None:
    """An older version would drop the positions; it refuses a schema that it does not know."""
    unpack(tmp_path)

    async def open_it() -> None:
        async with Holdfast(f"json:///{tmp_path}/store"):
            pass

    format_file = tmp_path / "store" / "holdfast.json"
    assert json.loads(format_file.read_bytes())["schema"] == 1
    asyncio.run(open_it())
    assert json.loads(format_file.read_bytes())["schema"] > 1


async def test_an_open_process_of_the_older_version_fails_at_its_next_write(tmp_path: Path) -> None:
    """Its statements live in its own code: without that it would go on, and write events without a position."""
    unpack(tmp_path)
    with closing(apsw.Connection(str(tmp_path / "store.db"))) as older:
        older.execute(f"SAVEPOINT before; {OLD_WRITES}; ROLLBACK TO before; RELEASE before")
        async with SqliteStore(tmp_path / "store.db") as store:
            for statement in OLD_WRITES.split(";"):
                with pytest.raises(apsw.SQLError, match="no such function: holdfast_was_upgraded_to_schema_"):
                    older.execute(statement)
            assert older.execute("SELECT count(*) FROM tasks").get == 3
            assert len((await store.find()).items) == 3


def test_each_migration_stops_the_open_processes_of_the_version_before(tmp_path: Path) -> None:
    """At the next submission, claim or Commit. The third stops claims by its view, the fourth nothing."""
    for number, step in enumerate(MIGRATIONS[1:], 1):
        path = str(tmp_path / f"{step.name}.db")
        with closing(apsw.Connection(path)) as older, closing(connect(path, durable=False)) as newer:
            migrate(newer, path, MIGRATIONS[:number])
            prove_version(older, MIGRATIONS[:number])
            older.execute(f"SAVEPOINT before; {OLD_WRITES}; ROLLBACK TO before; RELEASE before")
            migrate(newer, path, MIGRATIONS[: number + 1])
            if step.version in {3, 4}:
                continue
            for statement in re.findall(r"(?:INSERT INTO|UPDATE) (?:tasks|workers)[^;]*", OLD_WRITES):
                with pytest.raises(apsw.SQLError, match=f"holdfast_was_upgraded_to_schema_{step.version}_restart"):
                    older.execute(statement)


async def test_this_version_says_what_to_do_when_a_newer_one_has_migrated(tmp_path: Path) -> None:
    """Without another look at the schema at every write."""
    async with SqliteStore(tmp_path / "store.db") as store:
        await store.submit([NewTask(id="a", name="job")])
        with closing(apsw.Connection(str(tmp_path / "store.db"))) as newer:
            newer.execute("""
                CREATE TRIGGER later AFTER INSERT ON tasks
                WHEN FALSE AND holdfast_was_upgraded_to_schema_999_restart_this_process() BEGIN SELECT 1; END
            """)
        with pytest.raises(SchemaMismatch, match="restart this process"):
            await store.submit([NewTask(id="b", name="job")])
        task = await store.get("a")
        assert task is not None
        assert task.state is TaskState.PENDING
