"""hold.sync: the same API for blocking code, on an event loop in its own thread.

Modules:

artifacts.py    hold.sync.artifacts: hold.artifacts for blocking code
bridge.py       Calls from the thread of a blocking function: they run on the event loop while the thread waits
context.py      SyncContext: ctx for blocking functions
feed.py         SyncFeed: the feed for blocking code
handle.py       SyncHandle: one task, seen from outside, for blocking code
holdfast.py     hold.sync: Holdfast for blocking code
loop_thread.py  LoopThread: an event loop in its own thread, for blocking code
memory.py       hold.sync.memory: hold.memory for blocking code
schedules.py    Operations on schedules, for blocking code
store.py        hold.sync.store: the four methods of a TaskStore, for blocking code
"""
