"""Where tasks survive: one contract, four stores, opened by URL.

Modules:

jsonfile/          The JSON store: one readable file a task, for one process
postgres/          The store for many machines: PostgreSQL, through psycopg 3
sqlite/            The SQLite store: one file, any number of processes on one machine
backend.py         Backend: what a database has to do for a store
background.py      Background loops, such as heartbeats: started by name, they survive their own errors, and end without
                   a rest
base.py            The contract every store keeps: a few domain verbs, in groups
checks.py          What is refused at a store's door, before anything is written: the same for every store
clock.py           The machine's own time: the clock a store goes by unless it is given another
cursor.py          The place in a listing where the next page begins: opaque to callers, the same in every store
facts.py           What the stores share about facts: what is refused at the door, and in which words
feed_verbs.py      Verbs about the feed: everything that happens in the store, in an order that every reader sees
flow_verbs.py      Verbs about the flow of all work: what is paused, the settings of queues, and limits
handles.py         File handles: a process, or a machine, that has none left has a passing trouble, and its store has
                   none at all
hints.py           Hints inside one process: the listeners, and the hints that each has not received yet
idparts.py         Ids by a few of their characters: where each kind of id stands, and which characters none has
keep_verbs.py      What lives outside one task: artifacts, memory, evidence; how old things go; and what is refused at
                   the door
memory.py          MemoryStore: the contract for tests and experiments; everything is gone with the process
outage.py          Outages: times in which a store cannot be used
ownership.py       Which fields of a Task a program that drives it by hand may change with ``save``
place.py           The place of a store: the files it opened, compared with those that stand at their paths now
placeholders.py    ``$1``, ``$2``: the placeholders that mean the same in every database
privacy.py         Privacy: a new store is its owner's alone, whatever the umask; what stands beside a store follows its
                   permissions
rawspeed.py        What a database can do at best: commits of one row, or of a hundred, with nothing around them
read_verbs.py      Questions, and what is refused at their door: nothing here changes anything
records.py         From rows to records, for every SQL store
schedule_verbs.py  Schedules in a store: rows that change only as they were seen, together with the tasks that they
                   submit
simple.py          The simple interface: save, get, list_by_state, execute_step
sqlfiles.py        SQL that lives in .sql files: named queries, and numbered migrations with checksums
task_store.py      TaskStore: the smallest store there is
transaction.py     StoreTransaction: one's own SQL, and new tasks, in one database transaction
upload.py          Storing a stream: piece by piece under the name of an upload, which becomes an artifact when the last
                   piece is there
url.py             A URL opens any store
where.py           A WHERE clause that depends on the question: conditions that must all hold, with their values
work_verbs.py      The verbs the engine works with, and what is refused at their door
"""

from __future__ import annotations

from holdfast.store.base import ANYTHING, Capabilities, Listener, StateStore
from holdfast.store.task_store import TaskStore
from holdfast.store.url import make_store, open_store

__all__ = ["ANYTHING", "Capabilities", "Listener", "StateStore", "TaskStore", "make_store", "open_store"]
