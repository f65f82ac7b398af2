"""JsonStore: the contract on a directory of readable files, for one process.

    holdfast.json            which format this is
    tasks/<id>.json          a task with its journal, one file each
    accounts/ pauses/ queues/ workers/ channels/ memory/ artifacts/ schedules/ feed/
    artifacts/<id>.bytes     the content of an artifact, read when it is asked for
    commit.json              only while a commit that touches several files is being put in place
    lock                     held by the process that has the store open

The tables live in memory and every commit writes the documents it touched before it is acknowledged. Made for looking
inside and for small loads: each commit costs several fsyncs and rewrites whole documents.
"""

from __future__ import annotations

import asyncio
import errno
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import apsw

from holdfast.model.canonical import digest
from holdfast.model.clock import Clock
from holdfast.model.errors import (
    NotAStore,
    NotFound,
    ReadOnlyStore,
    SchemaMismatch,
    StoreDamaged,
    StoreError,
    StoreUnavailable,
)
from holdfast.model.queries import Vitals
from holdfast.model.records import Artifact
from holdfast.redaction import make_logger
from holdfast.store.base import Capabilities
from holdfast.store.handles import TooManyOpenFiles, is_too_many_open_files
from holdfast.store.jsonfile.contents import (
    delete_all_but,
    delete_content,
    extract_contents,
    read_content,
    write_content,
)
from holdfast.store.jsonfile.documents import FOLDERS, documents_in, file_name, folder_of, insert, render
from holdfast.store.jsonfile.files import FORMAT, JOURNAL, TEMPORARY, finish, size_below, write_together, write_whole
from holdfast.store.jsonfile.lock import DirectoryLock
from holdfast.store.memory import MemoryBackend
from holdfast.store.place import StorePlace
from holdfast.store.privacy import create_folder
from holdfast.store.simple import SimpleInterface
from holdfast.store.sqlite.connection import MIGRATIONS
from holdfast.store.sqlite.empty import copy_empty
from holdfast.store.sqlite.migration import migrate
from holdfast.store.sqlite.retention import stored_artifact
from holdfast.store.sqlite.write_transaction import WriteTransaction

SCHEMA = MIGRATIONS[-1].version

_ARTIFACTS = "SELECT id FROM artifacts"
_FEED_TRIGGERS = "SELECT name, sql FROM sqlite_schema WHERE type = 'trigger' AND name GLOB 'feed_*'"
_FEED_INDEX = "CREATE INDEX feed_of_task ON feed (task_id)"
"""To write the document of a task; the other stores do not need it."""
_log = make_logger(__name__)


class JsonBackend(MemoryBackend):
    """The verbs on tables in memory that are written to files before a commit is acknowledged."""

    def __init__(self, path: str | Path, *, clock: Clock | None = None) -> None:
        """Name the directory; ``open`` creates it where it is missing."""
        super().__init__(str(path), clock=clock)
        self._root = Path(path).absolute()  # the working directory may change
        self._lock: DirectoryLock | None = None
        self._dirty: set[tuple[str, str]] = set()
        self._owed: set[tuple[str, str]] = set()

    async def open(self) -> None:
        """See StateStore. A store of an older schema is migrated: all of its documents change as one."""
        self.check_not_open()
        self._owed = set()
        self._lock = _prepare(self._root)
        try:
            await super().open()
        except BaseException as error:
            await super().close()
            self._release()
            if isinstance(error, OSError):
                raise cannot_write(self._root, error) from error
            raise

    def find_place(self) -> StorePlace:
        """See MemoryBackend."""
        assert self._lock is not None  # noqa: S101 - taken before the tables are made
        return self._lock.place

    def fill(self, connection: apsw.Connection) -> None:
        """See MemoryBackend. What a process that died has left of a commit is put in place first."""
        try:
            finish(self._root)
        except ValueError as error:
            raise StoreDamaged(f"{self._root / JOURNAL} cannot be read ({error}); restore a backup") from error
        schema = _schema(self._root)
        if schema == SCHEMA:
            copy_empty(connection, self.path)
        else:
            migrate(connection, self.path, [step for step in MIGRATIONS if step.version <= schema])
        # What is loaded has happened before, and is in the feed already.
        triggers = connection.execute(_FEED_TRIGGERS).fetchall()
        for name, _ in triggers:
            connection.execute(f"DROP TRIGGER {name}")
        self._load(connection, schema)
        for _, create in triggers:
            connection.execute(str(create))
        migrate(connection, self.path)
        connection.execute(_FEED_INDEX)
        extract_contents(self._root)
        delete_all_but(self._root, {str(artifact_id) for (artifact_id,) in connection.execute(_ARTIFACTS)})
        if schema < SCHEMA:
            # The format with them: a process that dies halfway leaves a store of the old schema, or of the new one.
            files = {file_name(*document): render(connection, *document) for document in documents_in(connection)}
            write_together(self._root, {**files, FORMAT: _format()})
            finish(self._root)
        connection.preupdate_hook(self._note)

    def _load(self, connection: apsw.Connection, schema: int) -> None:
        connection.execute("BEGIN; PRAGMA defer_foreign_keys = ON")
        file = self._root
        try:
            for folder in FOLDERS:
                for file in sorted((self._root / folder).glob("*.json")):
                    insert(connection, folder, file.read_text(encoding="utf-8"), schema=schema)
        except (apsw.SQLError, apsw.ConstraintError) as error:  # a column too many, or too few
            raise SchemaMismatch(
                f"{file} does not have the form of schema {schema} ({error}): another version of Holdfast wrote it, or "
                "a person changed it. Nothing was changed now; open the store with the version that wrote it"
            ) from error
        except (ValueError, TypeError, KeyError, apsw.Error) as error:
            raise StoreDamaged(
                f"{file} cannot be read ({error}); mend it, or restore it from a backup. Without the file, what it "
                "holds is lost"
            ) from error
        try:
            connection.execute("COMMIT")
        except apsw.ConstraintError as error:
            raise StoreDamaged(
                f"{self._root} has rows of a task that is missing ({error}); restore a backup"
            ) from error

    def _note(self, change: apsw.PreUpdate) -> None:
        """Remember the document a changed row belongs to; its id is the row's first column."""
        for row in (change.old, change.new):
            # A full-text index is in no folder: it is rebuilt from its table.
            if row is not None and (folder := folder_of(change.table_name, str(row[0]))) is not None:
                self._dirty.add((folder, str(row[0])))

    def finish(self, connection: apsw.Connection) -> None:
        """Write the documents that changed, and commit in memory.

        What could not be written, on a full disk for example, is owed: the next commit writes it as well. Until then
        it is not known whether the files have it.
        """
        dirty, self._dirty = self._dirty | self._owed, set()
        files = {file_name(*document): render(connection, *document) for document in sorted(dirty)}
        is_simple = not self._owed and is_one_file(files)
        self._owed = dirty
        try:
            if is_simple:
                [(name, text)] = files.items()
                write_whole(self._root / name, (text or "").encode())
            elif files:
                write_together(self._root, files)
        except OSError as error:
            raise StoreUnavailable(
                f"{self.path} could not be written ({error}); make room, or mend the disk: it is tried again"
            ) from error
        super().finish(connection)
        if not is_simple and not self._put_in_place():
            return
        self._owed = set()
        for folder, document_id in dirty:
            if folder == "artifacts" and files[file_name(folder, document_id)] is None:
                delete_content(self._root, document_id)

    def _put_in_place(self) -> bool:
        """Put the files of the journal in their places, or leave that to the next commit; say which."""
        try:
            finish(self._root)
        except OSError as error:
            # They count: the journal has them. But the next journal has to have them as well.
            _log.warning("%s: a commit is durable but not yet in its place: %s", self.path, error)
            return False
        return True

    # Artifacts

    async def put_whole(self, content: bytes, media_type: str) -> Artifact:
        """See Uploads. The bytes are written before the document that names them."""
        artifact_id = digest(content)

        def work(tx: WriteTransaction) -> Artifact:
            if not tx.changes("renew_artifact", artifact_id, tx.now):
                try:
                    write_content(self._root, artifact_id, content)
                except OSError as error:
                    raise StoreUnavailable(f"{self.path} could not be written ({error}); make room") from error
                tx.run("insert_artifact", artifact_id, len(content), media_type, tx.now, artifact_id)
            return stored_artifact(tx, artifact_id)

        return await self.write(work)

    async def read_artifact(self, artifact_id: str, offset: int, length: int | None) -> bytes:
        """See KeepVerbs."""
        if await self.artifact(artifact_id) is None:
            raise NotFound("artifact", artifact_id)
        try:
            return await asyncio.to_thread(read_content, self._root, artifact_id, offset, length)
        except StoreDamaged:
            if await self.artifact(artifact_id) is None:  # a prune came between the two looks
                raise NotFound("artifact", artifact_id) from None
            raise

    async def vitals(self, *, thorough: bool) -> Vitals:
        """See ReadVerbs. Every file was read when the store was opened: there is nothing to be more thorough about."""
        found = await super().vitals(thorough=thorough)
        return replace(found, backend="JSON files", bytes=await asyncio.to_thread(size_below, self._root))

    async def close(self) -> None:
        """See StateStore."""
        try:
            await super().close()
        finally:
            self._release()

    def _release(self) -> None:
        if self._lock is not None:
            self._lock.release()
            self._lock = None


class JsonStore(SimpleInterface):
    """Tasks as JSON files in a directory."""

    capabilities = Capabilities(durable=True, multi_process=False, multi_machine=False, precise_hints=True)
    _backend: JsonBackend

    def __init__(self, path: str | Path, *, clock: Clock | None = None) -> None:
        """Name the directory; ``open`` creates it where it is missing."""
        self.path = str(path)
        super().__init__(JsonBackend(path, clock=clock))


def is_one_file(files: Mapping[str, str | None]) -> bool:
    """Say whether a commit writes one file and deletes none: it takes its place as a whole, and needs no journal."""
    return len(files) == 1 and None not in files.values()


def _prepare(root: Path) -> DirectoryLock:
    """Make the directory a store, or see that it is one, and lock it."""
    if root.exists() and not root.is_dir():
        raise NotAStore(f"{root} is a file; a JSON store is a directory, choose another path")
    if root.is_dir() and not (root / FORMAT).exists() and any(not _is_harmless(entry) for entry in root.iterdir()):
        raise NotAStore(f"{root} has files in it that are not a Holdfast store; choose an empty directory")
    try:
        create_folder(root)
        lock = DirectoryLock(root)
    except OSError as error:
        raise cannot_write(root, error) from error
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
        written = json.loads(path.read_bytes())
        schema, checksum = int(written["schema"]), written.get("checksum")
    except (ValueError, TypeError, KeyError) as error:
        raise StoreDamaged(f"{path} cannot be read ({error}); restore it from a backup") from error
    known = next((step.checksum for step in MIGRATIONS if step.version == schema), checksum)
    if checksum not in {None, known}:
        raise SchemaMismatch(
            f"{root} has schema {schema} in another form than this version of Holdfast ships; nothing was changed, "
            "open it with the version that made it"
        )
    return schema


def _write_format(root: Path) -> None:
    try:
        write_whole(root / FORMAT, _format().encode())
    except OSError as error:
        raise cannot_write(root, error) from error


def _format() -> str:
    return json.dumps({"holdfast": "json", "schema": SCHEMA, "checksum": MIGRATIONS[-1].checksum}, indent=1)


def cannot_write(root: Path, error: OSError) -> StoreError:
    """Return what an error of the system means to a process that opens the store."""
    if is_too_many_open_files(error):
        return TooManyOpenFiles(str(root))
    if error.errno in {errno.ENOSPC, errno.EDQUOT}:
        return StoreUnavailable(f"{root} cannot be written ({error}); make room, then open it again. Nothing is lost")
    return ReadOnlyStore(f"{root} cannot be written ({error}); check its rights")
