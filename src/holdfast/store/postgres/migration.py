"""Setting up the schema, and refusing to work on one that this version does not speak."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

import psycopg
from psycopg import sql

from holdfast.model.canonical import parse
from holdfast.model.errors import SchemaMismatch
from holdfast.model.words import words_about
from holdfast.store.postgres.connections import APPLICATION, PostgresConnection, fetch_on
from holdfast.store.postgres.errors import place, translated
from holdfast.store.postgres.parameters import TextArray
from holdfast.store.postgres.sql import QUERIES
from holdfast.store.sqlfiles import Migration, migrations
from holdfast.store.url import split_options

_PACKAGE = "holdfast.store.postgres.migrations"
_RUN_MIGRATE = "run `holdfast migrate` with the role that owns the schema"

_SPLITS_AGAIN = "memory_words"
"""The migration after which the words of all facts are rewritten."""

_LEDGER = """
CREATE TABLE IF NOT EXISTS {schema}.migrations (
    version integer PRIMARY KEY, name text NOT NULL, checksum text NOT NULL, applied_at timestamptz NOT NULL
)"""


async def prepare(connection: PostgresConnection, schema: str, *, migrate: bool | None, where: str) -> None:
    """Bring the schema to this version where that is allowed, and raise SchemaMismatch where it is another.

    ``migrate``: True sets up and upgrades; None, the default, sets up an empty database and upgrades nothing; False
    does neither.
    """
    known = migrations(_PACKAGE)
    applied = await _applied(connection, schema)
    missing = _missing(applied or {}, known, where)
    if not missing:
        return
    if migrate is False or (migrate is None and applied):
        state = f"is at version {max(applied)}" if applied else "is empty"
        raise SchemaMismatch(
            f"the schema {schema!r} in {where} {state}, this is version {known[-1].version}; {_RUN_MIGRATE}"
        )
    try:
        await _migrate(connection, schema, known, where)
    except psycopg.errors.InsufficientPrivilege as error:
        raise SchemaMismatch(
            f"this role may not set up the schema in {where} ({error.diag.message_primary}); {_RUN_MIGRATE}"
        ) from error


@cache
def newest_version() -> int:
    """Return the version of the schema that this program knows."""
    return migrations(_PACKAGE)[-1].version


async def grant_work(url: str, role: str, *, schema: str = "holdfast") -> None:
    """Let ``role`` work with the store, but not change its tables. Call it as the owner, after every migration."""
    text = (files("holdfast.store.postgres") / "grants.sql").read_text(encoding="utf-8")
    url, _ = split_options(url)
    with translated(place(url)):
        async with await psycopg.AsyncConnection.connect(
            url, prepare_threshold=None, fallback_application_name=APPLICATION
        ) as connection:
            # LiteralString is a promise to type checkers that this is not user input: it is a file of ours.
            statement = sql.SQL(text).format(schema=sql.Identifier(schema), role=sql.Identifier(role))
            await connection.execute(statement)


async def _applied(connection: PostgresConnection, schema: str) -> dict[int, str] | None:
    """Return the checksums of the applied migrations by version, or None for a database that has no such schema."""
    exists = "SELECT 1 FROM pg_catalog.pg_tables WHERE schemaname = $1 AND tablename = 'migrations'"
    if not await fetch_on(connection, exists, (schema,)):
        return None
    rows = await fetch_on(connection, f'SELECT version, checksum FROM "{schema}".migrations ORDER BY version')  # noqa: S608 - a checked identifier
    return {int(version): str(checksum) for version, checksum in rows}


def _missing(applied: dict[int, str], known: list[Migration], where: str) -> list[Migration]:
    if applied and max(applied) > known[-1].version:
        raise SchemaMismatch(
            f"the schema in {where} is at version {max(applied)}, newer than version {known[-1].version} of this "
            "program; upgrade holdfast"
        )
    for migration in known:
        if applied.get(migration.version, migration.checksum) != migration.checksum:
            raise SchemaMismatch(
                f"migration {migration.version} ({migration.name}) in {where} is not the one of this program; "
                "it was set up by a version that was never released, or edited since"
            )
    return [migration for migration in known if migration.version not in applied]


async def _migrate(connection: PostgresConnection, schema: str, known: list[Migration], where: str) -> None:
    """Apply what is missing, all or nothing. Two that start at once take turns, and the second finds nothing to do."""
    async with connection.transaction():
        await fetch_on(connection, "SELECT pg_advisory_xact_lock(hashtextextended($1, 0))", (f"holdfast {schema}",))
        # Not IF NOT EXISTS: that asks for the right to create schemas also where there is nothing to create.
        if not await fetch_on(connection, "SELECT 1 FROM pg_catalog.pg_namespace WHERE nspname = $1", (schema,)):
            await connection.execute(_with_schema("CREATE SCHEMA {schema}", schema), prepare=False)
        await connection.execute(_with_schema(_LEDGER, schema), prepare=False)
        for migration in _missing(await _applied(connection, schema) or {}, known, where):
            await connection.execute(_with_schema(migration.sql, schema), prepare=False)
            if migration.name == _SPLITS_AGAIN:
                await _split_again(connection, schema)
            record = f'INSERT INTO "{schema}".migrations VALUES ($1, $2, $3, clock_timestamp())'  # noqa: S608 - a checked identifier
            await fetch_on(connection, record, (migration.version, migration.name, migration.checksum))
            if migration.oldest is not None:
                note = f'UPDATE "{schema}".migrations SET oldest = $2 WHERE version = $1'  # noqa: S608 - as above
                await fetch_on(connection, note, (migration.version, migration.oldest))


async def _split_again(connection: PostgresConnection, schema: str) -> None:
    """Write the words of all facts as this version splits them."""
    read, write = (QUERIES[name].replace("{schema}", f'"{schema}"') for name in ("facts_to_split", "put_words"))
    last = ""
    while rows := await fetch_on(connection, read, (last,)):
        for fact_id, entity, attribute, value in rows:
            await fetch_on(connection, write, (fact_id, TextArray(words_about(entity, attribute, parse(value)))))
        last = rows[-1][0]


def _with_schema(text: str, schema: str) -> bytes:
    return text.replace("{schema}", f'"{schema}"').encode()
