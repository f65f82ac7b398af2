"""Connections of users to PostgreSQL, of every kind that ``connection=`` takes, with the same four verbs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any

import asyncpg  # type: ignore[import-untyped]  # it has no types of its own
import psycopg
from psycopg.rows import dict_row
from sqlalchemy import create_engine, text
from sqlalchemy.ext.asyncio import AsyncSession, async_scoped_session, async_sessionmaker, create_async_engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker
from sqlalchemy.pool import NullPool


@dataclass
class Own:
    """A connection with what its owner does on it."""

    connection: Any
    execute: Callable[[str], Awaitable[Any]]
    commit: Callable[[], Awaitable[None]]
    rollback: Callable[[], Awaitable[None]]


@dataclass
class BlockingOwn:
    """The same for a connection that blocks."""

    connection: Any
    execute: Callable[[str], Any]
    commit: Callable[[], None]
    rollback: Callable[[], None]


@asynccontextmanager
async def of_psycopg(url: str, **options: Any) -> AsyncIterator[Own]:  # noqa: ANN401
    connection = await psycopg.AsyncConnection.connect(url, row_factory=dict_row, **options)
    try:
        yield Own(connection, lambda sql: connection.execute(sql.encode()), connection.commit, connection.rollback)
    finally:
        await connection.close()


@asynccontextmanager
async def _engine(url: str, driver: str, **options: Any) -> AsyncIterator[Any]:  # noqa: ANN401
    connect: dict[str, Callable[..., Awaitable[Any]]] = {
        "psycopg": lambda: psycopg.AsyncConnection.connect(url),
        "asyncpg": lambda: asyncpg.connect(url),
    }
    made = create_async_engine(f"postgresql+{driver}://", async_creator=connect[driver], poolclass=NullPool, **options)
    try:
        yield made
    finally:
        await made.dispose()


@asynccontextmanager
async def of_sqlalchemy(url: str, *, driver: str = "psycopg", **options: Any) -> AsyncIterator[Own]:  # noqa: ANN401
    async with _engine(url, driver, **options) as engine, engine.connect() as connection:
        yield Own(connection, lambda sql: connection.execute(text(sql)), connection.commit, connection.rollback)


def of_asyncpg(url: str, **options: Any) -> Any:  # noqa: ANN401 - an async context manager
    return of_sqlalchemy(url, driver="asyncpg", **options)


@asynccontextmanager
async def of_session(url: str, *, scoped: bool = False, **options: Any) -> AsyncIterator[Own]:  # noqa: ANN401
    async with _engine(url, "psycopg", **options) as engine:
        make = async_sessionmaker(engine)
        session: AsyncSession | async_scoped_session[AsyncSession]
        session = async_scoped_session(make, scopefunc=lambda: 1) if scoped else make()
        try:
            yield Own(session, lambda sql: session.execute(text(sql)), session.commit, session.rollback)
        finally:
            await session.close()


def of_scoped_session(url: str) -> Any:  # noqa: ANN401 - an async context manager
    return of_session(url, scoped=True)


KINDS: dict[str, Callable[[str], Any]] = {
    "psycopg": of_psycopg,
    "SQLAlchemy": of_sqlalchemy,
    "SQLAlchemy with asyncpg": of_asyncpg,
    "a session": of_session,
    "a scoped session": of_scoped_session,
}


@contextmanager
def of_blocking_psycopg(url: str) -> Iterator[BlockingOwn]:
    with psycopg.connect(url, row_factory=dict_row) as connection:
        yield BlockingOwn(
            connection, lambda sql: connection.execute(sql.encode()), connection.commit, connection.rollback
        )


@contextmanager
def _blocking_engine(url: str) -> Iterator[Any]:
    engine = create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(url), poolclass=NullPool)
    try:
        yield engine
    finally:
        engine.dispose()


@contextmanager
def of_blocking_sqlalchemy(url: str) -> Iterator[BlockingOwn]:
    with _blocking_engine(url) as engine, engine.connect() as connection:
        yield BlockingOwn(connection, lambda sql: connection.execute(text(sql)), connection.commit, connection.rollback)


@contextmanager
def of_blocking_session(url: str, *, scoped: bool = False) -> Iterator[BlockingOwn]:
    with _blocking_engine(url) as engine:
        make = sessionmaker(engine)
        session: Session | scoped_session[Session] = scoped_session(make) if scoped else make()
        try:
            yield BlockingOwn(session, lambda sql: session.execute(text(sql)), session.commit, session.rollback)
        finally:
            session.close()


def of_blocking_scoped_session(url: str) -> Any:  # noqa: ANN401 - a context manager
    """A session of this thread: in another thread the same object would be another session."""
    return of_blocking_session(url, scoped=True)


BLOCKING_KINDS: dict[str, Callable[[str], Any]] = {
    "psycopg": of_blocking_psycopg,
    "SQLAlchemy": of_blocking_sqlalchemy,
    "a session": of_blocking_session,
    "a scoped session": of_blocking_scoped_session,
}
