"""Workers, their slots and their leases.

Modules:

host.py      Host: runs attempts under one incarnation of a worker, and keeps its lease alive
lease.py     The local end of a lease: how long this process may still act for the tasks it holds
liveness.py  Proof that a process has ended
run_one.py   Running a single task in this process, as a worker runs the tasks of a queue
slots.py     The slots of a worker: an attempt has a slot while it works
strays.py    Strays: tasks that a worker holds in the store, but does not run
worker.py    Worker: claims tasks for its free slots, sweeps what time makes due, and fires schedules
"""
