"""A JSON store in trouble: its folder is replaced, its disk is full for a while, its schema is an older one."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from holdfast import ManualClock, NewTask, NotFound, SchemaMismatch, StoreDamaged, StoreReplaced, StoreUnavailable
from holdfast.engine.runtime.store_retry import endless_pauses
from holdfast.model.commit import Commit, Held
from holdfast.model.operations import Move, SubmitChild
from holdfast.model.transitions import TaskState
from holdfast.model.worker import Claim, NewWorker
from holdfast.store.jsonfile import JsonStore, contents
from holdfast.store.sqlfiles import Migration
from holdfast.store.sqlite.connection import MIGRATIONS

# The place


async def test_a_process_whose_folder_or_lock_is_gone_writes_nothing_more(tmp_path: Path) -> None:
    def move(root: Path) -> None:
        root.rename(root.with_name("elsewhere"))

    def replace(root: Path) -> None:
        root.rename(root.with_name("before"))
        shutil.copytree(root.with_name("before"), root)

    def delete_lock(root: Path) -> None:
        (root / "lock").unlink()

    def replace_lock(root: Path) -> None:
        (root / "lock").rename(root / "tasks" / "lock")
        (root / "lock").touch()

    for change in (move, replace, delete_lock, replace_lock):
        root = tmp_path / change.__name__ / "store"
        store = await JsonStore(root).open()
        await store.submit([NewTask(id="acknowledged", name="job")])
        change(root)
        for refused in ("lost-1", "lost-2"):
            with pytest.raises(StoreReplaced, match="writes and sends nothing more"):
                await store.submit([NewTask(id=refused, name="job")])
        with pytest.raises(StoreReplaced):
            store.check_place()
        await store.close()
        assert not list(root.parent.rglob("lost-*.json"))


# A full disk


class FullDisk:
    """A disk that has no room, from the n-th write to it on, until there is room again."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, count: int) -> None:
        self._left, self.is_full, self.has_failed = count, True, False
        monkeypatch.setattr(os, "fsync", self._limited(os.fsync))
        monkeypatch.setattr(Path, "replace", self._limited(Path.replace))

    def _limited(self, original: Callable[..., object]) -> Callable[..., object]:
        def wrapped(*arguments: object) -> object:
            self._left -= 1
            if self.is_full and self._left < 0:
                self.has_failed = True
                raise OSError(28, "No space left on device")
            return original(*arguments)

        return wrapped


async def parent_with_a_commit(root: Path) -> tuple[JsonStore, Commit]:
    store = await JsonStore(root).open()
    await store.submit([NewTask(id="parent", name="work")])
    await store.register(NewWorker(id="w"))
    await store.claim(Claim(worker_id="w", number=1, limit=1, names=("work",)))
    children = tuple(SubmitChild(NewTask(id=f"child-{n}", name="work")) for n in range(2))
    done = Move(to=TaskState.COMPLETED, reason="done")
    return store, Commit(task_id="parent", guard=Held("w", 1, 1), operations=(*children, done))


async def states_in(store: JsonStore) -> dict[str, str]:
    return {task.id: task.state.value for task in (await store.find()).items}


async def test_a_full_disk_is_waited_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever a commit over several files meets it. Sent again when there is room, it is applied once."""
    whole = {"parent": "completed", "child-0": "pending", "child-1": "pending", "later": "pending"}
    failures: list[StoreUnavailable] = []
    for count in range(24):
        store, commit = await parent_with_a_commit(tmp_path / str(count))
        with monkeypatch.context() as patched:
            disk = FullDisk(patched, count)
            try:
                [verdict] = await store.commit([commit])
            except StoreUnavailable as error:
                disk.is_full = False
                failures.append(error)
                [verdict] = await store.commit([commit])
            assert verdict.applied
            disk.is_full = False
            await store.submit([NewTask(id="later", name="work")])
        assert await states_in(store) == whole
        await store.close()
        async with JsonStore(tmp_path / str(count)) as again:
            assert await states_in(again) == whole
        assert not list((tmp_path / str(count)).rglob(".*.tmp"))
        if not disk.has_failed:
            break
    else:
        raise AssertionError("the commit writes more often than this test thinks")
    assert len(failures) > 1
    assert all("make room" in str(error) and endless_pauses(error, 1) is not None for error in failures)


async def test_what_a_full_disk_refused_stays_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that was renamed into place, but perhaps not durably, is removed with the next commit."""
    async with JsonStore(tmp_path) as store:
        await store.submit([NewTask(id="before", name="work")])
        with monkeypatch.context() as patched:
            FullDisk(patched, 2)  # written and renamed; the folder cannot be flushed
            with pytest.raises(StoreUnavailable):
                await store.submit([NewTask(id="refused", name="work")])
        assert await states_in(store) == {"before": "pending"}
        await store.submit([NewTask(id="later", name="work")])
        assert await states_in(store) == {"before": "pending", "later": "pending"}
    async with JsonStore(tmp_path) as store:
        assert await states_in(store) == {"before": "pending", "later": "pending"}


async def test_a_store_on_a_full_disk_can_be_opened_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with JsonStore(tmp_path) as store:
        await store.submit([NewTask(id="a", name="work")])
    (tmp_path / "commit.json").write_text('{"tasks/a.json": null}')
    with monkeypatch.context() as patched:
        FullDisk(patched, 0)
        with pytest.raises(StoreUnavailable, match=r"make room.*Nothing is lost"):
            await JsonStore(tmp_path).open()
    async with JsonStore(tmp_path) as store:
        assert await states_in(store) == {}


# An older schema

NEXT = Migration(
    MIGRATIONS[-1].version + 1, "made_up", "ALTER TABLE tasks ADD tier TEXT; UPDATE tasks SET tier = queue"
)


def know_next(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this version know one more migration."""
    steps = (*MIGRATIONS, NEXT)
    monkeypatch.setattr("holdfast.store.jsonfile.store.MIGRATIONS", steps)
    monkeypatch.setattr("holdfast.store.jsonfile.store.SCHEMA", NEXT.version)
    monkeypatch.setattr("holdfast.store.sqlite.migration.migrate.__defaults__", (steps,))


def tiers_in(root: Path) -> set[object]:
    documents = [json.loads(path.read_bytes()) for path in (root / "tasks").glob("*.json")]
    return {row.get("tier") for document in documents for row in document["tasks"]}


async def test_an_older_store_is_migrated_as_a_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All documents and the format, or nothing of it, wherever the opening process dies."""
    async with JsonStore(tmp_path / "made") as store:
        await store.submit([NewTask(id=str(n), name="work", queue="slow") for n in range(2)])
    for count in range(40):
        root = tmp_path / str(count)
        shutil.copytree(tmp_path / "made", root)
        with monkeypatch.context() as patched:
            know_next(patched)
            with patched.context() as full:
                disk = FullDisk(full, count)
                with suppress(StoreUnavailable):
                    await (await JsonStore(root).open()).close()
            async with JsonStore(root) as store:
                assert await states_in(store) == {"0": "pending", "1": "pending"}
            assert tiers_in(root) == {"slow"}
            assert json.loads((root / "holdfast.json").read_bytes())["schema"] == NEXT.version
        with pytest.raises(SchemaMismatch, match="upgrade Holdfast"):
            await JsonStore(root).open()
        if not disk.has_failed:
            break
    else:
        raise AssertionError("a migration writes more often than this test thinks")


async def test_the_same_schema_in_another_form_is_left_alone(tmp_path: Path) -> None:
    async with JsonStore(tmp_path) as store:
        await store.submit([NewTask(id="a", name="work")])
    written = json.loads((tmp_path / "holdfast.json").read_bytes())
    (tmp_path / "holdfast.json").write_text(json.dumps({**written, "checksum": "another"}))
    before = (tmp_path / "tasks/a.json").read_bytes()
    with pytest.raises(SchemaMismatch, match="open it with the version that made it"):
        await JsonStore(tmp_path).open()
    assert (tmp_path / "tasks/a.json").read_bytes() == before


# The content of artifacts


async def test_the_content_of_an_artifact_is_a_file_that_is_read_when_asked_for(tmp_path: Path) -> None:
    clock, content = ManualClock(), os.urandom(700_000)
    async with JsonStore(tmp_path, clock=clock) as store:
        artifact = await store.put_artifact(content)
        await store.put_artifact(b"")
    file = tmp_path / "artifacts" / f"{artifact.id}.bytes"
    assert file.read_bytes() == content
    assert (tmp_path / "artifacts" / f"{artifact.id}.json").stat().st_size < 1000
    (tmp_path / "artifacts" / "left-by-a-dead-process.bytes").write_bytes(b"x")
    file.rename(tmp_path / "aside")  # or opening would have to read it
    async with JsonStore(tmp_path, clock=clock) as store:
        file.write_bytes(content)
        ranges: tuple[tuple[int, int | None], ...] = ((0, None), (300_000, 7), (699_999, 5), (800_000, 3), (5, 0))
        for offset, length in ranges:
            end = None if length is None else offset + length
            assert await store.read_artifact(artifact.id, offset=offset, length=length) == content[offset:end]
        assert len(list((tmp_path / "artifacts").glob("*.bytes"))) == 2
        file.unlink()
        with pytest.raises(StoreDamaged, match="restore it from a backup"):
            await store.read_artifact(artifact.id)
        clock.advance(3600)
        assert (await store.prune(timedelta(0))).artifacts == 2
        with pytest.raises(NotFound):
            await store.read_artifact(artifact.id)
    assert not list((tmp_path / "artifacts").iterdir())


async def test_a_content_inside_its_document_gets_a_file_of_its_own(tmp_path: Path) -> None:
    """As it was before: in chunks, under the name of the upload it came with; what is JSON as it is."""
    async with JsonStore(tmp_path) as store:
        artifact = await store.put_artifact(b"first, 12345")
    file = tmp_path / "artifacts" / f"{artifact.id}.json"
    (tmp_path / "artifacts" / f"{artifact.id}.bytes").unlink()
    document = json.loads(file.read_bytes())
    document["artifacts"][0]["content"] = "upload"
    document["artifact_chunks"] = [
        {"content": "upload", "number": 1, "body": {"json": 12345}},
        {"content": "upload", "number": 0, "body": {"base64": base64.b64encode(b"first, ").decode()}},
    ]
    file.write_text(json.dumps(document))
    for _ in range(2):
        async with JsonStore(tmp_path) as store:
            assert await store.read_artifact(artifact.id) == b"first, 12345"
    assert "artifact_chunks" not in json.loads(file.read_bytes())


async def test_an_artifact_that_is_pruned_while_it_is_read_is_not_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = ManualClock()
    async with JsonStore(tmp_path, clock=clock) as store:
        artifact = await store.put_artifact(b"content")
        clock.advance(timedelta(days=2))
        loop, real = asyncio.get_running_loop(), contents.read_content

        def read_late(*args: Any) -> bytes:  # noqa: ANN401
            asyncio.run_coroutine_threadsafe(store.prune(timedelta(days=1)), loop).result(60)
            return real(*args)

        monkeypatch.setattr("holdfast.store.jsonfile.store.read_content", read_late)
        with pytest.raises(NotFound, match="artifact"):
            await store.read_artifact(artifact.id)
