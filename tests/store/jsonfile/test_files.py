"""The JSON store's files: readable, whole, and one process at a time."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

import pytest

from holdfast import (
    ManualClock,
    NewTask,
    NotAStore,
    SchemaMismatch,
    StoreBusy,
    StoreDamaged,
    StoreUnavailable,
    Task,
    TaskState,
)
from holdfast.model.commit import Commit, Expect, Held
from holdfast.model.operations import Move, SubmitChild, WriteStep
from holdfast.model.step import Step, StepState
from holdfast.model.task import FLAT_KEYS
from holdfast.model.worker import Claim, NewWorker
from holdfast.store.jsonfile import JsonStore
from holdfast.store.jsonfile.store import SCHEMA
from holdfast.store.sqlite.connection import MIGRATIONS, connect
from holdfast.store.sqlite.migration import migrate


async def test_a_task_is_a_file_a_person_can_read(tmp_path: Path) -> None:
    async with JsonStore(tmp_path / "store") as store:
        await store.save(Task(id="fix-disk", user_input="Я out of disk space", state=TaskState.RUNNING))
    text = (tmp_path / "store/tasks/fix-disk.json").read_text()
    document = json.loads(text)
    assert document["tasks"][0]["state"] == "running"
    assert document["inputs"][0]["user_input"] == {"json": "Я out of disk space"}
    assert document["transitions"][0]["at"].startswith("20")
    assert "Я out" in text


async def test_everything_is_back_after_reopening(tmp_path: Path) -> None:
    clock = ManualClock()
    async with JsonStore(tmp_path, clock=clock) as store:
        await store.submit([NewTask(id="a", name="work", key="k", user_input={"lone": "\ud800", "nul": "\0"})])
        await store.submit([NewTask(id="A", name="work"), NewTask(id="../a", name="work"), NewTask(id="é/", name="w")])
        await store.register(NewWorker(id="w", lease=30))
        await store.claim(Claim(worker_id="w", number=1, limit=1, names=("work",)))
        artifact = await store.put_artifact(os.urandom(600_000))
        await store.emit("channel", {"n": 1})
        before = await store.find(), await store.workers(), await store.events("channel"), await store.history("a")
        content = await store.read_artifact(artifact.id)
    async with JsonStore(tmp_path, clock=clock) as store:
        after = await store.find(), await store.workers(), await store.events("channel"), await store.history("a")
        assert after == before
        assert await store.read_artifact(artifact.id) == content
        assert (await store.submit([NewTask(name="work", key="k", user_input=1)]))[0].conflict
    inside = {path.resolve() for path in tmp_path.rglob("*")}
    assert all(path.is_relative_to(tmp_path.resolve()) for path in inside)
    assert len(list((tmp_path / "tasks").iterdir())) == 4


async def test_a_second_opening_is_refused_and_names_the_holder(tmp_path: Path) -> None:
    async with JsonStore(tmp_path):
        with pytest.raises(StoreBusy, match=rf"process {os.getpid()}.*sqlite"):
            await JsonStore(tmp_path).open()
        code = "import asyncio, sys, holdfast; asyncio.run(holdfast.make_store('json:///' + sys.argv[1]).open())"
        second = subprocess.run([sys.executable, "-c", code, tmp_path], capture_output=True, text=True, check=False)
        assert second.returncode == 1
        assert f"StoreBusy: {tmp_path} is open in process {os.getpid()}" in second.stderr
    async with JsonStore(tmp_path):
        pass


async def test_what_is_no_store_is_left_untouched(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("dear")
    with pytest.raises(NotAStore, match="not a Holdfast store"):
        await JsonStore(tmp_path).open()
    with pytest.raises(NotAStore, match="is a file"):
        await JsonStore(tmp_path / "letter.txt").open()
    assert [path.name for path in tmp_path.iterdir()] == ["letter.txt"]


async def test_a_newer_schema_says_upgrade(tmp_path: Path) -> None:
    async with JsonStore(tmp_path):
        pass
    (tmp_path / "holdfast.json").write_text('{"holdfast": "json", "schema": 99}')
    with pytest.raises(SchemaMismatch, match=r"schema 99.*upgrade"):
        await JsonStore(tmp_path).open()


FOREIGN = ('{"tasks": [{"id": "x"}]}', '{"tasks": [{"a": 1}]}')
"""Documents that are whole, with a column too few or too many."""


@pytest.mark.parametrize("damage", ["", "{", '{"cats": []}', "[]", *FOREIGN])
async def test_a_damaged_document_is_named(tmp_path: Path, damage: str) -> None:
    """And the advice does not lose what it holds."""
    async with JsonStore(tmp_path) as store:
        await store.submit([NewTask(id="x", name="work")])
    (tmp_path / "tasks/x.json").write_text(damage)
    if damage in FOREIGN:
        with pytest.raises(SchemaMismatch, match=r"tasks/x\.json .*open the store with the version that wrote it"):
            await JsonStore(tmp_path).open()
    else:
        with pytest.raises(StoreDamaged, match=r"tasks/x\.json cannot be read.*restore it from a backup"):
            await JsonStore(tmp_path).open()
    (tmp_path / "tasks/x.json").unlink()
    async with JsonStore(tmp_path) as store:  # the lock was given back
        assert await store.get("x") is None


class PowerCut(BaseException):
    """The process is gone."""


def cut_after(monkeypatch: pytest.MonkeyPatch, count: int) -> Callable[[], bool]:
    """Let ``count`` writes to the disk happen, then cut the power before or within the next; say whether it fired."""
    calls = 0
    fired = False

    def counting(original: Callable[..., object]) -> Callable[..., object]:
        def wrapped(*arguments: object) -> object:
            nonlocal calls, fired
            if calls >= count:
                fired = True
                raise PowerCut
            calls += 1
            return original(*arguments)

        return wrapped

    monkeypatch.setattr(os, "fsync", counting(os.fsync))
    monkeypatch.setattr(Path, "replace", counting(Path.replace))
    monkeypatch.setattr(Path, "unlink", counting(Path.unlink))
    return lambda: fired


DISK_OPERATIONS = 24
"""More than the commit below needs, so that every one of them is cut once."""


@pytest.mark.parametrize("count", range(DISK_OPERATIONS))
async def test_a_commit_over_several_files_is_whole_wherever_the_power_is_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    store = JsonStore(tmp_path)
    await store.open()
    await store.submit([NewTask(id="parent", name="work")])
    await store.register(NewWorker(id="w"))
    await store.claim(Claim(worker_id="w", number=1, limit=1, names=("work",)))
    children = tuple(SubmitChild(NewTask(id=f"child-{n}", name="work")) for n in range(2))
    done = Move(to=TaskState.COMPLETED, reason="done")
    commit = Commit(task_id="parent", guard=Held("w", 1, 1), operations=(*children, done))

    fired = cut_after(monkeypatch, count)
    acknowledged = False
    with suppress(PowerCut):
        acknowledged = (await store.commit([commit]))[0].applied
    assert acknowledged != fired()
    assert fired() or count > 1  # the first cuts surely hit
    assert not fired() or count < DISK_OPERATIONS - 1  # and the last surely do not
    monkeypatch.undo()
    await store.close()

    async with JsonStore(tmp_path) as reopened:
        parent = await reopened.get("parent")
        whole = parent is not None and parent.state is TaskState.COMPLETED
        assert [await reopened.get(f"child-{n}") is not None for n in range(2)] == [whole, whole]
        assert whole or not acknowledged
        assert not (tmp_path / "commit.json").exists()


async def test_no_two_ids_share_a_file(tmp_path: Path) -> None:
    hashed = hashlib.sha256(b"AB").hexdigest()[:16]
    ids = {"AB", "ab", f"ab-{hashed}", f"ab~{hashed}", "a%62", "Ab"}
    async with JsonStore(tmp_path) as store:
        await store.submit([NewTask(id=task_id, name="work") for task_id in ids])
    assert len({path.name.lower() for path in (tmp_path / "tasks").iterdir()}) == len(ids)
    async with JsonStore(tmp_path) as store:
        assert {task.id for task in (await store.find()).items} == ids


async def test_a_first_opening_that_was_killed_is_no_obstacle(tmp_path: Path) -> None:
    (tmp_path / ".holdfast.json.tmp").write_text('{"holdf')
    (tmp_path / "lock").touch()
    async with JsonStore(tmp_path) as store:
        assert await store.count() == {}


async def test_the_working_directory_may_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "there").mkdir()
    monkeypatch.chdir(tmp_path)
    async with JsonStore("store") as store:
        os.chdir(tmp_path / "there")
        await store.submit([NewTask(id="a", name="work")])
    assert (tmp_path / "store/tasks/a.json").exists()
    assert not list((tmp_path / "there").iterdir())


async def test_closing_after_a_failed_opening_closes_nothing_of_others(tmp_path: Path) -> None:
    async with JsonStore(tmp_path) as store:
        await store.submit([NewTask(id="x", name="work")])
    (tmp_path / "tasks/x.json").write_text("{")
    store = JsonStore(tmp_path)
    with pytest.raises(StoreDamaged):
        await store.open()
    with (tmp_path / "mine").open("w") as mine:  # most likely gets the number in the lock file
        await store.close()
        mine.write("still open")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("commit.json", "{"),
        ("tasks/x.json", '{"inputs": [{"task_id": "x", "user_input": {"json": 1}}]}'),
    ],
)
async def test_other_damage_is_named_too(tmp_path: Path, name: str, text: str) -> None:
    async with JsonStore(tmp_path) as store:
        await store.submit([NewTask(id="y", name="work")])
    (tmp_path / name).write_text(text)
    with pytest.raises(StoreDamaged):
        await JsonStore(tmp_path).open()


async def test_a_close_that_fails_lets_go_of_the_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = await JsonStore(tmp_path / "store").open()
    assert store._backend.writer is not None

    def fail() -> None:
        raise RuntimeError("a defect")

    monkeypatch.setattr(store._backend.writer, "close", fail)
    with pytest.raises(RuntimeError, match="a defect"):
        await store.close()
    async with JsonStore(tmp_path / "store"):
        pass


async def test_an_opening_that_cannot_write_its_lock_does_not_keep_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(file: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, f"no space for {data!r} in {file}")

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", full)
        with pytest.raises(StoreUnavailable, match="make room"):
            await JsonStore(tmp_path / "store").open()
    async with JsonStore(tmp_path / "store"):
        pass


async def test_a_directory_of_schema_1_opens_and_what_was_begun_there_stays_flat(tmp_path: Path) -> None:
    """Each document says by what it holds whether it was begun; the format is that of this version from then on."""
    async with JsonStore(tmp_path) as store:
        await store.submit([NewTask(id=task_id, name="job", queue=task_id) for task_id in ("begun", "fresh", "saved")])
        await store.register(NewWorker(id="w"))
        await store.claim(Claim(worker_id="w", number=1, limit=1, queues=("begun",), names=("job",)))
        line = Step(key="k", kind="step", position=1, state=StepState.COMPLETED)
        await store.commit([Commit(task_id="saved", guard=Expect(), operations=(WriteStep(line),))])
    shutil.rmtree(tmp_path / "feed")
    with closing(connect(":memory:", durable=False)) as first:
        migrate(first, "", MIGRATIONS[:1])
        for file in (tmp_path / "tasks").glob("*.json"):
            document = json.loads(file.read_text())
            del document["feed"]  # which came later, as its folder did
            for table, rows in document.items():
                known = {name for _, name, *_ in first.execute(f"PRAGMA table_info({table})")}
                document[table] = [{name: row[name] for name in row if name in known} for row in rows]
            file.write_text(json.dumps(document))
    (tmp_path / "holdfast.json").write_text('{"holdfast": "json", "schema": 1}')
    for _ in range(2):
        async with JsonStore(tmp_path) as store:
            forms = {task.id: task.key_form for task in (await store.find()).items}
        assert forms == {"begun": FLAT_KEYS, "fresh": 0, "saved": FLAT_KEYS}
    assert json.loads((tmp_path / "holdfast.json").read_text())["schema"] == SCHEMA
