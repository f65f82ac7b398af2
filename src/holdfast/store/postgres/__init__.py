"""The store for many machines: PostgreSQL, through psycopg 3.

The rules live in the database, in PL/pgSQL functions (migrations/0003 and later). A later file may replace a function
of an earlier one: migrations/__init__.py says where each function is as it is now. One call is one statement and one
transaction. It takes its locks in one burst and holds none while a client thinks. It works behind a pooler in
transaction mode. Every statement inside it sees what was committed before it began. From that follows the rule that
all of them keep: **lock first, read in a later statement.** The order of locks is in 0004_locking.sql.

Modules:

migrations/          The history of the PostgreSQL schema: numbered SQL files, applied in order, never edited once
                     released
batch.py             How Commits and new tasks travel: structure as one JSON document, payloads as an array of bytes
                     beside it
commit.py            commit: make many Commits durable in one transaction, and answer each
connections.py       A small pool of connections, and sending again what was lost on the way
database.py          Database: the connections of one PostgreSQL store, its named queries, its clock and its hints
errors.py            What went wrong in the database, in our own words: no exception of psycopg leaves the store
feed.py              The feed: reading it, and deleting what is kept no longer
flow.py              What is paused, and the settings of queues
journals.py          load: a task with everything a replay needs, in one statement or in pages; and the journal line by
                     line
lease.py             Workers and leases: who may claim, what they get, and what they give back
limits.py            Limits: their settings, how their keys stand, and the lines of the tasks that wait for them
listings.py          Listings whose WHERE clause depends on the question: tasks, effects, approvals, facts
memory.py            Memory: the facts, and changing a subject as it was seen
migration.py         Setting up the schema, and refusing to work on one that this version does not speak
notices.py           Hints between processes: LISTEN on a connection of its own, NOTIFY after the fact and for many
                     changes at once
parameters.py        Arrays as parameters, in PostgreSQL's binary form
permits.py           Permits of steps: taken before a call, given back after it, and freed when their worker died
plain.py             The Commits of every day: a worker's, that write steps or complete the task and do nothing else
plan.py              Planning a batch of Commits: which of them can be applied as a set, and what has to be locked first
queries.py           Questions to a PostgreSQL store: nothing here changes anything
records.py           Between rows and records
retention.py         What lives outside one task: artifacts, evidence; and how old things go
schedules.py         Schedules: changed as they were seen, together with the tasks that they submit
sql.py               The statements of queries.sql by name, with the columns of every record filled in, but not the
                     schema's name yet
statements.py        Which statements of a user's do not belong into a transaction that is shared with Holdfast
store.py             PostgresStore: the contract on PostgreSQL, through psycopg, and which function does each verb
submission.py        Submitting tasks and emitting events: how things get into the store from outside a lease
sweep.py             What time alone makes true: dead workers, timers, deadlines, delays, expiries
user_connection.py   Submitting in the open transaction of a connection that belongs to the caller: of psycopg, or of
                     SQLAlchemy
user_transaction.py  transact: a user's SQL and a Commit in one transaction of the database
verdicts.py          From the database's answers to verdicts, in the model's own words
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
