"""Who does the work: workers, their slots, their leases.

Modules:

host.py      Host: runs attempts under one incarnation of a worker, and keeps its lease alive
lease.py     The local end of a lease: how long this process may still act for the tasks it holds
liveness.py  Proof that a process is gone, which a missed lease is not: it may only be slow, or cut off
run_one.py   Running one task by name, here and now: what a worker does for a queue, for a single task
slots.py     The slots of a worker: a slot is for work
worker.py    Worker: pulls tasks from queues and keeps its slots filled
"""
