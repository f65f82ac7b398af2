"""JsonStore: the contract on a directory of readable files, for one process.

    holdfast.json            which format this is
    tasks/<id>.json          a task with its journal, one file each
    accounts/ workers/ channels/ memory/ artifacts/
    commit.json              only while a commit that touches several files is being put in place
    lock                     held by the process that has the store open

The tables live in memory and every commit writes the documents it touched before it is acknowledged. Made for looking
inside and for small loads: each commit costs several fsyncs and rewrites whole documents.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Self, TypeVar

import apsw

from holdfast.model.clock import Clock
from holdfast.model.commit import Verdict
from holdfast.model.errors import NotAStore, ReadOnlyStore, SchemaMismatch, StoreDamaged, StoreUnavailable
from holdfast.model.queries import Vitals
from holdfast.store.base import Capabilities, StateStore
from holdfast.store.jsonfile.documents import FOLDER_OF, FOLDERS, file_name, insert, render
from holdfast.store.jsonfile.files import JOURNAL, TEMPORARY, finish, size_below, write_together, write_whole
from holdfast.store.jsonfile.lock import DirectoryLock
from holdfast.store.memory import MemoryStore
from holdfast.store.sqlite.connection import MIGRATIONS
from holdfast.store.sqlite.reading import Reader
from holdfast.store.transaction import Work

T = TypeVar("T")

FORMAT = "holdfast.json"
SCHEMA = MIGRATIONS[-1].version


class JsonStore(MemoryStore):
    """Tasks as JSON files in a directory."""

    capabilities = Capabilities(durable=True, multi_process=False, multi_machine=False, precise_hints=True)

    def __init__(self, path: str | Path, *, clock: Clock | None = None) -> None:
        """Name the directory; ``open`` creates it where it is missing."""
        super().__init__(clock=clock)
        self.path = str(path)
        self._root = Path(path).absolute()  # the working directory may change
        self._lock: DirectoryLock | None = None
        self._dirty: set[tuple[str, str]] = set()
        self._broken: OSError | None = None

    async def open(self) -> Self:
        """See StateStore."""
        self._check_not_open()
        self._broken = None
        lock = _prepare(self._root)
        try:
            await super().open()
            # Only now, when every document could be read: from here on, an older version must not open it.
            if _schema(self._root) < SCHEMA:
                _write_format(self._root)
        except BaseException:
            await super().close()
            lock.release()
            raise
        self._lock = lock
        return self

    def _fill(self, connection: apsw.Connection) -> None:
        try:
            finish(self._root)
        except ValueError as error:
            raise StoreDamaged(f"{self._root / JOURNAL} cannot be read ({error}); restore a backup") from error
        connection.execute("BEGIN; PRAGMA defer_foreign_keys = ON")
        for folder in FOLDERS:
            for file in sorted((self._root / folder).glob("*.json")):
                try:
                    insert(connection, folder, file.read_text(encoding="utf-8"))
                except (ValueError, TypeError, apsw.Error) as error:
                    raise StoreDamaged(f"{file} cannot be read ({error}); mend it, or move it away") from error
        try:
            connection.execute("COMMIT")
        except apsw.ConstraintError as error:
            raise StoreDamaged(
                f"{self._root} has rows of a task that is missing ({error}); restore a backup"
            ) from error
        connection.preupdate_hook(self._note)

    def _note(self, change: apsw.PreUpdate) -> None:
        """Remember the document a changed row belongs to; its id is the row's first column."""
        folder = FOLDER_OF.get(change.table_name)
        if folder is None:  # a full-text index, which is made anew of what it is about
            return
        for row in (change.old, change.new):
            if row is not None:
                self._dirty.add((folder, str(row[0])))

    def _commit(self, connection: apsw.Connection) -> None:
        if self._broken is not None:
            raise StoreUnavailable(f"{self.path} failed to write before ({self._broken}); close it and open it again")
        dirty, self._dirty = self._dirty, set()
        files = {file_name(*document): render(connection, *document) for document in sorted(dirty)}
        try:
            self._persist(connection, files)
        except OSError as error:
            # Whether the files count is not known from here; the next open reads what is really there.
            self._broken = error
            raise StoreUnavailable(f"{self.path} could not be written ({error}); close it and open it again") from error

    def _persist(self, connection: apsw.Connection, files: dict[str, str | None]) -> None:
        only = next(iter(files.items())) if len(files) == 1 else None
        if only is not None and only[1] is not None:
            write_whole(self._root / only[0], only[1].encode())
            super()._commit(connection)
        elif files:
            write_together(self._root, files)
            super()._commit(connection)
            finish(self._root)
        else:
            super()._commit(connection)

    async def _read(self, question: Callable[[Reader], T]) -> T:
        if self._broken is not None:
            raise StoreUnavailable(f"{self.path} failed to write ({self._broken}); close it and open it again")
        return await super()._read(question)

    async def vitals(self, *, thorough: bool = False) -> Vitals:
        """See Reads. Every file was read when the store was opened: there is nothing to be more thorough about."""
        found = await super().vitals(thorough=thorough)
        return replace(found, backend="JSON files", bytes=await asyncio.to_thread(size_below, self._root))

    async def transact(self, work: Work[T], *, timeout: float) -> tuple[T, Verdict | None]:
        """See StateStore: there is no file for anybody else's table."""
        return await StateStore.transact(self, work, timeout=timeout)

    async def close(self) -> None:
        """See StateStore."""
        try:
            await super().close()
        finally:
            if self._lock is not None:
                self._lock.release()
                self._lock = None


def _prepare(root: Path) -> DirectoryLock:
    """Make the directory a store, or see that it is one, and lock it."""
    if root.exists() and not root.is_dir():
        raise NotAStore(f"{root} is a file; a JSON store is a directory, choose another path")
    if root.is_dir() and not (root / FORMAT).exists() and any(not _is_harmless(entry) for entry in root.iterdir()):
        raise NotAStore(f"{root} has files in it that are not a Holdfast store; choose an empty directory")
    try:
        root.mkdir(parents=True, exist_ok=True)
        lock = DirectoryLock(root)
    except OSError as error:
        raise ReadOnlyStore(f"{root} cannot be written ({error}); check its rights") from error
    try:
        _check_format(root)
    except BaseException:
        lock.release()
        raise
    return lock


def _is_harmless(entry: Path) -> bool:
    """Say whether a file may be there before there is a store: our lock, or what a killed first opening left."""
    return entry.name == "lock" or entry.name.endswith(TEMPORARY)


def _check_format(root: Path) -> None:
    if not (root / FORMAT).exists():
        _write_format(root)
        return
    schema = _schema(root)
    if schema > SCHEMA:
        raise SchemaMismatch(
            f"{root} has schema {schema}, this version of Holdfast knows up to {SCHEMA}; upgrade Holdfast"
        )


def _schema(root: Path) -> int:
    path = root / FORMAT
    try:
        return int(json.loads(path.read_bytes())["schema"])
    except (ValueError, TypeError, KeyError) as error:
        raise StoreDamaged(f"{path} cannot be read ({error}); restore it from a backup") from error


def _write_format(root: Path) -> None:
    try:
        write_whole(root / FORMAT, json.dumps({"holdfast": "json", "schema": SCHEMA}, indent=1).encode())
    except OSError as error:
        raise ReadOnlyStore(f"{root} cannot be written ({error}); check its rights") from error
