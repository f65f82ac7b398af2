"""The store for many machines: PostgreSQL, through psycopg 3.

    store.py        the store: opening, closing, time; base.py: what its parts share
    working.py      submit, claim, heartbeat, sweep ...: each verb is one call of one function in the schema
    committing.py   commit: a batch of Commits, planned (plan.py), sent (batch.py), answered (verdicts.py)
    plain.py        the short way for everyday Commits
    transacting.py  transact: a user's own SQL and a Commit in one transaction
    reading.py      questions (queries.sql, listing.py); keeping.py: artifacts, evidence, prune
    remembering.py  memory: the facts, and changing them as they were seen
    rows.py         between rows and records
    connections.py  a small pool, and sending again what was lost; parameters.py: arrays on the wire
    notices.py      NOTIFY as a coalesced hint; errors.py: SQLSTATEs in our own words
    migrating.py    setting up and checking the schema (migrations/*.sql), and who may work with it (grants.sql)

The rules live in the database, in PL/pgSQL functions (migrations/0003 to 0012). One call is one statement and one
transaction: it takes its locks in one burst and holds none while a client thinks, it works behind a pooler in
transaction mode, and every statement inside it sees what was committed before it began. From that follows the rule
that all of them keep: **lock first, read in a later statement.** The order of locks stands in 0004_locking.sql.
"""

from __future__ import annotations

from holdfast.model.errors import MissingExtra

try:
    import psycopg as _psycopg
except ImportError as missing:
    raise MissingExtra("postgres", "the PostgreSQL store") from missing
del _psycopg

from holdfast.store.postgres.migrating import grant_work  # noqa: E402 - only with the driver
from holdfast.store.postgres.store import PostgresStore  # noqa: E402 - as above

__all__ = ["PostgresStore", "grant_work"]
