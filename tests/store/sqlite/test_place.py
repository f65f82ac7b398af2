"""A SQLite store whose files are moved, deleted, replaced or overwritten while it is open; and what is none of that."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from holdfast import NewTask, StoreReplaced, TaskState
from holdfast.engine.runtime.store_retry import endless_pauses
from holdfast.model.commit import Commit, Held
from holdfast.model.operations import Move, Operation, UntilEvent, WriteStep
from holdfast.model.step import Step, StepState
from holdfast.model.worker import Claim, NewWorker
from holdfast.store.sqlite import SqliteStore
from holdfast.store.sqlite.connection import connect
from holdfast.store.sqlite.gate import file_gate
from holdfast.store.sqlite.place import raise_epoch
from holdfast.store.sqlite.writer import SqliteWriter

OTHER_PROCESS = """
import asyncio, sys
from holdfast import NewTask
from holdfast.store.sqlite import SqliteStore
async def main():
    async with SqliteStore(sys.argv[1]) as store:
        await store.submit([NewTask(id="of-the-other", name="job")])
asyncio.run(main())
"""


def beside(path: Path, ending: str) -> Path:
    return path.with_name(path.name + ending)


def delete_all(path: Path, _: Path) -> None:
    for ending in ("", "-wal", "-shm", "-gate"):
        beside(path, ending).unlink()


def delete_file(path: Path, _: Path) -> None:
    path.unlink()


def delete_wal(path: Path, _: Path) -> None:
    beside(path, "-wal").unlink()


def delete_shm(path: Path, _: Path) -> None:
    beside(path, "-shm").unlink()


def move_file(path: Path, _: Path) -> None:
    path.rename(beside(path, "-old"))


def move_folder(path: Path, _: Path) -> None:
    path.parent.rename(path.parent.with_name("elsewhere"))


def replace_file(path: Path, backup: Path) -> None:
    shutil.copyfile(backup, beside(path, "-new"))
    beside(path, "-new").replace(path)


def restore_properly_but_under_a_process(path: Path, backup: Path) -> None:
    for ending in ("-wal", "-shm"):
        beside(path, ending).unlink()
    replace_file(path, backup)


def copy_over(path: Path, backup: Path) -> None:
    shutil.copyfile(backup, path)


def copy_another_store_over(path: Path, _: Path) -> None:
    other = beside(path, "-another")
    asyncio.run(write(other, "of-another-store"))
    shutil.copyfile(other, path)


def truncate(path: Path, _: Path) -> None:
    os.truncate(path, 0)


async def write(path: Path, *ids: str) -> None:
    async with SqliteStore(path) as store:
        await store.submit([NewTask(id=one, name="job") for one in ids])


async def ids_in(store: SqliteStore) -> set[str]:
    return {task.id for task in (await store.find()).items}


def problems_of(path: Path) -> list[str]:
    with closing(apsw.Connection(str(path))) as connection:
        return [str(text) for (text,) in connection.execute("PRAGMA integrity_check") if text != "ok"]


CHANGES: tuple[Callable[[Path, Path], None], ...] = (
    *(delete_all, delete_file, delete_wal, delete_shm, move_file, move_folder),
    *(replace_file, restore_properly_but_under_a_process, copy_over, copy_another_store_over, truncate),
)


async def test_a_process_whose_store_is_gone_writes_nothing_more(tmp_path: Path) -> None:
    for change in CHANGES:
        folder = tmp_path / change.__name__
        folder.mkdir()
        path, backup = folder / "agents.db", tmp_path / f"{change.__name__}.backup"
        await write(path, "before")
        shutil.copyfile(path, backup)
        await write(path, "after-the-backup")
        store = await SqliteStore(path).open()
        await store.submit([NewTask(id="acknowledged", name="job")])
        await asyncio.to_thread(change, path, backup)
        for refused in ("lost-1", "lost-2"):
            with pytest.raises(StoreReplaced, match=r"writes and sends nothing more.*Restart it") as caught:
                await store.submit([NewTask(id=refused, name="job")])
            assert endless_pauses(caught.value, 1) is None  # it does not pass by itself
        await store.close()


async def test_closing_leaves_a_restored_backup_alone(tmp_path: Path) -> None:
    """SQLite would copy its WAL into the file, and delete by its name the WAL that a new process writes."""
    path, backup = tmp_path / "agents.db", tmp_path / "backup"
    await write(path, "in-the-backup")
    shutil.copyfile(path, backup)
    for change in (restore_properly_but_under_a_process, copy_over):
        await write(path, *(f"{change.__name__}-{n}" for n in range(300)))
        store = await SqliteStore(path).open()
        await store.submit([NewTask(id=f"{change.__name__}-lost", name="job")])
        change(path, backup)
        with pytest.raises(StoreReplaced):
            await store.submit([NewTask(id="refused", name="job")])
        await store.close()
        if change is copy_over:
            assert path.read_bytes() == backup.read_bytes()
        for ending in ("-wal", "-shm"):
            beside(path, ending).unlink(missing_ok=True)
        assert not problems_of(path)
        async with SqliteStore(path) as again:
            assert await ids_in(again) == {"in-the-backup"}


async def test_a_deleted_wal_is_saved_if_no_other_process_came(tmp_path: Path) -> None:
    """Its commits are only in the open file. Closing copies them, unless another process has begun without them."""
    for others in (0, 1):
        path = tmp_path / f"{others}.db"
        store = await SqliteStore(path).open()
        await store.submit([NewTask(id="acknowledged", name="job")])
        delete_wal(path, path)
        delete_shm(path, path)
        if others:
            subprocess.run([sys.executable, "-c", OTHER_PROCESS, path], check=True)
        with pytest.raises(StoreReplaced, match="-wal"):
            await store.submit([NewTask(id="refused", name="job")])
        await store.close()
        assert not problems_of(path)
        async with SqliteStore(path) as again:
            assert await ids_in(again) == ({"of-the-other"} if others else {"acknowledged"})


async def test_reading_says_so_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a process that only waits for a result would wait for ever, on a file that no longer exists."""
    monkeypatch.setattr("holdfast.store.sqlite.database.LOOK_EVERY", 0.0)
    store = await SqliteStore(tmp_path / "agents.db").open()
    await store.get("x")
    (tmp_path / "agents.db").rename(tmp_path / "elsewhere")
    with pytest.raises(StoreReplaced):
        await store.get("x")
    await store.close()


async def test_what_sqlite_itself_does_is_no_alarm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two processes that copy the WAL in turn, one that comes and goes, other programs that checkpoint or vacuum."""
    monkeypatch.setattr("holdfast.store.sqlite.writer._CHECKPOINT_PAGES", 3)
    path = tmp_path / "agents.db"
    async with SqliteStore(path) as one, SqliteStore(path) as two:
        for n in range(30):
            for name, store in (("one", one), ("two", two)):
                await store.submit([NewTask(id=f"{name}-{n}", name="job", user_input="x" * 5000)])
        await write(path, "came-and-went")
        await one.submit([NewTask(id="after-it", name="job")])
        with closing(apsw.Connection(str(path))) as other:
            for statement in ("PRAGMA wal_checkpoint(TRUNCATE)", "VACUUM", "PRAGMA wal_checkpoint(RESTART)"):
                other.execute(statement)
                await one.submit([NewTask(name="job")])
                await two.submit([NewTask(name="job")])
        assert await one.count() == {TaskState.PENDING: 68}
    async with SqliteStore(path) as again:
        await again.submit([NewTask(name="job")])
        assert await again.count() == {TaskState.PENDING: 69}


def back_up(path: Path, copy: Path) -> None:
    """As SQLite does it online."""
    with (
        closing(apsw.Connection(str(copy))) as target,
        closing(apsw.Connection(str(path))) as source,
        target.backup("main", source, "main") as backup,
    ):
        backup.step()


async def test_an_online_backup_copied_over_the_file_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once the WAL that followed it is in the file, and began again: what the backup lacks is nowhere else then."""
    monkeypatch.setattr("holdfast.store.sqlite.writer._CHECKPOINT_PAGES", 20)
    path = tmp_path / "agents.db"
    store = await SqliteStore(path).open()
    await store.submit([NewTask(id="before", name="job")])
    back_up(path, tmp_path / "copy")
    for n in range(20):
        await store.submit([NewTask(id=f"after-{n}", name="job")])
    copy_over(path, tmp_path / "copy")
    with pytest.raises(StoreReplaced, match="copied over"):
        await store.submit([NewTask(id="refused", name="job")])
    await store.close()


async def test_a_copy_that_changes_nothing_is_no_alarm(tmp_path: Path) -> None:
    """Copied over the file while all that came since is in the WAL, it takes nothing away."""
    path = tmp_path / "agents.db"
    async with SqliteStore(path) as store:
        await store.submit([NewTask(id="before", name="job")])
        copy_over(tmp_path / "copy", path)
        await store.submit([NewTask(id="after", name="job")])
        copy_over(path, tmp_path / "copy")
        await store.submit([NewTask(id="later", name="job")])
        assert await ids_in(store) == {"before", "after", "later"}
    async with SqliteStore(path) as again:
        assert await ids_in(again) == {"before", "after", "later"}
    assert not problems_of(path)


def vacuum_into(path: Path, copy: Path) -> None:
    with closing(apsw.Connection(str(path))) as connection:
        connection.execute("VACUUM INTO ?", (str(copy),))


async def test_sqlites_own_copies_are_noticed_though_the_wal_was_never_copied(tmp_path: Path) -> None:
    """The pages of a VACUUM INTO stand in another order than those of the WAL, so the two together are damage."""
    for make in (back_up, vacuum_into):
        path = tmp_path / f"{make.__name__}.db"
        await write(path, "before")
        store = await SqliteStore(path).open()
        await store.submit([NewTask(id="in-the-wal", name="job")])
        make(path, beside(path, "-copy"))
        await store.submit([NewTask(id="after", name="job")])
        copy_over(path, beside(path, "-copy"))
        with pytest.raises(StoreReplaced, match=r"copied over.*Restart it without .*-wal") as caught:
            await store.submit([NewTask(id="refused", name="job")])
        assert str(path) in str(caught.value)
        await store.close()
        assert path.read_bytes() == beside(path, "-copy").read_bytes()  # closing wrote nothing


async def test_a_restore_through_sqlite_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is one transaction among others: the epoch goes back. Within one epoch, what this process wrote is lost."""
    for lasts in (0.0, 3600.0):
        monkeypatch.setattr("holdfast.store.sqlite.place.EPOCH_LASTS", lasts)
        path = tmp_path / f"{lasts}.db"
        async with SqliteStore(path) as one, SqliteStore(path) as idle:
            await one.submit([NewTask(id="before", name="job")])
            back_up(path, beside(path, "-copy"))
            await one.submit([NewTask(id="after", name="job")])
            await idle.sweep()  # has seen the newer epoch
            back_up(beside(path, "-copy"), path)
            with pytest.raises(StoreReplaced, match="older state was restored"):
                await one.submit([NewTask(name="job")])
            if lasts:  # this process loses nothing of its own
                await idle.submit([NewTask(name="job")])
            else:
                with pytest.raises(StoreReplaced, match="older state was restored"):
                    await idle.submit([NewTask(name="job")])
        assert not problems_of(path)


async def test_a_restore_within_one_epoch_takes_back_every_kind_of_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.store.sqlite.place.EPOCH_LASTS", 3600.0)

    async def claim(store: SqliteStore) -> None:
        await store.claim(Claim(worker_id="w", number=1, limit=1, queues=("default",), names=("job",)))

    async def commit(store: SqliteStore, *operations: Operation) -> None:
        sent = Commit(task_id="held", guard=Held("w", 1, 1), operations=operations, actor="w")
        [verdict] = await store.commit([sent])
        assert verdict.refusal is None

    async def step(store: SqliteStore) -> None:
        line = Step(
            round=1, key="a", kind="step", position=1, state=StepState.COMPLETED, attempts=1, fence=1, digest="d"
        )
        await commit(store, WriteStep(line))

    async def end(store: SqliteStore) -> None:
        await commit(store, Move(to=TaskState.COMPLETED, reason="done"))

    async def wait(store: SqliteStore) -> None:
        await commit(store, Move(to=TaskState.WAITING, reason="waits", waits=(UntilEvent(key="e", channel="c"),)))

    for change in (claim, step, end, wait):
        path = tmp_path / f"{change.__name__}.db"
        async with SqliteStore(path) as store:
            await store.submit([NewTask(id="held", name="job")])
            await store.register(NewWorker(id="w"))
            if change is not claim:
                await claim(store)
            back_up(path, beside(path, "-copy"))
            await change(store)
            back_up(beside(path, "-copy"), path)
            with pytest.raises(StoreReplaced, match="older state was restored"):
                await store.heartbeat("w")


async def test_a_restore_that_other_processes_have_written_after_is_noticed(tmp_path: Path) -> None:
    """Their epochs may be beyond the last one that this process saw."""
    path = tmp_path / "agents.db"
    async with SqliteStore(path) as store:
        await store.submit([NewTask(id="held", name="job")])
        await store.register(NewWorker(id="w"))
        back_up(path, tmp_path / "copy")
        await store.claim(Claim(worker_id="w", number=1, limit=1, queues=("default",), names=("job",)))
        back_up(tmp_path / "copy", path)
        with closing(connect(str(path), durable=False)) as others:
            for _ in range(5):
                raise_epoch(others)
        with pytest.raises(StoreReplaced, match="older state was restored"):
            await store.heartbeat("w")


async def test_a_new_schema_alone_is_no_alarm(tmp_path: Path) -> None:
    """VACUUM changes its number too, and a table of the user's own; the last task may have been pruned before."""
    path = tmp_path / "agents.db"
    async with SqliteStore(path) as store, SqliteStore(path) as other:
        for statement in ("VACUUM", "CREATE TABLE orders (id INTEGER)", "VACUUM"):
            await store.submit([NewTask(id=f"before {statement}"[:20], key=statement, name="job")])
            with closing(apsw.Connection(str(path))) as connection:
                connection.execute(statement)
            await store.submit([NewTask(name="job")])
            await other.submit([NewTask(name="job")])
        with closing(connect(str(path), durable=False)) as connection:
            raise_epoch(connection)  # as a process that prunes does first
            connection.execute("DELETE FROM tasks")
            connection.execute("VACUUM")
        await store.submit([NewTask(name="job")])
        assert (await store.count())[TaskState.PENDING] == 1


async def test_the_first_write_of_a_process_counts_for_a_restore(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may come long after the others began their epoch, and after the backup."""
    monkeypatch.setattr("holdfast.store.sqlite.place.EPOCH_LASTS", 3600.0)
    path = tmp_path / "agents.db"
    async with SqliteStore(path) as one, SqliteStore(path) as late:
        await one.submit([NewTask(id="before", name="job")])
        await late.sweep()  # it has seen this epoch, and wrote nothing
        back_up(path, tmp_path / "copy")
        await late.submit([NewTask(id="after", name="job")])
        await one.sweep()
        back_up(tmp_path / "copy", path)
        for store in (late, one):
            with pytest.raises(StoreReplaced, match="older state was restored"):
                await store.submit([NewTask(id="refused", name="job")])


async def test_a_backup_over_a_file_that_holds_a_part_of_the_wal_is_noticed(tmp_path: Path) -> None:
    """SQLite reads from the file what it has copied there, though the WAL still has it."""
    path = tmp_path / "agents.db"
    store = await SqliteStore(path).open()
    await store.submit([NewTask(id="before", name="job")])
    with closing(apsw.Connection(str(path))) as other, closing(apsw.Connection(str(path))) as third:
        assert third.execute("SELECT count(*) FROM tasks").get == 1
        third.wal_checkpoint()
        await store.submit([NewTask(id="sees-the-first-checkpoint", name="job")])
        back_up(path, tmp_path / "copy")
        await store.submit([NewTask(id="copied", name="job")])
        other.execute("BEGIN")
        assert (
            other.execute("SELECT count(*) FROM tasks").get == 3
        )  # it reads from here on, and keeps the rest in the WAL
        await store.submit([NewTask(id="in-the-wal", name="job")])
        in_wal, in_file = third.wal_checkpoint()
        assert 0 < in_file < in_wal
        await store.submit([NewTask(id="sees-the-second", name="job")])
        copy_over(path, tmp_path / "copy")
        with pytest.raises(StoreReplaced, match="copied over"):
            await store.submit([NewTask(id="refused", name="job")])
        other.execute("ROLLBACK")
    await store.close()


async def test_an_epoch_costs_nothing_while_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that only looks for work must not write to the disk every second."""
    monkeypatch.setattr("holdfast.store.sqlite.place.EPOCH_LASTS", 0.0)
    path = tmp_path / "agents.db"
    async with SqliteStore(path) as store:
        await store.submit([NewTask(name="job")])
        before = beside(path, "-wal").stat()
        for _ in range(3):
            await store.sweep()
        assert beside(path, "-wal").stat().st_size == before.st_size
        await store.submit([NewTask(name="job")])
        assert beside(path, "-wal").stat().st_size > before.st_size


async def test_links_lead_to_the_same_place_until_they_are_changed(tmp_path: Path) -> None:
    for name in ("real", "other"):
        (tmp_path / name).mkdir()
        await write(tmp_path / name / "agents.db", name)
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "real" / "agents.db")
    store = await SqliteStore(link).open()
    await store.submit([NewTask(id="through-the-link", name="job")])
    link.unlink()
    link.symlink_to(tmp_path / "other" / "agents.db")
    with pytest.raises(StoreReplaced):
        await store.submit([NewTask(id="refused", name="job")])
    await store.close()
    async with SqliteStore(link) as other:
        assert await ids_in(other) == {"other"}


async def test_a_file_replaced_as_it_is_opened_is_opened_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise one connection would have the old file, and the others the new one."""
    path = tmp_path / "agents.db"
    await write(path, "old")
    await write(tmp_path / "restored", "restored")
    store = SqliteStore(path)
    real = store._backend.connect

    def replacing() -> apsw.Connection:
        connection = real()
        if (tmp_path / "restored").exists():
            for ending in ("-wal", "-shm"):
                beside(path, ending).unlink()
            (tmp_path / "restored").replace(path)
        return connection

    monkeypatch.setattr(store._backend, "connect", replacing)
    async with store:
        await store.submit([NewTask(id="new", name="job")])
        assert await ids_in(store) == {"restored", "new"}


async def test_a_deleted_gate_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It orders the processes and guards nothing, so nothing is lost; but those who come later queue at the new one."""
    monkeypatch.setattr("holdfast.store.sqlite.gate.LOOK_EVERY", 0.0)
    path = tmp_path / "agents.db"
    async with SqliteStore(path) as store:
        beside(path, "-gate").unlink()
        await store.submit([NewTask(id="a", name="job")])
        later = file_gate(str(path))
        writer = store._backend.writer
        assert isinstance(writer, SqliteWriter)
        assert later.try_enter()
        assert not writer._gate.try_enter()
        later.close()


async def test_a_look_costs_no_more_than_a_few_questions_to_the_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The three files, at every transaction; the header only when the file was written."""
    monkeypatch.setattr("holdfast.store.sqlite.gate.LOOK_EVERY", 3600.0)
    async with SqliteStore(tmp_path / "agents.db") as store:
        await store.submit([NewTask(name="job")])
        looks: list[str] = []
        real = os.stat

        def look(path: str) -> os.stat_result:
            looks.append(path)
            return real(path)

        monkeypatch.setattr(os, "stat", look)
        await store.submit([NewTask(name="job")])
        monkeypatch.undo()
        assert len(looks) == 3
