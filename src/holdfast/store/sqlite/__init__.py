"""The SQLite store: one file, any number of processes on one machine.

Modules:

migrations/          The numbered history of the SQLite schema
artifacts.py         Artifacts in a SQLite store: bytes in chunks, put whole or piece by piece
commit.py            Applying Commits: each alone, all in one transaction, none of it where one part is refused
connection.py        Opening SQLite, and its errors in our words
gate.py              The gate between processes: a file lock taken before BEGIN IMMEDIATE
guard.py             What SQL of a user's own may do on the writer's connection: change its own tables, and end nothing
inherited.py         What a forked child inherits of SQLite, and must never touch
lease.py             Workers and leases: who may claim, what they get, and what they give back
lifecycle.py         What happens to a task row: moving, waking, ending, giving back a lease
listings.py          Listings whose WHERE clause depends on the question: tasks, effects, approvals, facts
memory.py            Memory: changing a subject as it was seen, and forgetting
migration.py         Bringing a SQLite file to the schema this version speaks
operations.py        What each operation of a Commit writes, and when it refuses
peek.py              Looking at a SQLite file without opening it as a store, which would bring it to this version's
                     schema
place.py             The place of a SQLite store: its file, the -wal and the -shm beside it, and the content of the file
probe.py             Noticing what other processes wrote: a cheap look at SQLite's change counter
queries.py           Questions to a SQLite store, on a connection that only reads
records.py           From records to rows
retention.py         Evidence, and how old things go: writes that belong to no Commit
rows.py              A task's row as a transaction works on it, and times as microseconds
shortcuts.py         The short way for what nearly every Commit is: a worker writes steps, or ends its task, or both,
                     and nothing else
store.py             SqliteStore: the contract on one SQLite file, through apsw
submission.py        Submitting tasks and emitting events: how things get into the store from outside a lease
sweep.py             What time alone makes true: dead workers, timers, deadlines, delays, expiries
transaction.py       One write transaction under way: the named queries, the time it goes by, and the hints to send once
                     it is durable
user_transaction.py  transact: a user's SQL and a Commit in one transaction, while the one writer of the process waits
                     for both
vitals.py            How a store in SQLite is doing: its size, its settings, and whether it is damaged
writer.py            The one writer of a process
"""

from holdfast.store.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
