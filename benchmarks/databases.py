"""Temporary databases of one kind for the measurements, and the raw limit of that kind."""

from __future__ import annotations

import asyncio
import itertools
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw

from holdfast.store.rawspeed import postgres_commits, sqlite_commits
from tests.postgres_server import PostgresServer


class Databases(ABC):
    """Makes databases of one kind."""

    name: str
    is_postgres: bool

    @contextmanager
    def fresh(self) -> Iterator[str]:
        """Make an empty database, and delete it at the end."""
        url = self._create()
        try:
            yield url
        finally:
            self._drop(url)

    @contextmanager
    def fresh_for_peer(self) -> Iterator[str]:
        """Make an empty database with the best settings for a peer that does not choose them itself."""
        with self.fresh() as url:
            self._tune(url)
            yield url

    @abstractmethod
    def raw(self, seconds: float, *, rows: int = 1) -> float:
        """Return the rows per second of a simple loop of commits, ``rows`` in each."""

    @abstractmethod
    def _create(self) -> str: ...

    @abstractmethod
    def _drop(self, url: str) -> None: ...

    @abstractmethod
    def _tune(self, url: str) -> None: ...


class SqliteDatabases(Databases):
    """Files in a folder."""

    name = "SQLite"
    is_postgres = False

    def __init__(self, folder: Path) -> None:
        """Put the files here."""
        self._folder = folder
        self._numbers = itertools.count(1)

    def raw(self, seconds: float, *, rows: int = 1) -> float:
        """Commit to a file beside the others."""
        return sqlite_commits(self._folder, seconds, rows)

    def _create(self) -> str:
        return f"sqlite:///{self._folder}/{next(self._numbers)}.db"

    def _drop(self, url: str) -> None:
        for file in self._folder.glob(Path(url).name + "*"):
            file.unlink()

    def _tune(self, url: str) -> None:
        """Choose the WAL, which stays with the file: DBOS would use the slower rollback journal."""
        connection = apsw.Connection(url.removeprefix("sqlite:///"))
        connection.pragma("journal_mode", "wal")
        connection.close()


class PostgresDatabases(Databases):
    """Databases of a server."""

    is_postgres = True

    def __init__(self, server: PostgresServer) -> None:
        """Create them on this server."""
        self.name = f"PostgreSQL {server.version}"
        self._server = server
        self._raw_url = server.create_database()

    def raw(self, seconds: float, *, rows: int = 1) -> float:
        """Commit to a database beside the others, over one connection."""
        return asyncio.run(postgres_commits(self._raw_url, seconds, rows))

    def _create(self) -> str:
        return self._server.create_database()

    def _drop(self, url: str) -> None:
        self._server.drop_database(url)

    def _tune(self, url: str) -> None:
        """Change nothing."""
