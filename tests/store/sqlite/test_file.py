"""Opening a file: what is created, what is refused, and that a refusal leaves the file as it was."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import apsw
import pytest

from holdfast import (
    NewTask,
    NotAStore,
    ReadOnlyStore,
    SchemaMismatch,
    StoreBusy,
    StoreClosed,
    StoreDamaged,
    StoreError,
    StoreUnavailable,
    Summary,
)
from holdfast.store.sqlite import SqliteStore
from holdfast.store.sqlite.connection import APPLICATION_ID, MIGRATIONS, prove_version
from holdfast.store.sqlite.migration import migrate
from holdfast.store.sqlite.peek import peek


def edit(path: Path, *statements: str) -> None:
    connection = apsw.Connection(str(path))
    for statement in statements:
        connection.execute(statement)
    connection.close()


async def new_store(path: Path) -> None:
    async with SqliteStore(path) as store:
        await store.submit([NewTask(id="kept", name="work")])


async def refused(path: Path, error: type[StoreError], words: str) -> None:
    before = path.read_bytes() if path.is_file() else None
    with pytest.raises(error, match=words):
        await SqliteStore(path).open()
    assert (path.read_bytes() if path.is_file() else None) == before


async def test_a_new_file_is_marked_as_ours_and_durable_by_default(tmp_path: Path) -> None:
    await new_store(tmp_path / "agents.db")
    connection = apsw.Connection(str(tmp_path / "agents.db"))
    assert connection.pragma("application_id") == APPLICATION_ID
    assert connection.pragma("journal_mode") == "wal"
    connection.close()


@pytest.mark.parametrize(("durable", "level"), [(True, 2), (False, 1)])
async def test_synchronous_is_full_unless_durability_is_given_up(tmp_path: Path, durable: bool, level: int) -> None:
    async with SqliteStore(tmp_path / "agents.db", durable=durable) as store:
        assert await store._backend.write(lambda tx: tx._connection.pragma("synchronous")) == level


async def test_what_was_stored_is_there_after_reopening(tmp_path: Path) -> None:
    await new_store(tmp_path / "agents.db")
    async with SqliteStore(tmp_path / "agents.db") as store:
        assert await store.get("kept") is not None


async def test_a_file_that_is_no_database_is_left_untouched(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("not a database, but long enough to look like one " * 100)
    await refused(path, NotAStore, "not a SQLite database")


async def test_a_database_of_another_program_is_left_untouched(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    edit(path, "CREATE TABLE cats (name TEXT)")
    await refused(path, NotAStore, "another program")


async def test_a_newer_schema_says_upgrade(tmp_path: Path) -> None:
    path = tmp_path / "agents.db"
    await new_store(path)
    edit(path, "INSERT INTO migrations (version, name, checksum) VALUES (99, 'later', 'x')")
    await refused(path, SchemaMismatch, "schema 99.*upgrade Holdfast")


async def test_a_migration_applied_in_another_form_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "agents.db"
    await new_store(path)
    edit(path, "UPDATE migrations SET checksum = 'edited' WHERE version = 1")
    await refused(path, SchemaMismatch, "migration 1")


async def test_a_directory_and_a_missing_folder_are_refused(tmp_path: Path) -> None:
    await refused(tmp_path, NotAStore, "is a directory")
    await refused(tmp_path / "missing" / "agents.db", NotAStore, "does not exist")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write to any file")
async def test_a_read_only_file_is_refused_in_words(tmp_path: Path) -> None:
    path = tmp_path / "agents.db"
    await new_store(path)
    path.chmod(0o444)
    tmp_path.chmod(0o555)
    try:
        await refused(path, ReadOnlyStore, "cannot be written")
    finally:
        tmp_path.chmod(0o755)


async def test_a_read_only_database_is_refused_with_a_clear_error_for_every_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Root ignores file rights, so the database itself is opened read-only here."""
    path = tmp_path / "agents.db"
    await new_store(path)
    monkeypatch.setattr("holdfast.store.sqlite.connection._OPEN_FLAGS", apsw.SQLITE_OPEN_READONLY)
    await refused(path, ReadOnlyStore, "cannot be written")


async def test_a_damaged_file_is_said_to_be_damaged(tmp_path: Path) -> None:
    path = tmp_path / "agents.db"
    await new_store(path)
    content = bytearray(path.read_bytes())
    content[100:4096] = b"\xff" * (4096 - 100)  # the header still says SQLite
    path.write_bytes(content)
    with pytest.raises(StoreDamaged, match="restore a backup"):
        await SqliteStore(path).open()


async def test_opening_an_open_store_is_refused(tmp_path: Path) -> None:
    async with SqliteStore(tmp_path / "agents.db") as store:
        with pytest.raises(StoreError, match="open already"):
            await store.open()


def schema_of(connection: apsw.Connection) -> list[tuple[str, ...]]:
    return list(connection.execute("SELECT type, name, sql FROM sqlite_schema ORDER BY type, name"))


def test_fresh_schema_equals_migrated_schema() -> None:
    """One by one, as an old file meets them, the migrations make the schema that a new file gets at once."""
    fresh, migrated = apsw.Connection(":memory:"), apsw.Connection(":memory:")
    prove_version(fresh)
    prove_version(migrated)
    migrate(fresh, "fresh")
    for count in range(1, len(MIGRATIONS) + 1):
        migrate(migrated, "migrated", MIGRATIONS[:count])
    assert schema_of(fresh) == schema_of(migrated)


def test_a_migration_that_fails_leaves_nothing_behind() -> None:
    connection = apsw.Connection(":memory:")
    broken = [*MIGRATIONS, type(MIGRATIONS[0])(len(MIGRATIONS) + 1, "broken", "CREATE TABLE good (a); CREATE TABLE 1")]
    with pytest.raises(apsw.SQLError):
        migrate(connection, "x", broken)
    assert schema_of(connection) == []


async def test_many_processes_may_open_a_new_file_at_once(tmp_path: Path) -> None:
    code = "import asyncio, sys, holdfast; s = holdfast.make_store(sys.argv[1]); asyncio.run(s.open()); print('open')"
    url = f"sqlite:///{tmp_path}/agents.db"
    processes = [
        await asyncio.create_subprocess_exec(sys.executable, "-c", code, url, stdout=-1, stderr=-1) for _ in range(8)
    ]
    answers = await asyncio.gather(*(process.communicate() for process in processes))
    assert [out for out, _ in answers] == [b"open\n"] * 8, answers


async def test_an_opening_that_failed_halfway_can_be_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = SqliteStore(tmp_path / "agents.db")
    real, calls = store._backend.connect, 0

    def flaky() -> apsw.Connection:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise apsw.IOError("disk I/O error")
        return real()

    monkeypatch.setattr(store._backend, "connect", flaky)
    with pytest.raises(StoreUnavailable):
        await store.open()
    await store.open()
    assert await store.summary() == Summary()
    await store.close()


async def test_a_file_that_others_are_opening_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite refuses at once where two connections could wait for each other, whatever its busy timeout is."""
    store = SqliteStore(tmp_path / "agents.db")
    real, refused = store._backend.connect, list[str]()

    def busy() -> apsw.Connection:
        if len(refused) < 3:
            refused.append("once more")
            raise apsw.BusyError("database is locked")
        return real()

    monkeypatch.setattr(store._backend, "connect", busy)
    async with store:
        assert len(refused) == 3
    refused.clear()
    monkeypatch.setattr("holdfast.store.sqlite.database.BUSY_TIMEOUT_MS", -1)
    with pytest.raises(StoreBusy):  # but not for ever
        await store.open()
    assert len(refused) == 1


@pytest.mark.skipif(not Path("/proc/locks").exists(), reason="only Linux lists the locks that a process holds")
async def test_looking_at_an_open_store_drops_none_of_its_locks(tmp_path: Path) -> None:
    """A lock belongs to the process: closing any file of one's own on a store would give up all that SQLite holds."""
    async with SqliteStore(tmp_path / "agents.db"):
        mark = f":{(tmp_path / 'agents.db').stat().st_ino} "
        assert mark in Path("/proc/locks").read_text()
        peek(tmp_path / "agents.db")
        assert mark in Path("/proc/locks").read_text()


WITHOUT_HANDLES = """
import asyncio, os, resource, sys
from holdfast import NewTask
from holdfast.engine.runtime.store_retry import endless_pauses
from holdfast.model.errors import StoreUnavailable
from holdfast.store.url import make_store
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
taken = []
def take():
    try:
        while True:
            taken.append(os.open(os.devnull, os.O_RDONLY))
    except OSError:
        pass
def give_back():
    while taken:
        os.close(taken.pop())
async def main():
    sqlite, json = make_store("sqlite:///" + sys.argv[1] + ".db"), make_store("json:///" + sys.argv[1])
    take()
    opening = asyncio.create_task(sqlite.open())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not opening.done()
    try:
        await json.open()
    except StoreUnavailable as error:
        assert "no file handle left" in str(error), error
    give_back()
    await opening
    await json.open()
    await json.submit([NewTask(id="before", name="job")])
    take()
    try:
        await json.submit([NewTask(id="a", name="job"), NewTask(id="b", name="job")])
    except StoreUnavailable as error:
        assert endless_pauses(error, 1) is not None
    else:
        raise AssertionError("written without a handle")
    give_back()
    await json.submit([NewTask(id="a", name="job"), NewTask(id="b", name="job")])
    await sqlite.close()
    await json.close()
asyncio.run(main())
"""


def test_a_process_without_file_handles_waits_for_some(tmp_path: Path) -> None:
    """SQLite says only that it cannot open the file; the rights are not the reason then."""
    subprocess.run([sys.executable, "-c", WITHOUT_HANDLES, tmp_path / "store"], check=True, timeout=60)


async def test_a_closed_store_hears_nothing_and_says_so(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "agents.db")
    await store.open()
    async with store.listen() as listener:
        waiting = asyncio.create_task(listener.wait())
        await asyncio.sleep(0)
        await store.close()
        assert await asyncio.wait_for(waiting, 1)  # woken, so that it asks and finds out
    with pytest.raises(StoreClosed):
        async with store.listen():
            pass
