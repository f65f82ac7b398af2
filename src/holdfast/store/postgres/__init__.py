"""The store for many machines: PostgreSQL, through psycopg 3.

The rules live in the database, in PL/pgSQL functions (migrations/0003 to 0012). One call is one statement and one
transaction: it takes its locks in one burst and holds none while a client thinks, it works behind a pooler in
transaction mode, and every statement inside it sees what was committed before it began. From that follows the rule
that all of them keep: **lock first, read in a later statement.** The order of locks stands in 0004_locking.sql.

Modules:

migrations/          The history of the PostgreSQL schema: numbered SQL files, applied in order, never edited once
                     released
base.py              What all parts of the PostgreSQL store share: connections, named queries, the clock, hints
batch.py             How Commits and new tasks travel: structure as one JSON document, payloads as an array of bytes
                     beside it
commit.py            commit: make many Commits durable in one transaction, and answer each
connections.py       A small pool of connections, and sending again what was lost on the way
errors.py            What went wrong in the database, in our own words: no exception of psycopg leaves the store
journals.py          load: a task with everything a replay needs, in one statement, or in pages where that would be too
                     much for one
listings.py          Listings whose WHERE clause depends on the question: tasks, effects, approvals, facts
memory.py            Memory: the facts, and changing a subject as it was seen
migration.py         Setting up the schema, and refusing to work on one that this version does not speak
notices.py           Hints between processes: LISTEN on a connection of its own, NOTIFY after the fact and for many
                     changes at once
parameters.py        Arrays as parameters, in PostgreSQL's binary form
plain.py             The Commits of every day: a worker's, that write steps or complete the task and do nothing else
plan.py              Planning a batch of Commits: which of them can be applied as a set, and what has to be locked first
queries.py           Questions: nothing here changes anything
retention.py         What lives outside one task: artifacts, evidence; and how old things go
rows.py              Between rows and records
statements.py        Which statements of a user's do not belong into a transaction that is shared with Holdfast
store.py             PostgresStore: opening and closing, time, and hints
user_transaction.py  transact: a user's SQL and a Commit in one transaction of the database
verbs.py             The verbs of the engine, apart from commit and load: each is one call of one function in the schema
verdicts.py          From the database's answers to verdicts, in the model's own words
vitals.py            How a store in PostgreSQL is doing: its size, its settings, and what holds back its VACUUM
"""

from __future__ import annotations

from holdfast.model.errors import MissingExtra

try:
    import psycopg as _psycopg
except ImportError as missing:
    raise MissingExtra("postgres", "the PostgreSQL store") from missing
del _psycopg

from holdfast.store.postgres.migration import grant_work  # noqa: E402 - only with the driver
from holdfast.store.postgres.store import PostgresStore  # noqa: E402 - as above

__all__ = ["PostgresStore", "grant_work"]
