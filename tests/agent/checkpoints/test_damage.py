"""A damaged checkpoint is set aside with the reason; the last good one plus the journal gives the same state."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from holdfast import CheckpointManager, Handle, Holdfast, Request, TaskState
from holdfast.agent.scripted import Answer, call
from holdfast.model.canonical import canonical
from tests.agent.budget.support import PATIENCE, register
from tests.agent.checkpoints.support import note, rewrite
from tests.engine.support import crash, until
from tests.store.contract.truncating import SCHEMA, EmptiedDatabase

CHECKSUM = "its checksum does not match"

Harm = Callable[[Path, str], None]


def flip_a_byte(path: Path, which: str) -> None:
    rewrite(
        path, f"UPDATE checkpoints SET body = CAST(substr(body, 1, 20) || X'00' || substr(body, 22) AS BLOB) {which}"
    )


def change_the_schema(path: Path, which: str) -> None:
    rewrite(path, f"UPDATE checkpoints SET schema = 99 {which}")


def make_no_state(path: Path, which: str) -> None:
    body = canonical({"goal": 7})
    rewrite(
        path,
        f"UPDATE checkpoints SET body = ?1, checksum = ?2 {which}",
        body,
        hashlib.sha256(body).hexdigest(),
    )


def make_no_json(path: Path, which: str) -> None:
    body = b"\xff{nonsense"
    rewrite(path, f"UPDATE checkpoints SET body = ?1, checksum = ?2 {which}", body, hashlib.sha256(body).hexdigest())


HARMS = [
    pytest.param(flip_a_byte, CHECKSUM, id="a byte was flipped"),
    pytest.param(change_the_schema, "its schema is 99, this version reads 1", id="of another schema"),
    pytest.param(make_no_state, "its state cannot be read: ", id="no state"),
    pytest.param(make_no_json, "its state cannot be read: ", id="no JSON"),
]
NEWEST = "WHERE number = (SELECT max(number) FROM checkpoints)"
EVERY = "WHERE true"


async def left_by_a_dead_worker(hold: Holdfast) -> tuple[Handle[str], list[Request]]:
    """An agent whose worker dies in a model call after three notes. The state is one patch ahead of its checkpoints."""
    heard: list[Request] = []

    async def last(request: Request) -> Answer:
        heard.append(request)
        if len(heard) == 1:
            await crash_it()
        return "done"

    async def crash_it() -> None:
        await crash(hold, workers[0])

    notes = [call("note", key=key) for key in "abc"]
    agent, _ = register(hold, [*notes, last], tools=[note])
    task = await hold.submit(agent, "go")
    worker = hold.worker()
    workers = [await worker.__aenter__()]
    await until(lambda: heard, patience=PATIENCE)
    await until(lambda: _is(task, TaskState.PENDING), patience=PATIENCE)
    assert [one.version for one in await hold.store.checkpoints(task.id)] == [1, 2, 3]
    assert (await task.task()).version == 4
    return task, heard


async def _is(task: Handle[str], state: TaskState) -> bool:
    return (await task.task()).state is state


@pytest.mark.parametrize("which", [NEWEST, EVERY], ids=["the newest", "all of them"])
@pytest.mark.parametrize(("harm", "reason"), HARMS)
async def test_a_takeover_goes_on_with_the_same_state(
    hold: Holdfast, tmp_path: Path, harm: Harm, reason: str, which: str
) -> None:
    task, heard = await left_by_a_dead_worker(hold)
    before = canonical((await hold.state(task)).to_json())
    harm(tmp_path / "hold.db", which)
    assert canonical((await hold.state(task)).to_json()) == before  # a reader skips it too
    async with hold.worker():
        assert await task.result(timeout=PATIENCE) == "done"
    assert len(heard) == 2
    assert heard[1].messages == heard[0].messages  # the model is shown exactly what it was shown before
    assert canonical((await hold.state(task)).to_json()) == before
    saved = await hold.store.checkpoints(task.id)
    damaged = [one for one in saved if one.damaged is not None]
    assert [one.number for one in damaged] == ([3] if which == NEWEST else [1, 2, 3])
    assert all(one.damaged is not None and one.damaged.startswith(reason) for one in damaged)
    # The new one has a number of its own: the damaged one is kept for inspection.
    assert [one.number for one in saved if one.damaged is None][-1] == 4


async def test_on_a_server_too(emptied_database: EmptiedDatabase) -> None:
    async with Holdfast(emptied_database.empty()) as hold:
        task, heard = await left_by_a_dead_worker(hold)
        with psycopg.connect(emptied_database.url) as connection:
            changed = connection.execute(
                f"UPDATE {SCHEMA}.checkpoints SET body = set_byte(body, 20, 0) WHERE number = 3"
            )
            assert changed.rowcount == 1
        async with hold.worker():
            assert await task.result(timeout=PATIENCE) == "done"
        assert heard[1].messages == heard[0].messages
        assert [one.damaged for one in await hold.store.checkpoints(task.id)] == [None, None, CHECKSUM, None]


@pytest.mark.parametrize("which", [NEWEST, EVERY], ids=["the newest", "all of them"])
@pytest.mark.parametrize(("harm", "reason"), HARMS)
async def test_the_manager_finds_it_and_gives_the_same_state(
    hold: Holdfast, tmp_path: Path, harm: Harm, reason: str, which: str
) -> None:
    task, _ = await left_by_a_dead_worker(hold)
    before = await hold.state(task)
    harm(tmp_path / "hold.db", which)
    found = await CheckpointManager(hold.store).validate_and_resume(task.id)
    assert found.state == before
    assert sorted(found.set_aside) == ([3] if which == NEWEST else [1, 2, 3])
    assert (found.checkpoint and found.checkpoint.number) == (2 if which == NEWEST else None)
    marked = [one for one in await hold.store.checkpoints(task.id) if one.damaged is not None]
    assert all(one.damaged is not None and one.damaged.startswith(reason) for one in marked)
    again = await CheckpointManager(hold.store).validate_and_resume(task.id)
    assert again.set_aside == ()  # it is known by now
    assert again.state == before
    async with hold.worker():
        assert await task.result(timeout=PATIENCE) == "done"


async def test_a_save_after_damage_is_good_again(hold: Holdfast, tmp_path: Path) -> None:
    task, _ = await left_by_a_dead_worker(hold)
    flip_a_byte(tmp_path / "hold.db", EVERY)
    manager = CheckpointManager(hold.store)
    made = await manager.maybe_save(task.id, "every_step")
    assert made is not None
    assert made.number == 4
    found = await manager.validate_and_resume(task.id)
    assert found.checkpoint is not None
    assert found.checkpoint.number == 4
    assert found.set_aside == ()  # no checkpoint behind a good one is read
