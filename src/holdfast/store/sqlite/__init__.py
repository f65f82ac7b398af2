"""The SQLite store: one file, any number of processes on one machine.

Modules:

migrations/           The numbered history of the SQLite schema
commit.py             Applying Commits: each alone, all in one transaction, none of it where one part is refused
connection.py         Opening SQLite: the settings of a connection, and the schemas this version knows
database.py           Database: the connections of one SQLite store, and the ways in which a verb uses them
empty.py              Empty database: made by the migrations once in a process, and copied for every store in memory
                      after that
errors.py             What went wrong in SQLite, in our own words
feed.py               The feed: reading it, and deleting what is kept no longer
flow.py               What is paused, and the settings of queues
gate.py               The gate between processes: a file lock taken before BEGIN IMMEDIATE
inherited.py          What a forked child inherits of SQLite, and must never touch
journals.py           load: a task with everything a replay needs; and the journal line by line
lease.py              Workers and leases: who may claim, what they get, and what they give back
lifecycle.py          What happens to a task row: moving, waking, ending, giving back a lease
limit_keys.py         The keys of limits as one transaction works on them: what each has room for, and what it counts
limits.py             Limits: their settings, how their keys stand, and closing one for a time
lines.py              Lines of tasks that wait for a key of a limit: which of them are let out, so that a claim finds
                      them
listings.py           Listings whose WHERE clause depends on the question: tasks, effects, approvals, facts
memory.py             Memory: the facts, and changing a subject as it was seen
migration.py          Bringing a SQLite file to the schema this version speaks
operations.py         What each operation of a Commit writes, and when it refuses
peek.py               Looking at a SQLite file without opening it as a store, which would bring it to this version's
                      schema
permits.py            Permits of steps: asked for, granted in the order of the line, given back, and freed after their
                      worker died
place.py              The place of a SQLite store: its file, the -wal and the -shm beside it, and the content of the
                      file
places.py             Places: how many tasks of a queue may be at work at the same time, over all workers together
plain.py              The Commits of every day: a worker writes steps, or ends its task, or both, and nothing else
probe.py              Noticing what other processes wrote: a cheap look at SQLite's change counter
queries.py            Questions to a SQLite store: nothing here changes anything
reader.py             Reader: a connection to a SQLite store that only reads
records.py            From records to rows
retention.py          What lives outside one task: artifacts, evidence; and how old things go
rows.py               A task's row as a transaction works on it, and times as microseconds
schedules.py          Schedules: changed as they were seen, together with the tasks that they submit
sql.py                The statements of the .sql files by name, with the columns of every record filled in
statements.py         What SQL of a user's own may do on the writer's connection: change its own tables, and end nothing
store.py              SqliteStore: the contract on one SQLite file, through apsw, and which function does each verb
submission.py         Submitting tasks and emitting events: how things get into the store from outside a lease
sweep.py              What time alone makes true: dead workers, timers, deadlines, delays, expiries
turns.py              Turns: the tasks of a fair queue are claimed by turns, which they get here
user_transaction.py   transact: a user's SQL and a Commit in one transaction, while the one writer of the process waits
                      for both
write_transaction.py  One write transaction under way: the named queries, the time it goes by, and the hints to send
                      once it is durable
writer.py             The one writer of a process
"""

from holdfast.store.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
